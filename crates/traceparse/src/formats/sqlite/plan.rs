//! Cuts the tables into runs of rows, and numbers the rows.

use rusqlite::Connection;
use serde_json::{Map, Value, json};

use super::builder::Recorder;
use super::catalog::{Catalog, Rows, Table};
use super::open::quoted;
use super::source::Source;
use crate::options::ReadOptions;
use crate::stats::{Code, Stats};

/// Rows that a thread reads at once.
const RUN_ROWS: i64 = 1 << 16;
/// Most runs of one table: rowids can be far apart.
const MAX_RUNS: i64 = 1 << 14;
/// Most rows of a table that has no rowids, which is one run.
const MOST_ROWS: i64 = 1 << 28;
/// Most rows that are counted one by one.
const MOST_COUNTED: i64 = 1 << 20;

/// A run of rows of one table.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub(crate) table: usize,
    /// First rowid.
    pub(crate) first: i64,
    /// Last rowid.
    pub(crate) last: i64,
}

/// A table that is read.
pub(crate) struct Planned<R: Recorder> {
    pub(crate) source: &'static Source<R>,
    pub(crate) sql: String,
    /// Cells that the table has columns for, a bit each.
    pub(crate) present: u64,
    /// First and last rowid; of rows without, the least and greatest number that they can have.
    rowids: (i64, i64),
    /// Whether rows have no rowids, and are numbered from 1.
    pub(crate) is_counted: bool,
    /// What to add to a rowid for the number of the row; null where rows are counted instead.
    pub(crate) shift: Option<i64>,
}

impl<R: Recorder> Planned<R> {
    /// The rowid that a run begins with, if any is known.
    pub(crate) fn front(&self, run: Run) -> Option<i64> {
        (!self.is_counted && run.first > i64::MIN).then_some(run.first)
    }

    /// How many rows of a run are behind the one numbered `last`, if rowids tell.
    pub(crate) fn rows_behind(&self, run: Run, last: i64) -> u64 {
        let is_known = !self.is_counted && run.last < i64::MAX;
        let behind = if is_known { run.last.saturating_sub(last) } else { 0 };
        u64::try_from(behind).unwrap_or(0)
    }
}

/// What is read, in order.
pub(crate) struct Plan<R: Recorder> {
    pub(crate) tables: Vec<Planned<R>>,
    pub(crate) runs: Vec<Run>,
    /// Number behind the last row; null where rows are counted.
    pub(crate) end: Option<u32>,
}

impl<R: Recorder> Plan<R> {
    /// Plans to read `sources`, as far as `options` want their columns and the database has them.
    ///
    /// `meaning_of_none` tells what it means that a table has no rows, or is not there.
    pub(crate) fn new(
        sources: impl IntoIterator<Item = &'static Source<R>>,
        catalog: &Catalog,
        meaning_of_none: impl Fn(R::Feature, bool) -> Option<Code>,
        options: &ReadOptions,
        stats: &mut Stats,
    ) -> Self {
        let mut plan = Self { tables: Vec::new(), runs: Vec::new(), end: None };
        if !catalog.is_whole {
            stats.note_in(Code::DamagedPages, "sqlite_master", None);
        }
        for source in sources {
            let table = catalog.table(source.name);
            let Some(table) = table.filter(|table| table.rows != Rows::None) else {
                let code = match meaning_of_none(source.recorded_with, table.is_some()) {
                    Some(_) if table.is_none() && is_renamed(source.name, catalog) => {
                        Some(Code::RenamedTable)
                    }
                    // A list of tables that is cut off says of none that it is not there.
                    Some(_) if table.is_none() && !catalog.is_whole => Some(Code::TableAbsent),
                    meaning => meaning,
                };
                if let Some(code) = code {
                    stats.note_in(code, source.name, None);
                }
                continue;
            };
            let Some((sql, present)) = source.select(table, options, stats) else { continue };
            let number = plan.tables.len();
            let rowids = match table.rows {
                Rows::ByRowid(first, last) => {
                    plan.cut(number, (first, last));
                    (first, last)
                }
                Rows::InOrder => plan.whole(number, (1, MOST_ROWS)),
                Rows::None | Rows::Damaged => plan.whole(number, (i64::MIN, i64::MAX)),
            };
            let is_counted = table.rows == Rows::InOrder;
            plan.tables.push(Planned { source, sql, present, rowids, is_counted, shift: None });
        }
        plan
    }

