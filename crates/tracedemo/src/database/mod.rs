//! Writes the traced program as a database: every rank is a process of one recording.
//!
//! The operators become the ranges that PyTorch's `emit_nvtx` pushes, with sequence number, id and sizes
//! in the text. All processes count correlation ids from the same number, as real ones do, so that ids of
//! different processes meet.

mod nsys;
mod nvprof;
mod rows;

use std::fs;
use std::io;
use std::path::Path;

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::cohort::{Cohort, play_steps};
use crate::model::build;
use crate::options::DemoOptions;
use crate::rank::{check, finish, process, timeline, write_complete};
use crate::timeline::MOVED;
use crate::truth::Truth;
pub(crate) use nsys::SCHEMA as NSYS_SCHEMA;
use rows::{Database, Rows};

/// When the job begins, after the start of the recording.
const JOB_START_NS: i64 = 2_345_678_901;

/// Which recorder's database is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseKind {
    /// Nsight Systems, as `nsys export --type sqlite` writes it, schema 3.24.
    Nsys,
    /// nvprof, as `nvprof -o` writes it.
    Nvprof,
}

impl DatabaseKind {
    /// Every kind.
    pub const ALL: [Self; 2] = [Self::Nsys, Self::Nvprof];

    /// Name of the kind in options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nsys => "nsys",
            Self::Nvprof => "nvprof",
        }
    }
}

/// The truth of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessTruth {
    /// Process id.
    pub pid: i64,
    /// What is true of its rank. Of the JSON there is nothing to say.
    pub truth: Truth,
}

impl ProcessTruth {
    /// NVTX ranges of the process.
    #[must_use]
    pub fn ranges(&self) -> u64 {
        let calls = self.truth.ops.values().chain(self.truth.annotations.values());
        calls.map(|totals| totals.calls).sum()
    }

    fn to_json(&self) -> Value {
        /// What is said of the whole file, or of JSON alone.
        const LEFT_OUT: [&str; 8] = [
            "truth_version",
            "layout",
            "json_bytes",
            "events",
            "events_by_kind",
            "tables",
            "forward_backward_pairs",
            "peak_device_bytes",
        ];
        let mut object = self.truth.to_json();
        if let Some(object) = object.as_object_mut() {
            for key in LEFT_OUT {
                object.remove(key);
            }
            object.insert("pid".to_owned(), self.pid.into());
            object.insert("ranges".to_owned(), self.ranges().into());
        }
        object
    }
}

/// The truth of a database. All times are in nanoseconds of its clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseTruth {
    /// The recorder.
    pub kind: &'static str,
    /// Seed of the options.
    pub seed: u64,
    /// Size of the file.
    pub file_bytes: u64,
    /// The processes, in order of rank.
    pub processes: Vec<ProcessTruth>,
}

impl DatabaseTruth {
    /// The truth as a JSON object.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "truth_version": 1,
            "kind": self.kind,
            "seed": self.seed,
            "file_bytes": self.file_bytes,
            "processes": self.processes.iter().map(ProcessTruth::to_json).collect::<Vec<_>>(),
        })
    }
}

/// Writes a database of about `options.size_bytes` at `path` and returns what is true of it.
///
/// All ranks are processes of the one file and have as many steps each; `options.rank`, `layout` and
/// `gzip` are not used. The file is written under a name that ends in `.tmp` and takes its own when it is
/// complete. `progress` is called with the bytes so far; false stops.
///
/// # Errors
/// `InvalidInput` for options that [`DemoOptions::check`] refuses, `Interrupted` when `progress` stops,
/// and what the file system reports.
pub fn write_database(
    path: &Path,
    kind: DatabaseKind,
    options: &DemoOptions,
    progress: &mut dyn FnMut(u64) -> bool,
) -> io::Result<DatabaseTruth> {
    check(options)?;
    if kind == DatabaseKind::Nvprof && options.ranks > 1 {
        let message = "nvprof records each process into a file of its own: ranks must be 1";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    write_complete(path, |path| {
        let processes = write_ranks(path, kind, options, progress)?;
        let file_bytes = fs::metadata(path)?.len();
        Ok(DatabaseTruth { kind: kind.name(), seed: options.seed, file_bytes, processes })
    })
}

fn write_ranks(
    path: &Path,
    kind: DatabaseKind,
    options: &DemoOptions,
    progress: &mut dyn FnMut(u64) -> bool,
) -> io::Result<Vec<ProcessTruth>> {
    let connection = Connection::open(path).map_err(io::Error::other)?;
    // The file is complete or it is nothing: there is no state to come back to.
    let pragmas = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -8192; BEGIN";
    connection.execute_batch(pragmas).map_err(io::Error::other)?;
    let recorder = match kind {
        DatabaseKind::Nsys => nsys::NSYS,
        DatabaseKind::Nvprof => nvprof::NVPROF,
    };
    let mut database = Database::new(&connection, &recorder).map_err(io::Error::other)?;
    let mut processes: Vec<ProcessTruth> = Vec::new();
    let mut end_ns = 0;
    let model = build(options.layer_count(), process(options), options.cause);
    let mut cohort = Cohort::of(options, &model);
    for rank in 0..options.ranks {
        let size_bytes = options.size_bytes / u64::from(options.ranks) * u64::from(rank + 1);
        let steps = options.steps.or(processes.first().map(|first| first.truth.steps.len() as u64));
        let options = DemoOptions { rank, steps, layers: Some(options.layer_count()), ..options.clone() };
        let (process, rank_end_ns) =
            write_rank(&options, size_bytes, &connection, &mut database, cohort.as_mut(), progress)?;
        end_ns = end_ns.max(rank_end_ns);
        processes.push(process);
    }
    database.write_once(process(options), "end", end_ns + 1_000_000).map_err(io::Error::other)?;
    drop(database);
    connection.execute_batch("COMMIT").map_err(io::Error::other)?;
    connection.close().map_err(|(_, error)| io::Error::other(error))?;
    Ok(processes)
}

/// Writes one rank, until the file has `size_bytes`; returns its truth and when it ends.
fn write_rank(
    options: &DemoOptions,
    size_bytes: u64,
    connection: &Connection,
    database: &mut Database<'_>,
    cohort: Option<&mut Cohort<'_>>,
    progress: &mut dyn FnMut(u64) -> bool,
) -> io::Result<(ProcessTruth, i64)> {
    let process = process(options);
    let model = build(options.layer_count(), process, options.cause);
    let shapes = model.library.shapes();
    // Texts are numbered when the first event needs them.
    let mut rows: Vec<Option<Rows>> = shapes.iter().map(|_| None).collect();
    let mut timeline = timeline(options, &model, JOB_START_NS);
    database.write_once(process, "process", 0).map_err(io::Error::other)?;
    play_steps(options, size_bytes, &mut timeline, cohort, progress, |records| {
        for record in records.in_order().filter(|record| record.shape != MOVED) {
            let (shape, rows) = (&shapes[record.shape as usize], &mut rows[record.shape as usize]);
            let rows = match rows {
                Some(rows) => rows,
                None => rows.insert(database.rows(process, shape).map_err(io::Error::other)?),
            };
            database.write(rows, shape, record).map_err(io::Error::other)?;
        }
        file_size(connection).map_err(io::Error::other)
    })?;
    let end_ns = timeline.now_ns().max(timeline.gpu_end_ns());
    Ok((ProcessTruth { pid: process.pid, truth: finish(options, timeline) }, end_ns))
}

/// Bytes of the file so far.
fn file_size(connection: &Connection) -> rusqlite::Result<u64> {
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let bytes = number("PRAGMA page_count")? * number("PRAGMA page_size")?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}
