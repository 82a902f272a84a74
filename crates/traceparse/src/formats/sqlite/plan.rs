//! Cuts the tables into runs of rows, and numbers the rows.

use serde_json::{Map, Value, json};

use super::builder::Recorder;
use super::catalog::Catalog;
use super::source::Source;
use crate::options::ReadOptions;
use crate::stats::{Code, Stats};

/// Rows that a thread reads at once.
const RUN_ROWS: i64 = 1 << 16;
/// Most runs of one table: rowids can be far apart.
const MAX_RUNS: i64 = 1 << 14;

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
    /// First and last rowid.
    rowids: (i64, i64),
    /// What to add to a rowid for the number of the row; null where rows are counted instead.
    pub(crate) shift: Option<i64>,
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
        for source in sources {
            let table = catalog.table(source.name);
            let Some((table, rowids)) = table.and_then(|table| Some((table, table.rowids?))) else {
                if let Some(code) = meaning_of_none(source.recorded_with, table.is_some()) {
                    stats.note_in(code, source.name, None);
                }
                continue;
            };
            if let Some((sql, present)) = source.select(table, options, stats) {
                plan.cut(plan.tables.len(), rowids);
                plan.tables.push(Planned { source, sql, present, rowids, shift: None });
            }
        }
        plan
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

    /// Every table with rows and whether it is read; `is_beside` tells which are and hold no events.
    pub(crate) fn describe(
        &self,
        catalog: &Catalog,
        is_beside: impl Fn(&str) -> bool,
        stats: &mut Stats,
    ) -> Map<String, Value> {
        let tables = catalog.tables().filter_map(|(name, table)| Some((name, table.rowids?)));
        let mut tables: Vec<_> = tables.collect();
        tables.sort_unstable();
        let mut unread = 0;
        let describe = |(name, (_, last)): (&str, (i64, i64))| {
            let planned = self.tables.iter().find(|table| table.source.name == name);
            let is_read = planned.is_some() || is_beside(name);
            unread += u64::from(!is_read);
            let shift = planned.and_then(|planned| planned.shift);
            let about = json!({ "read": is_read, "last_rowid": last, "row_of_rowid_0": shift });
            (name.to_owned(), about)
        };
        let described = tables.into_iter().map(describe).collect();
        stats.note_many(Code::UnreadTable, unread, None);
        described
    }
}
