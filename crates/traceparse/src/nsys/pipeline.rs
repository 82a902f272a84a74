//! Reads a whole database on several threads.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;

use super::builder::{Builder, Context, Keeps, Shared};
use super::catalog::Catalog;
use super::cells::Cells;
use super::identity::Processes;
use super::launching::Launching;
use super::machine::{self, Machine};
use super::open::{Database, explain};
use super::plan::{Plan, Run};
use super::session::Session;
use super::source;
use super::syncs::EventIndex;
use crate::error::{Error, ErrorKind, Result};
use crate::options::ReadOptions;
use crate::schema::Tables;
use crate::stats::{Code, Stats};
use crate::trace::{Meta, Trace};

/// Most threads: beyond these the file system decides.
const MAX_THREADS: usize = 8;

/// Reads the database at `path`.
pub(crate) fn read(path: &Path, options: &ReadOptions) -> Result<Trace> {
    let mut stats = Stats::default();
    let database = Database::open(path, &mut stats)?;
    let connection = database.connect()?;
    let catalog = Catalog::read(&connection)?;
    refuse_others(&catalog)?;
    let session = Session::read(&connection, &catalog);
    if session.is_newer() {
        stats.note(Code::NewerSchema, None);
    }
    let plan = Plan::new(&catalog, &session, options, &mut stats);
    let processes = Processes { machine: session.machine };
    let mut context = Context {
        processes,
        machine: Machine::read(&connection, &catalog),
        events: if options.wants("syncs") {
            EventIndex::read(&connection, &catalog, processes)
        } else {
            EventIndex::default()
        },
        session_end: if options.wants("ranges") { session.end_ns(&connection, &catalog) } else { None },
        keeps: Keeps::new(options),
        launching: options.only_launching.then(Launching::default),
        catalog,
    };
    let shared = Shared::default();
    let mut order = Order::default();
    for runs in plan.phases(options) {
        order = scan(&database, &plan, runs, &context, &shared, options, order)?;
        if let Some(launching) = &mut context.launching {
            launching.learn(&order.tables);
        }
    }
    stats.merge(&order.stats);
    let Order { mut tables, next, .. } = order;
    let mut symbols = shared.symbols.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut tracks = shared.tracks.into_inner().unwrap_or_else(PoisonError::into_inner);
    let names = shared.nvtx.into_inner().unwrap_or_else(PoisonError::into_inner);
    names.resolve(&mut symbols, &mut tables.ranges);
    tables.renumber_tracks(&tracks.sort(&symbols));
    let row = plan.end.unwrap_or(next);
    let catalog = &context.catalog;
    machine::add_devices(&connection, catalog, &mut symbols, &mut tables);
    machine::add_names(&connection, catalog, processes, &tracks, &mut symbols, &mut tables, row);
    machine::add_used_devices(&mut tables);
    note_devices(&tables, &context.machine, &mut stats);
    if stats.seen == 0 {
        stats.note(Code::NoEvents, None);
    }
    if options.strict {
        refuse_loss(&stats)?;
    }
    let described = plan.describe(catalog, &mut stats);
    let meta = Meta {
        format: "nsys",
        compression: "none",
        file_bytes: database.file_bytes,
        content_bytes: database.file_bytes,
        base_time_ns: session.base_time_ns(),
        properties: session.properties(described),
    };
    Ok(Trace { meta, tables, symbols, tracks, stats })
}

/// An SQLite database of another program must not pass for an empty trace.
fn refuse_others(catalog: &Catalog) -> Result<()> {
    let marks =
        ["META_DATA_EXPORT", "EXPORT_META_DATA", "ANALYSIS_DETAILS", "TARGET_INFO_SESSION_START_TIME"];
    let is_nsys = marks.iter().any(|name| catalog.table(name).is_some())
        || (catalog.table("StringIds").is_some()
            && source::all().iter().any(|source| catalog.table(source.name).is_some()));
    if is_nsys {
        return Ok(());
    }
    let message =
        if catalog.table("StringTable").is_some() && catalog.table("CUPTI_ACTIVITY_KIND_DRIVER").is_some() {
            "is a database of nvprof, which cannot be read yet"
        } else if catalog.tables().next().is_none() {
            "is an SQLite database without tables"
        } else {
            "is an SQLite database, but not an export of nsys: it has none of the tables that nsys writes"
        };
    Err(Error::new(ErrorKind::UnknownFormat, message))
}

fn refuse_loss(stats: &Stats) -> Result<()> {
    let Some((code, finding)) = stats.first_loss() else { return Ok(()) };
    let place = finding.place();
    let place = if place.is_empty() { place } else { format!(" ({place})") };
    Err(Error::new(ErrorKind::Strict, format!("{}{place}", code.message())))
}

/// Device numbers count what a process sees, so two processes may mean two GPUs by one number.
fn note_devices(tables: &Tables, machine: &Machine, stats: &mut Stats) {
    if machine.knows_gpus() {
        return;
    }
    let mut users: BTreeMap<i32, (i64, bool)> = BTreeMap::new();
    let gpu_ops = &tables.gpu_ops;
    for (device, pid) in gpu_ops.device.iter().zip(gpu_ops.pid.iter()) {
        if let (Some(device), Some(pid)) = (device, pid) {
            let user = users.entry(device).or_insert((pid, false));
            user.1 |= user.0 != pid;
        }
    }
    let shared = users.values().filter(|(_, is_shared)| *is_shared).count();
    stats.note_many(Code::AmbiguousDevice, shared as u64, None);
}

