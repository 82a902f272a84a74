//! Reads a whole database, table by table.

use hashbrown::HashMap;
use rusqlite::Connection;
use serde_json::{Map, Value, json};
use std::path::Path;

use super::markers::Ends;
use super::source::Source;
use super::strings::Strings;
use super::{calls, copies, kernels, machine, markers, syncs};
use crate::error::{Error, ErrorKind, Result};
use crate::options::ReadOptions;
use crate::schema::{Symbol, SymbolTable, Tables};
use crate::sqlite::catalog::Catalog;
use crate::sqlite::cells::Cells;
use crate::sqlite::open::Database;
use crate::stats::{Code, Stats};
use crate::trace::{Meta, Trace};
use crate::tracks::{Ident, TrackTable};

/// Every table that is read, in the order in which rows are numbered.
static SOURCES: [&Source; 11] = [
    &kernels::CONCURRENT,
    &kernels::SERIAL,
    &copies::memcpy::WITHIN,
    &copies::memcpy::BETWEEN,
    &copies::memset::SOURCE,
    &calls::RUNTIME,
    &calls::DRIVER,
    &syncs::SOURCE,
    &markers::SOURCE,
    &machine::overhead::SOURCE,
    &machine::DEVICES,
];

/// Tables that are read and hold no rows of their own.
const BESIDE: [&str; 3] = ["StringTable", "Version", "sqlite_sequence"];

/// What turns rows of the database into rows of the trace.
pub(super) struct Builder<'c> {
    pub(super) strings: Strings<'c>,
    pub(super) symbols: SymbolTable,
    pub(super) tables: Tables,
    /// The process that was recorded; null where several were.
    pub(super) pid: Option<i64>,
    pub(super) ends: Ends,
    pub(super) file_bytes: u64,
    tracks: TrackTable,
    triples: HashMap<[i64; 3], Symbol>,
    rows: u32,
}

impl Builder<'_> {
    /// The number of the next row.
    pub(super) fn next_row(&mut self) -> u32 {
        let row = self.rows;
        self.rows = self.rows.saturating_add(1);
        row
    }

    /// The text that a cell refers to by number.
    pub(super) fn text(&mut self, cells: &mut Cells<'_, '_>, cell: usize) -> Option<Symbol> {
        self.strings.cell(&mut self.symbols, cells, cell)
    }

    /// The track of a process and thread.
    pub(super) fn track(&mut self, process: Option<i64>, thread: Option<i64>) -> u32 {
        let ident = |id: Option<i64>| id.map_or(Ident::Missing, Ident::Int);
        self.tracks.number((ident(process), ident(thread)))
    }

    /// Three numbers as JSON text.
    pub(super) fn triple(&mut self, cells: &mut Cells<'_, '_>, from: [usize; 3]) -> Option<Symbol> {
        let [x, y, z] = from.map(|cell| cells.int(cell));
        let triple = [x?, y?, z?];
        let Self { triples, symbols, .. } = self;
        let intern = || symbols.intern(&format!("[{}, {}, {}]", triple[0], triple[1], triple[2]));
        Some(*triples.entry(triple).or_insert_with(intern))
    }
}

/// A thread id: 32 bits without a sign, which older versions store with one.
pub(super) fn thread_of(id: i64) -> i64 {
    id & i64::from(u32::MAX)
}

/// Whether the database at `path` is one of nvprof; false also where it cannot be opened.
pub(crate) fn is_nvprof(path: &Path) -> bool {
    let catalog = Database::open(path, &mut Stats::default())
        .and_then(|database| database.connect())
        .and_then(|connection| Catalog::read(&connection));
    catalog.is_ok_and(|catalog| {
        catalog.table("StringTable").is_some()
            && SOURCES.iter().any(|source| catalog.table(source.name).is_some())
    })
}

/// Reads the database at `path`.
pub(crate) fn read(path: &Path, options: &ReadOptions) -> Result<Trace> {
    let mut stats = Stats::default();
    let database = Database::open(path, &mut stats)?;
    let connection = database.connect()?;
    let catalog = Catalog::read(&connection)?;
    let mut symbols = SymbolTable::default();
    let strings = Strings::new(&connection, &catalog, &mut symbols);
    let ends =
        if options.wants("ranges") { Ends::read(&connection, &catalog, &mut stats) } else { Ends::default() };
    let mut builder = Builder {
        strings,
        symbols,
        tables: Tables::default(),
        pid: only_process(&connection, &catalog),
        ends,
        file_bytes: database.file_bytes,
        tracks: TrackTable::default(),
        triples: HashMap::new(),
        rows: 0,
    };
    for source in SOURCES {
        if options.wants(source.feeds) {
            note_absence(&catalog, source, &mut stats);
            source.scan(&connection, &catalog, &mut builder, &mut stats, options)?;
        }
    }
    let properties = properties(&connection, &catalog, options, &mut stats);
    let Builder { symbols, mut tables, mut tracks, .. } = builder;
    tables.renumber_tracks(&tracks.sort(&symbols));
    if stats.seen == 0 {
        stats.note(Code::NoEvents, None);
    }
    if options.strict {
        refuse_loss(&stats)?;
    }
    let meta = Meta {
        format: "nvprof",
        compression: "none",
        file_bytes: database.file_bytes,
        content_bytes: database.file_bytes,
        base_time_ns: None,
        properties,
    };
    Ok(Trace { meta, tables, symbols, tracks, stats })
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

/// nvprof creates every table, so that one without rows says that nothing of it happened or was recorded.
fn note_absence(catalog: &Catalog, source: &Source, stats: &mut Stats) {
    match catalog.table(source.name) {
        None => stats.note_in(Code::TableAbsent, source.name, None),
        Some(table) if table.rowids.is_none() => stats.note_in(Code::CapturedEmpty, source.name, None),
        Some(_) => {}
    }
}

/// The version of the file, and every table with rows and whether it is read.
fn properties(
    connection: &Connection,
    catalog: &Catalog,
    options: &ReadOptions,
    stats: &mut Stats,
) -> Map<String, Value> {
    let mut properties = Map::new();
    if catalog.has("Version", &["version"]) {
        let version = connection.query_row("SELECT version FROM Version", [], |row| row.get::<_, i64>(0));
        if let Ok(version) = version {
            properties.insert("nvprof_file_version".to_owned(), json!(version));
        }
    }
    let mut tables: Vec<_> =
        catalog.tables().filter_map(|(name, table)| Some((name, table.rowids?))).collect();
    tables.sort_unstable();
    let mut described = Map::new();
    let mut unread = 0;
    for (name, rowids) in tables {
        let source = SOURCES.iter().find(|source| source.name == name);
        let is_read = source.is_some_and(|source| options.wants(source.feeds)) || BESIDE.contains(&name);
        unread += u64::from(!is_read && source.is_none());
        described.insert(name.to_owned(), json!({ "read": is_read, "last_rowid": rowids.1 }));
    }
    stats.note_many(Code::UnreadTable, unread, None);
    properties.insert("tables".to_owned(), Value::Object(described));
    properties
}

fn refuse_loss(stats: &Stats) -> Result<()> {
    let Some((code, finding)) = stats.first_loss() else { return Ok(()) };
    let place = finding.place();
    let place = if place.is_empty() { place } else { format!(" ({place})") };
    Err(Error::new(ErrorKind::Strict, format!("{}{place}", code.message())))
}
