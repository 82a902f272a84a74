//! Reads a whole database.

use rusqlite::Connection;
use serde_json::{Map, Value, json};

use super::ends::Ends;
use super::recording::{Recording, Source};
use super::{calls, gpu_ops, machine, markers};
use crate::error::Result;
use crate::formats::format::{Format, OpenDatabase, Opened};
use crate::formats::sqlite::builder::Shared;
use crate::formats::sqlite::catalog::Catalog;
use crate::formats::sqlite::plan::Plan;
use crate::formats::sqlite::scan::{Order, Reading};
use crate::options::ReadOptions;
use crate::stats::Code;
use crate::trace::{Meta, Trace};

/// Every table that is read, in the order in which rows are numbered.
static SOURCES: [&Source; 11] = [
    &gpu_ops::CONCURRENT,
    &gpu_ops::SERIAL,
    &gpu_ops::WITHIN,
    &gpu_ops::BETWEEN,
    &gpu_ops::MEMSETS,
    &calls::RUNTIME,
    &calls::DRIVER,
    &calls::SYNCS,
    &markers::MARKERS,
    &machine::OVERHEADS,
    &machine::DEVICES,
];

/// Tables that are read and hold no rows of their own.
const BESIDE: [&str; 3] = ["StringTable", "Version", "sqlite_sequence"];

/// Databases that nvprof writes.
pub(crate) struct Nvprof;

impl Format for Nvprof {
    fn name(&self) -> &'static str {
        "nvprof"
    }

    fn takes(&self, file: &Opened<'_>) -> bool {
        let Some(catalog) = file.catalog() else { return false };
        let has = |name: &str| catalog.table(name).is_some();
        has("StringTable") && SOURCES.iter().any(|source| has(source.name))
    }

    fn read(&self, file: Opened<'_>, options: &ReadOptions) -> Result<Trace> {
        read(file.into_database()?, options)
    }

    fn reads_columns(&self) -> bool {
        true
    }
}

fn read(file: OpenDatabase, options: &ReadOptions) -> Result<Trace> {
    let OpenDatabase { database, connection, catalog, mut stats } = file;
    let ends = options.wants("ranges").then(|| Ends::read(&connection, &catalog, &mut stats));
    let recording = Recording { pid: only_process(&connection, &catalog), ends: ends.unwrap_or_default() };
    let sources = SOURCES.into_iter().filter(|source| options.wants(source.feeds));
    // Every table is created: without rows it says that nothing of it happened or was recorded.
    let none = |(), is_there| Some(if is_there { Code::CapturedEmpty } else { Code::TableAbsent });
    let plan = Plan::new(sources, &catalog, none, options, &mut stats);
    let shared = Shared::default();
    let reading = Reading { database: &database, catalog: &catalog, plan: &plan, shared: &shared, options };
    let order = reading.scan(&recording, 0..plan.runs.len(), Order::default())?;
    stats.merge(&order.stats);
    let mut tables = order.tables;
    let (symbols, mut tracks) = shared.into_parts();
    tables.renumber_tracks(&tracks.sort(&symbols));
    let mut properties = Map::new();
    if let Some(version) = version(&connection, &catalog) {
        properties.insert("nvprof_file_version".to_owned(), json!(version));
    }
    let described = plan.describe(&connection, &catalog, |name| BESIDE.contains(&name), &mut stats);
    properties.insert("tables".to_owned(), Value::Object(described));
    let meta = Meta {
        compression: "none",
        file_bytes: database.file_bytes,
        content_bytes: database.file_bytes,
        properties,
        ..Meta::default()
    };
    Ok(Trace { meta, tables, symbols, tracks, stats, capture: None, merged: None })
}

/// The version of the file.
fn version(connection: &Connection, catalog: &Catalog) -> Option<i64> {
    catalog.has("Version", &["version"]).then_some(())?;
    connection.query_row("SELECT version FROM Version", [], |row| row.get(0)).ok()
}

/// The process that made the calls, if it is one.
fn only_process(connection: &Connection, catalog: &Catalog) -> Option<i64> {
    let mut found = None;
    for table in [calls::RUNTIME.name, calls::DRIVER.name] {
        if !catalog.has(table, &["processId"]) {
            continue;
        }
        let sql =
            format!("SELECT DISTINCT processId FROM {table} WHERE typeof(processId) = 'integer' LIMIT 2");
        let mut statement = connection.prepare(&sql).ok()?;
        let ids: Vec<i64> = statement.query_map([], |row| row.get(0)).ok()?.flatten().collect();
        for id in ids {
            if found.is_some_and(|known| known != id) {
                return None;
            }
            found = Some(id);
        }
    }
    found
}
