//! Writes the traced program as a database: every rank is a process of one recording.
//!
//! The operators become the ranges that PyTorch's `emit_nvtx` pushes, with sequence number, id and sizes
//! in the text. All processes count correlation ids from the same number, as real ones do, so that ids of
//! different processes meet.

mod event;
mod nsys;
mod nvprof;
mod truth;

pub use truth::{DatabaseKind, DatabaseTruth, ProcessTruth};

use std::fs;
use std::io;
use std::path::Path;

use rusqlite::Connection;

use crate::library::Library;
use crate::model::{Config, build};
use crate::options::DemoOptions;
use crate::rank::{check, finish, play_steps, process, timeline, write_complete};
use crate::timeline::MOVED;
use event::{Event, Tables};
use nsys::Nsys;
use nvprof::Nvprof;

/// When the job begins, after the start of the recording.
const JOB_START_NS: i64 = 2_345_678_901;

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
        let mut truth = write_ranks(path, kind, options, progress)?;
        truth.file_bytes = fs::metadata(path)?.len();
        Ok(truth)
    })
}

fn write_ranks(
    path: &Path,
    kind: DatabaseKind,
    options: &DemoOptions,
    progress: &mut dyn FnMut(u64) -> bool,
) -> io::Result<DatabaseTruth> {
    let connection = Connection::open(path).map_err(io::Error::other)?;
    // The file is complete or it is nothing: there is no state to come back to.
    let pragmas = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -8192; BEGIN";
    connection.execute_batch(pragmas).map_err(io::Error::other)?;
    let mut tables: Box<dyn Tables + '_> = match kind {
        DatabaseKind::Nsys => Box::new(Nsys::new(&connection, options.ranks).map_err(io::Error::other)?),
        DatabaseKind::Nvprof => Box::new(Nvprof::new(&connection).map_err(io::Error::other)?),
    };
    let mut truth = DatabaseTruth::new(kind, options);
    let mut steps = options.steps;
    let mut end_ns = 0;
    for rank in 0..options.ranks {
        let size_bytes = options.size_bytes / u64::from(options.ranks) * u64::from(rank + 1);
        let options = DemoOptions { rank, steps, layers: Some(options.layer_count()), ..options.clone() };
        let (process, rank_end_ns) = write_rank(&options, size_bytes, &connection, &mut *tables, progress)?;
        steps = Some(process.truth.steps.len() as u64);
        end_ns = end_ns.max(rank_end_ns);
        truth.processes.push(process);
    }
    tables.end(end_ns + 1_000_000).map_err(io::Error::other)?;
    drop(tables);
    connection.execute_batch("COMMIT").map_err(io::Error::other)?;
    connection.close().map_err(|(_, error)| io::Error::other(error))?;
    Ok(truth)
}

/// Writes one rank, until the file has `size_bytes`; returns its truth and when it ends.
fn write_rank(
    options: &DemoOptions,
    size_bytes: u64,
    connection: &Connection,
    tables: &mut dyn Tables,
    progress: &mut dyn FnMut(u64) -> bool,
) -> io::Result<(ProcessTruth, i64)> {
    let process = process(options);
    let library = Library::new(options.layout, process).with_shapes();
    let model = build(Config::new(options.layer_count(), options.ranks), library);
    let events: Vec<Event> = model.library.shapes.iter().flatten().map(Event::of).collect();
    let mut timeline = timeline(options, &model, JOB_START_NS);
    tables.begin(process).map_err(io::Error::other)?;
    play_steps(options, size_bytes, &model, &mut timeline, progress, |records| {
        for record in records.in_order().filter(|record| record.template != MOVED) {
            let event = events.get(record.template as usize).unwrap_or(&Event::Other);
            tables.event(process, event, record).map_err(io::Error::other)?;
        }
        file_size(connection).map_err(io::Error::other)
    })?;
    let end_ns = timeline.now_ns().max(timeline.gpu_end_ns());
    Ok((ProcessTruth::new(process.pid, finish(options, &model, timeline)), end_ns))
}

/// Bytes of the file so far.
fn file_size(connection: &Connection) -> rusqlite::Result<u64> {
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let bytes = number("PRAGMA page_count")? * number("PRAGMA page_size")?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}
