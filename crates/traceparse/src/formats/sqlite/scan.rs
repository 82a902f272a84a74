//! Reads the runs of a plan on several threads, and puts their rows back into order.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;

use super::builder::{Builder, Recorder, Shared};
use super::catalog::Catalog;
use super::cells::Cells;
use super::open::{Database, explain};
use super::plan::{Plan, Run};
use crate::error::{Error, ErrorKind, Result};
use crate::options::ReadOptions;
use crate::schema::Tables;
use crate::stats::{Code, Stats};

/// Most threads: beyond these the file system decides.
const MAX_THREADS: usize = 8;

/// What is read, and from where.
pub(crate) struct Reading<'w, R: Recorder> {
    pub(crate) database: &'w Database,
    pub(crate) catalog: &'w Catalog,
    pub(crate) plan: &'w Plan<R>,
    pub(crate) shared: &'w Shared,
    pub(crate) options: &'w ReadOptions,
}

impl<R: Recorder> Reading<'_, R> {
    /// Reads some runs of the plan and puts their rows behind those of `order`.
    pub(crate) fn scan(&self, recorder: &R, runs: Range<usize>, order: Order) -> Result<Order> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = self.options.threads.unwrap_or(cores).clamp(1, MAX_THREADS).min(runs.len().max(1));
        let work = Work {
            reading: self,
            recorder,
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
}

/// What the reading threads work on together.
struct Work<'w, R: Recorder> {
    reading: &'w Reading<'w, R>,
    recorder: &'w R,
    next_run: AtomicUsize,
    /// Number behind the last run to read.
    last_run: usize,
    failed: AtomicBool,
    order: Mutex<Order>,
}

/// Puts finished runs back into order.
#[derive(Default)]
pub(crate) struct Order {
    pub(crate) tables: Tables,
    pub(crate) stats: Stats,
    waiting: BTreeMap<usize, Batch>,
    /// Empty batches that keep their memory.
    spare: Vec<Batch>,
    /// Runs that are in the tables.
    done: usize,
    /// Number of the next row where rows are counted.
    pub(crate) next: u32,
}

/// The rows of a run, numbered from 0.
#[derive(Default)]
struct Batch {
    tables: Tables,
    stats: Stats,
    rows: u32,
}

impl<R: Recorder> Work<'_, R> {
    fn run(&self) -> Result<()> {
        let result = self.run_all();
        if result.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        result
    }

    fn run_all(&self) -> Result<()> {
        let Reading { database, catalog, plan, shared, .. } = self.reading;
        let connection = database.connect()?;
        let mut builder = Builder::new(&connection, catalog, shared, self.recorder);
        loop {
            let number = self.next_run.fetch_add(1, Ordering::Relaxed);
            let Some(&run) = plan.runs[..self.last_run].get(number) else { return Ok(()) };
            if self.failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            let batch = self.read_run(&connection, &mut builder, run)?;
            let done = self.order().accept(number, batch, plan);
            self.report(done)?;
        }
    }

    fn order(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads one run; a damaged page costs what stands behind it in the run.
    fn read_run(&self, connection: &Connection, builder: &mut Builder<'_, '_, R>, run: Run) -> Result<Batch> {
        let Reading { database, plan, .. } = self.reading;
        let planned = &plan.tables[run.table];
        let (source, present) = (planned.source, planned.present);
        let mut batch = self.order().spare.pop().unwrap_or_default();
        let Ok(mut statement) = connection.prepare(&planned.sql) else {
            batch.stats.note_in(Code::UnreadableTable, source.name, None);
            return Ok(batch);
        };
        let mut rows = statement.query([run.first, run.last]).map_err(|e| explain(&e))?;
        let mut last = run.first.saturating_sub(1);
        loop {
            let next = rows.next();
            if let Ok(None) = next {
                return Ok(batch);
            }
            let next = next.ok().flatten().map(|row| (row, row.get(0).unwrap_or(last.saturating_add(1))));
            // Rowids fall where a page was overwritten, or is cut off and read as zeros.
            let Some((row, rowid)) = next.filter(|&(_, rowid)| batch.rows == 0 || rowid > last) else {
                let place = if batch.rows > 0 { Some(last) } else { planned.front(run) };
                batch.stats.note_in(Code::DamagedPages, source.name, place);
                batch.stats.note_rows(Code::MissingRows, planned.rows_behind(run, last), source.name);
                return Ok(batch);
            };
            last = rowid;
            if planned.is_counted && u64::from(batch.rows) >= database.file_bytes {
                let message =
                    format!("is not a recording: {} has more rows than the file has bytes", source.name);
                return Err(Error::new(ErrorKind::Damaged, message));
            }
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
        let Some(progress) = &self.reading.options.progress else { return Ok(()) };
        let total = self.reading.database.file_bytes;
        let part = runs_done as f64 / self.reading.plan.runs.len().max(1) as f64;
        if progress((total as f64 * part) as u64, total) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Interrupted, "interrupted"))
    }
}

impl Order {
    /// Takes a run; moves it and those that waited for it into the tables. Returns the runs done.
    fn accept<R: Recorder>(&mut self, number: usize, batch: Batch, plan: &Plan<R>) -> usize {
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
