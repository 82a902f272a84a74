//! What tables and columns a database has.

use hashbrown::{HashMap, HashSet};
use rusqlite::Connection;

use super::open::{Version, explain, quoted};
use crate::error::Result;

/// The tables and views of a database.
pub(crate) struct Catalog {
    tables: HashMap<String, Table>,
    /// Whether the list of tables could be read to its end.
    pub(crate) is_whole: bool,
}

/// A table or view of the database.
#[derive(Debug)]
pub(crate) struct Table {
    columns: HashSet<String>,
    /// Columns that are the table's key and its rowid.
    key: Option<String>,
    pub(crate) rows: Rows,
}

/// How the rows of a table are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rows {
    /// There are none.
    None,
    /// By rowid, of which these are the least and the greatest.
    ByRowid(i64, i64),
    /// One after another, as in views and in tables without rowids.
    InOrder,
    /// By rowid, up to a damaged page: not even the first and the last could be found.
    Damaged,
}

impl Table {
    /// Whether it has a column.
    pub(crate) fn has(&self, column: &str) -> bool {
        self.columns.contains(column)
    }

    /// Whether rowids are the numbers of a column, which can be far apart.
    pub(crate) fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// Whether rows are found by this column without a scan.
    pub(crate) fn is_key(&self, column: &str) -> bool {
        self.key.as_deref() == Some(column)
    }
}

impl Catalog {
    /// Probes every table; those of `versions` are read under their plain names alone.
    pub(crate) fn read(connection: &Connection, versions: &[Version]) -> Result<Self> {
        let mut catalog = Self::recorded(connection)?;
        for version in versions {
            catalog.tables.remove(&version.table);
            let view = Table::probe(connection, &version.plain, true);
            catalog.tables.insert(version.plain.clone(), view);
        }
        Ok(catalog)
    }

    fn recorded(connection: &Connection) -> Result<Self> {
        let sql = "SELECT name, type = 'view', sql LIKE '%recursive%' FROM sqlite_master \
                   WHERE type IN ('table', 'view') ORDER BY rowid";
        let mut statement = connection.prepare(sql).map_err(|e| explain(&e))?;
        let mut names = statement.query([]).map_err(|e| explain(&e))?;
        let mut catalog = Self { tables: HashMap::new(), is_whole: true };
        loop {
            match names.next() {
                Ok(Some(row)) => {
                    let Ok(name) = row.get::<_, String>(0) else {
                        catalog.is_whole = false;
                        continue;
                    };
                    let (is_view, is_recursive) = (row.get(1).unwrap_or(false), row.get(2).unwrap_or(false));
                    // Such a view may have no end.
                    let is_endless = is_view && is_recursive;
                    let table =
                        if is_endless { Table::new() } else { Table::probe(connection, &name, is_view) };
                    catalog.tables.insert(name, table);
                }
                Ok(None) => return Ok(catalog),
                Err(_) => {
                    catalog.is_whole = false;
                    return Ok(catalog);
                }
            }
        }
    }

    /// A table, if the database has it.
    pub(crate) fn table(&self, name: &str) -> Option<&Table> {
        self.tables.get(name)
    }

    /// What puts the rows of a table into order, if anything does.
    pub(crate) fn order(&self, name: &str) -> &'static str {
        let is_keyed = self.table(name).is_some_and(|table| table.rows != Rows::InOrder);
        if is_keyed { "ORDER BY rowid" } else { "" }
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

impl Table {
    /// A table of which nothing can be read.
    fn new() -> Self {
        Self { columns: HashSet::new(), key: None, rows: Rows::Damaged }
    }

    /// Finds out about a table or view.
    fn probe(connection: &Connection, name: &str, is_view: bool) -> Self {
        let mut table = Self::new();
        if table.find_columns(connection, name).is_ok() {
            table.rows = find_rows(connection, name, is_view);
        }
        table
    }

    fn find_columns(&mut self, connection: &Connection, name: &str) -> rusqlite::Result<()> {
        let mut statement = connection.prepare("SELECT name, type, pk FROM pragma_table_info(?1)")?;
        let mut rows = statement.query([name])?;
        let mut keys = Vec::new();
        while let Some(row) = rows.next()? {
            let column: String = row.get(0)?;
            if row.get::<_, i64>(2)? > 0 {
                keys.push((column.clone(), row.get::<_, String>(1)?));
            }
            self.columns.insert(column);
        }
        if let [(column, kind)] = keys.as_slice()
            && kind.eq_ignore_ascii_case("integer")
        {
            self.key = Some(column.clone());
        }
        Ok(())
    }
}

fn find_rows(connection: &Connection, name: &str, is_view: bool) -> Rows {
    let first = |what: &str| {
        let sql = format!("SELECT {what} FROM {} LIMIT 1", quoted(name));
        connection.query_row(&sql, [], |row| row.get::<_, Option<i64>>(0))
    };
    if is_view || connection.prepare(&format!("SELECT rowid FROM {}", quoted(name))).is_err() {
        return match first("1") {
            Err(rusqlite::Error::QueryReturnedNoRows) => Rows::None,
            _ => Rows::InOrder,
        };
    }
    // Each bound alone is one step down the table's tree; both in one query would be a scan.
    match (first("min(rowid)"), first("max(rowid)")) {
        (Ok(Some(least)), Ok(Some(greatest))) => Rows::ByRowid(least, greatest),
        (Ok(None), Ok(None)) => Rows::None,
        _ => Rows::Damaged,
    }
}
