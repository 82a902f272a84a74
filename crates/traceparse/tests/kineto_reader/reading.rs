//! Reads small traces that tests hold as text.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use traceparse::schema::Tables;
use traceparse::{Code, Error, Meta, ReadOptions, Stats, Trace, read};

/// Tables with one row per event of the file; `counters` can have several.
const EVENT_TABLES: &str = "ops launches gpu_ops untimed_gpu_ops untimed_events python ranges gpu_annotations syncs memory \
    counters instants flows spans metadata";

/// A file that is removed in the end.
pub(crate) struct TraceFile(PathBuf);

impl TraceFile {
    pub(crate) fn new(content: impl AsRef<[u8]>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("kineto-{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&path, content).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Everything that was read from a file.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) tables: Vec<(&'static str, RecordBatch)>,
    pub(crate) stats: Stats,
    pub(crate) meta: Meta,
}

impl PartialEq for Reading {
    fn eq(&self, other: &Self) -> bool {
        let own = (&self.tables, &self.stats, &self.meta.properties, self.meta.base_time_ns);
        own == (&other.tables, &other.stats, &other.meta.properties, other.meta.base_time_ns)
    }
}

impl From<Trace> for Reading {
    fn from(trace: Trace) -> Self {
        Self { tables: trace.tables.into_batches(&trace.symbols), stats: trace.stats, meta: trace.meta }
    }
}

impl Reading {
    /// The rows of a table as text, with these columns; a batch lacks those without any value.
    pub(crate) fn rows(&self, table: &str, columns: &str) -> Vec<String> {
        let batch = self.table(table);
        let described = Tables::describe();
        let (_, _, known) = described.iter().find(|(name, ..)| *name == table).expect(table);
        let columns: Vec<_> = columns.split(' ').collect();
        assert!(columns.iter().all(|name| known.iter().any(|column| column.name == *name)), "{columns:?}");
        let cell = |name: &str, row| {
            batch.column_by_name(name).map_or_else(|| "-".to_owned(), |column| cell(column.as_ref(), row))
        };
        let row = |row| columns.iter().map(|name| cell(name, row)).collect::<Vec<_>>().join(" | ");
        (0..batch.num_rows()).map(row).collect()
    }

    pub(crate) fn table(&self, name: &str) -> &RecordBatch {
        &self.tables.iter().find(|(table, _)| *table == name).expect(name).1
    }

    /// Names and numbers of rows of the tables of events that have any.
    pub(crate) fn sizes(&self) -> Vec<(&'static str, usize)> {
        let sizes = self.tables.iter().map(|(name, batch)| (*name, batch.num_rows()));
        sizes
            .filter(|(name, rows)| *rows > 0 && EVENT_TABLES.split(' ').any(|known| known == *name))
            .collect()
    }

    /// The first table in which two readings differ.
    pub(crate) fn difference<'a>(&'a self, other: &'a Self) -> Option<(&'a RecordBatch, &'a RecordBatch)> {
        let mut pairs = self.tables.iter().zip(&other.tables);
        pairs.find(|(a, b)| a != b).map(|(a, b)| (&a.1, &b.1))
    }

    /// How often something was found.
    pub(crate) fn count(&self, code: Code) -> u64 {
        self.stats.get(code).map_or(0, |finding| finding.count)
    }

    /// Names of what the reader found; the codes of the link stage come last.
    pub(crate) fn findings(&self) -> Vec<&'static str> {
        let found = self.stats.findings().filter(|(code, _)| *code <= Code::UnpaddedFraction);
        found.map(|(code, _)| code.name()).collect()
    }

    /// Seen, kept and dropped.
    pub(crate) fn events(&self) -> (u64, u64, u64) {
        (self.stats.seen, self.stats.kept, self.stats.dropped)
    }

    /// Every event is in one table or was counted as dropped.
    pub(crate) fn check_accounts(&self) {
        assert_eq!(self.stats.seen, self.stats.kept + self.stats.dropped);
        let mut rows: BTreeSet<u32> = BTreeSet::new();
        for table in EVENT_TABLES.split(' ') {
            let Some(column) = self.table(table).column_by_name("row") else { continue };
            let column = column.as_primitive::<UInt32Type>().values();
            let own: BTreeSet<u32> = column.iter().copied().collect();
            assert!(own.len() == column.len() || table == "counters", "{table} has a row twice");
            assert!(own.iter().all(|row| u64::from(*row) < self.stats.seen), "{table} has too high a row");
            let before = rows.len();
            rows.extend(&own);
            assert_eq!(rows.len(), before + own.len(), "a row of {table} is in another table too");
        }
        assert_eq!(rows.len() as u64, self.stats.kept);
    }
}

fn cell(column: &dyn Array, row: usize) -> String {
    if column.is_null(row) {
        return "-".to_owned();
    }
    match column.data_type() {
        DataType::UInt32 => column.as_primitive::<UInt32Type>().value(row).to_string(),
        DataType::UInt64 => column.as_primitive::<UInt64Type>().value(row).to_string(),
        DataType::Int32 => column.as_primitive::<Int32Type>().value(row).to_string(),
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::Float64 => column.as_primitive::<Float64Type>().value(row).to_string(),
        DataType::Boolean => column.as_boolean().value(row).to_string(),
        _ => {
            let texts = column.as_dictionary::<UInt32Type>();
            let text = texts.keys().value(row) as usize;
            texts.values().as_string::<i32>().value(text).to_owned()
        }
    }
}

/// Reads `content`, which must be a trace, and checks that no event is unaccounted for.
pub(crate) fn reading(content: impl AsRef<[u8]>) -> Reading {
    let reading = reading_with(content, &ReadOptions::default()).unwrap();
    reading.check_accounts();
    reading
}

/// Reads `content` with options.
pub(crate) fn reading_with(content: impl AsRef<[u8]>, options: &ReadOptions) -> Result<Reading, Error> {
    reading_of(TraceFile::new(content).path(), options)
}

/// Reads a file with options.
pub(crate) fn reading_of(path: &Path, options: &ReadOptions) -> Result<Reading, Error> {
    read(path, options).map(Reading::from)
}

/// Reads `events`, separated by commas, inside a document.
pub(crate) fn reading_events(events: impl AsRef<[u8]>) -> Reading {
    reading(document(events))
}

/// A document around `events`.
pub(crate) fn document(events: impl AsRef<[u8]>) -> Vec<u8> {
    [br#"{"schemaVersion": 1, "traceEvents": ["#, events.as_ref(), br#"], "traceName": "t.json"}"#].concat()
}

/// Options for reading in pieces.
pub(crate) fn pieces(chunk_bytes: usize, threads: usize) -> ReadOptions {
    ReadOptions { chunk_bytes: Some(chunk_bytes), threads: Some(threads), ..ReadOptions::default() }
}

/// An operator named `name`, which must be valid inside a string.
pub(crate) fn op(name: &str) -> String {
    format!(r#"{{"ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 7, "tid": 8, "ts": 1.5, "dur": 2}}"#)
}
