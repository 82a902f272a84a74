//! Writes the traced program as a database: every rank is a process of one recording.
//!
//! The operators become the ranges that PyTorch's `emit_nvtx` pushes, with sequence number, id and sizes
//! in the text. All processes count correlation ids from the same number, as real ones do, so that ids of
//! different processes meet.

mod event;
mod nsys;
mod nvprof;
mod truth;

pub use truth::{DatabaseTruth, ProcessTruth};

use std::fs;
use std::io;
use std::path::Path;

use rusqlite::Connection;

use crate::library::{Library, Process};
use crate::model::{BuiltModel, Config, build};
use crate::options::DemoOptions;
use crate::template::Record;
use crate::timeline::{MOVED, Timeline};
use crate::trace::{FIRST_STEP, process, schedule, start, variation};
use crate::truth::Truth;
use event::Event;

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

/// When the job begins, after the start of the recording.
const JOB_START_NS: i64 = 2_345_678_901;

/// Turns events into rows of one recorder's tables.
trait Tables {
    /// Writes what stands beside the events of a process, before them.
    fn begin(&mut self, process: Process) -> rusqlite::Result<()>;
    /// Writes an event.
    fn event(&mut self, process: Process, event: &Event, record: &Record) -> rusqlite::Result<()>;
    /// Writes what is known at the end.
    fn end(&mut self, end_ns: i64) -> rusqlite::Result<()>;
}

/// Writes a database of about `options.size_bytes` at `path` and returns what is true of it.
///
/// All ranks are processes of the one file and have as many steps each; `options.rank`, `layout` and
/// `gzip` are not used. The file is written under a name that ends in `.tmp` and takes its own when it is
/// complete. `progress` is told the bytes so far; false stops.
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
    options.check().map_err(|message| io::Error::new(io::ErrorKind::InvalidInput, message))?;
    if kind == DatabaseKind::Nvprof && options.ranks > 1 {
        let message = "nvprof records each process into a file of its own: ranks must be 1";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let mut waiting = path.as_os_str().to_owned();
    waiting.push(".tmp");
    let waiting = Path::new(&waiting);
    if waiting.exists() {
        fs::remove_file(waiting)?;
    }
    let written = write_all(waiting, kind, options, progress);
    match written {
        Ok(mut truth) => {
            truth.file_bytes = fs::metadata(waiting)?.len();
            fs::rename(waiting, path)?;
            Ok(truth)
        }
        Err(error) => {
            // What went wrong first is what the caller must know.
            drop(fs::remove_file(waiting));
            Err(error)
        }
    }
}

fn write_all(
    path: &Path,
    kind: DatabaseKind,
    options: &DemoOptions,
    progress: &mut dyn FnMut(u64) -> bool,
) -> io::Result<DatabaseTruth> {
    let connection = Connection::open(path).map_err(io::Error::other)?;
    // The file is complete or it is nothing: there is no state to come back to.
    connection
        .execute_batch(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -8192; BEGIN",
        )
        .map_err(io::Error::other)?;
    let mut tables: Box<dyn Tables + '_> = match kind {
        DatabaseKind::Nsys => {
            Box::new(nsys::Nsys::new(&connection, options.ranks).map_err(io::Error::other)?)
        }
        DatabaseKind::Nvprof => Box::new(nvprof::Nvprof::new(&connection).map_err(io::Error::other)?),
    };
    let mut truth = DatabaseTruth::new(kind, options);
    let mut steps = options.steps;
    let mut end_ns = 0;
    for rank in 0..options.ranks {
        let target = options.size_bytes / u64::from(options.ranks) * u64::from(rank + 1);
        let options = DemoOptions { rank, steps, layers: Some(options.layer_count()), ..options.clone() };
        let mut job = Job { options: &options, connection: &connection, tables: &mut *tables, target };
        let (process, truth_of_rank, rank_end_ns) = job.write(progress)?;
        steps = Some(truth_of_rank.steps.len() as u64);
        end_ns = end_ns.max(rank_end_ns);
        truth.processes.push(ProcessTruth::new(process.pid, truth_of_rank));
    }
    tables.end(end_ns + 1_000_000).map_err(io::Error::other)?;
    drop(tables);
    connection.execute_batch("COMMIT").map_err(io::Error::other)?;
    connection.close().map_err(|(_, error)| io::Error::other(error))?;
    Ok(truth)
}

/// One rank on its way into the file.
struct Job<'j> {
    options: &'j DemoOptions,
    connection: &'j Connection,
    tables: &'j mut dyn Tables,
    /// Size of the file at which the rank has enough steps.
    target: u64,
}

impl Job<'_> {
    fn write(&mut self, progress: &mut dyn FnMut(u64) -> bool) -> io::Result<(Process, Truth, i64)> {
        let options = self.options;
        let process = process(options);
        let config = Config::new(options.layer_count(), options.ranks);
        let model = build(config, Library::new(options.layout, process).with_shapes());
        let events: Vec<Event> = model.library.shapes.iter().flatten().map(Event::of).collect();
        let schedule = schedule(options, &model, JOB_START_NS);
        let start = start(options, &model, JOB_START_NS);
        let mut timeline = Timeline::new(&model.library, variation(options), schedule, start);
        self.tables.begin(process).map_err(io::Error::other)?;
        let steps = self.write_steps(&model, &mut timeline, process, &events, progress)?;
        debug_assert!(steps > 0);
        let end_ns = timeline.now_ns().max(timeline.gpu_end_ns());
        let mut truth = timeline.finish().into_truth(&model.library.names);
        truth.seed = options.seed;
        truth.rank = options.rank;
        truth.ranks = options.ranks;
        truth.layers = config.layers;
        Ok((process, truth, end_ns))
    }

    fn write_steps(
        &mut self,
        model: &BuiltModel,
        timeline: &mut Timeline<'_>,
        process: Process,
        events: &[Event],
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> io::Result<u64> {
        for &work in &model.leftovers {
            timeline.leftover(work);
        }
        timeline.play(&model.prologue, FIRST_STEP);
        let mut steps = 0;
        loop {
            let step = FIRST_STEP + steps;
            timeline.play(model.plan(step), step);
            self.rows(timeline, process, events)?;
            timeline.ledger.settle(timeline.now_ns());
            steps += 1;
            let size = self.size().map_err(io::Error::other)?;
            if !progress(size) {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "stopped by the caller"));
            }
            if self.options.steps.map_or(size >= self.target, |wanted| steps >= wanted) {
                break;
            }
        }
        timeline.play(&model.epilogue, FIRST_STEP);
        self.rows(timeline, process, events)?;
        Ok(steps)
    }

    /// Writes the records that the timeline has.
    fn rows(&mut self, timeline: &mut Timeline<'_>, process: Process, events: &[Event]) -> io::Result<()> {
        let records = timeline.take_records();
        for record in records.in_order().filter(|record| record.template != MOVED) {
            let event = events.get(record.template as usize).unwrap_or(&Event::Other);
            self.tables.event(process, event, record).map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Bytes of the file so far.
    fn size(&self) -> rusqlite::Result<u64> {
        let number = |sql: &str| self.connection.query_row(sql, [], |row| row.get::<_, i64>(0));
        let bytes = number("PRAGMA page_count")? * number("PRAGMA page_size")?;
        Ok(u64::try_from(bytes).unwrap_or(0))
    }
}