    /// Takes a table as one run.
    fn whole(&mut self, table: usize, (first, last): (i64, i64)) -> (i64, i64) {
        self.runs.push(Run { table, first, last });
        (first, last)
    }

    /// The same plan, with the rowid behind the rows of the tables before as the number of each row, if all
    /// fit; else rows are counted.
    pub(crate) fn numbered_by_rowid(mut self) -> Self {
        let mut next: i64 = 0;
        let mut shifts = Vec::with_capacity(self.tables.len());
        for (first, last) in self.tables.iter().map(|table| table.rowids) {
            shifts.push(next);
            let after = if first >= 0 { next.checked_add(last).and_then(|n| n.checked_add(1)) } else { None };
            let Some(after) = after.filter(|&after| after < i64::from(u32::MAX / 2)) else { return self };
            next = after;
        }
        for (table, shift) in self.tables.iter_mut().zip(shifts) {
            table.shift = Some(shift);
        }
        self.end = u32::try_from(next).ok();
        self
    }

    fn cut(&mut self, table: usize, (first, last): (i64, i64)) {
        let span = last.saturating_sub(first).saturating_add(1);
        let step = RUN_ROWS.max(span / MAX_RUNS + 1);
        let mut from = first;
        while from <= last {
            let to = from.saturating_add(step - 1).min(last);
            self.runs.push(Run { table, first: from, last: to });
            if to == i64::MAX {
                break;
            }
            from = to + 1;
        }
    }

    /// Every table with rows, how many it has as its rowids count them, and whether it is read; `is_beside` tells
    /// which are and hold no events.
    pub(crate) fn describe(
        &self,
        connection: &Connection,
        catalog: &Catalog,
        is_beside: impl Fn(&str) -> bool,
        stats: &mut Stats,
    ) -> Map<String, Value> {
        let tables = catalog.tables().filter(|(_, table)| table.rows != Rows::None);
        let mut tables: Vec<_> = tables.collect();
        tables.sort_unstable_by_key(|(name, _)| *name);
        let mut unread = 0;
        let describe = |(name, table): (&str, &Table)| {
            let planned = self.tables.iter().find(|table| table.source.name == name);
            let is_read = planned.is_some() || is_beside(name);
            unread += u64::from(!is_read);
            let shift = planned.and_then(|planned| planned.shift);
            let (span, last) = match table.rows {
                Rows::ByRowid(first, last) => (last.checked_sub(first).map(|span| span + 1), Some(last)),
                Rows::None | Rows::InOrder | Rows::Damaged => (None, None),
            };
            let counted = (!is_read && table.has_key()).then(|| counted_rows(connection, name)).flatten();
            let count = counted.or(span);
            let about =
                json!({ "read": is_read, "rows": count, "last_rowid": last, "row_of_rowid_0": shift });
            (name.to_owned(), about)
        };
        let described = tables.into_iter().map(describe).collect();
        stats.note_many(Code::UnreadTable, unread, None);
        described
    }
}

/// How many rows a table has, by counting up to a limit.
fn counted_rows(connection: &Connection, name: &str) -> Option<i64> {
    let rows = format!("SELECT 1 FROM {} LIMIT {}", quoted(name), MOST_COUNTED + 1);
    let count = connection.query_row(&format!("SELECT count(*) FROM ({rows})"), [], |row| row.get(0)).ok()?;
    Some(count).filter(|&count: &i64| count <= MOST_COUNTED)
}

/// Whether a table that is not there has rows under a longer name, such as one with a version behind it.
fn is_renamed(name: &str, catalog: &Catalog) -> bool {
    catalog.tables().any(|(other, table)| {
        table.rows != Rows::None && other.strip_prefix(name).is_some_and(|rest| rest.starts_with('_'))
    })
}