/// What the reading threads work on together.
struct Work<'w> {
    database: &'w Database,
    plan: &'w Plan,
    context: &'w Context,
    shared: &'w Shared,
    options: &'w ReadOptions,
    next_run: AtomicUsize,
    /// Number behind the last run to read.
    last_run: usize,
    failed: AtomicBool,
    order: Mutex<Order>,
}

/// Puts finished runs back into order.
#[derive(Default)]
struct Order {
    tables: Tables,
    stats: Stats,
    waiting: BTreeMap<usize, Batch>,
    /// Empty batches that keep their memory.
    spare: Vec<Batch>,
    /// Runs that are in the tables.
    done: usize,
    /// Number of the next row where rows are counted.
    next: u32,
}

/// The rows of a run, numbered from 0.
#[derive(Default)]
struct Batch {
    tables: Tables,
    stats: Stats,
    rows: u32,
}

/// Reads `runs` of the plan and puts their rows behind those of `order`.
fn scan(
    database: &Database,
    plan: &Plan,
    runs: Range<usize>,
    context: &Context,
    shared: &Shared,
    options: &ReadOptions,
    order: Order,
) -> Result<Order> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = options.threads.unwrap_or(cores).clamp(1, MAX_THREADS).min(runs.len().max(1));
    let work = Work {
        database,
        plan,
        context,
        shared,
        options,
        next_run: AtomicUsize::new(runs.start),
        last_run: runs.end,
        failed: AtomicBool::new(false),
        order: Mutex::new(order),
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(|| work.run())).collect();
        let mut outcome = work.run();
        for other in others {
            outcome = outcome.and(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        outcome
    })?;
    Ok(work.order.into_inner().unwrap_or_else(PoisonError::into_inner))
}

impl Work<'_> {
    fn run(&self) -> Result<()> {
        let result = self.run_all();
        if result.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        result
    }

    fn run_all(&self) -> Result<()> {
        let connection = self.database.connect()?;
        let mut builder = Builder::new(&connection, self.shared, self.context);
        loop {
            let number = self.next_run.fetch_add(1, Ordering::Relaxed);
            let Some(&run) = self.plan.runs[..self.last_run].get(number) else { return Ok(()) };
            if self.failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            let batch = self.read_run(&connection, &mut builder, run)?;
            let done = self.order().accept(number, batch, self.plan);
            self.report(done)?;
        }
    }

    fn order(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads one run; a damaged page costs what stands behind it in the run.
    fn read_run(&self, connection: &Connection, builder: &mut Builder<'_, '_>, run: Run) -> Result<Batch> {
        let planned = &self.plan.tables[run.table];
        let (source, present) = (planned.source, planned.present);
        let mut batch = self.order().spare.pop().unwrap_or_default();
        let mut statement = connection.prepare(&planned.sql).map_err(|e| explain(&e))?;
        let mut rows = statement.query([run.first, run.last]).map_err(|e| explain(&e))?;
        let mut last = run.first;
        loop {
            let row = match rows.next() {
                Ok(Some(row)) => row,
                Ok(None) => return Ok(batch),
                Err(_) => {
                    batch.stats.note_in(Code::DamagedPages, source.name, Some(last));
                    return Ok(batch);
                }
            };
            last = row.get(0).unwrap_or(last);
            let number = if planned.shift.is_some() { (last - run.first) as u32 } else { batch.rows };
            batch.rows += 1;
            batch.stats.seen += 1;
            let stats = &mut batch.stats;
            let mut cells = Cells { row, table: source.name, rowid: last, number, present, stats };
            if (source.push)(builder, &mut cells, &mut batch.tables) {
                batch.stats.kept += 1;
            } else {
                batch.stats.dropped += 1;
            }
        }
    }

    fn report(&self, runs_done: usize) -> Result<()> {
        let Some(progress) = &self.options.progress else { return Ok(()) };
        let total = self.database.file_bytes;
        let part = runs_done as f64 / self.plan.runs.len().max(1) as f64;
        if progress((total as f64 * part) as u64, total) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Interrupted, "interrupted"))
    }
}

impl Order {
    /// Takes a run; moves it and those that waited for it into the tables. Returns the runs done.
    fn accept(&mut self, number: usize, batch: Batch, plan: &Plan) -> usize {
        self.waiting.insert(number, batch);
        while let Some(mut batch) = self.waiting.remove(&self.done) {
            let run = plan.runs[self.done];
            let shift = plan.tables[run.table].shift.map(|shift| (run.first + shift) as u32);
            batch.tables.shift_rows(shift.unwrap_or(self.next));
            self.next = self.next.saturating_add(batch.rows);
            self.tables.append(&mut batch.tables);
            self.stats.merge(&batch.stats);
            self.done += 1;
            batch.tables.clear();
            self.spare.push(Batch { tables: batch.tables, ..Batch::default() });
        }
        self.done
    }
}
