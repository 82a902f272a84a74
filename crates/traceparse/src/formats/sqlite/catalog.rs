//! What tables and columns a database has.

use hashbrown::{HashMap, HashSet};
use rusqlite::Connection;

use super::open::explain;
use crate::error::Result;

/// The tables of a database.
pub(crate) struct Catalog {
    tables: HashMap<String, Table>,
}

/// A table of the database.
#[derive(Debug, Default)]
pub(crate) struct Table {
    columns: HashSet<String>,
    /// Columns that are the table's key and its rowid.
    key: Option<String>,
    /// Least and greatest rowid; null for an empty table, or one that cannot be read.
    pub(crate) rowids: Option<(i64, i64)>,
}

impl Table {
    /// Whether it has a column.
    pub(crate) fn has(&self, column: &str) -> bool {
        self.columns.contains(column)
    }

    /// Whether rows are found by this column without a scan.
    pub(crate) fn is_key(&self, column: &str) -> bool {
        self.key.as_deref() == Some(column)
    }
}

impl Catalog {
    /// Probes every table.
    pub(crate) fn read(connection: &Connection) -> Result<Self> {
        let sql = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY rowid";
        let mut statement = connection.prepare(sql).map_err(|e| explain(&e))?;
        let names = statement.query_map([], |row| row.get::<_, String>(0)).map_err(|e| explain(&e))?;
        let mut tables = HashMap::new();
        for name in names.flatten() {
            let table = probe(connection, &name).unwrap_or_default();
            tables.insert(name, table);
        }
        Ok(Self { tables })
    }

    /// A table, if the database has it.
    pub(crate) fn table(&self, name: &str) -> Option<&Table> {
        self.tables.get(name)
    }

    /// Whether a table has all of some columns.
    pub(crate) fn has(&self, table: &str, columns: &[&str]) -> bool {
        self.table(table).is_some_and(|table| columns.iter().all(|column| table.has(column)))
    }

    /// The tables, in no order.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (&str, &Table)> {
        self.tables.iter().map(|(name, table)| (name.as_str(), table))
    }
}

fn probe(connection: &Connection, name: &str) -> rusqlite::Result<Table> {
    let mut statement = connection.prepare("SELECT name, type, pk FROM pragma_table_info(?1)")?;
    let mut rows = statement.query([name])?;
    let mut table = Table::default();
    let mut keys = Vec::new();
    while let Some(row) = rows.next()? {
        let column: String = row.get(0)?;
        if row.get::<_, i64>(2)? > 0 {
            keys.push((column.clone(), row.get::<_, String>(1)?));
        }
        table.columns.insert(column);
    }
    if let [(column, kind)] = keys.as_slice()
        && kind.eq_ignore_ascii_case("integer")
    {
        table.key = Some(column.clone());
    }
    // Each bound alone is one step down the table's tree; both in one query would be a scan.
    let bound = |function: &str| {
        let sql = format!("SELECT {function}(rowid) FROM {}", quoted(name));
        connection.query_row(&sql, [], |row| row.get::<_, Option<i64>>(0))
    };
    if let (Ok(Some(least)), Ok(Some(greatest))) = (bound("min"), bound("max")) {
        table.rowids = Some((least, greatest));
    }
    Ok(table)
}

/// A name as SQL takes it.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
