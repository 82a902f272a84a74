//! Cuts the tables into runs of rows, and numbers the rows.

use serde_json::{Map, Value, json};
use std::ops::Range;

use super::catalog::{Catalog, Table, quoted};
use super::session::Session;
use super::source::{self, Need, Source};
use crate::options::ReadOptions;
use crate::stats::{Code, Stats};

/// Rows that a thread reads at once.
const RUN_ROWS: i64 = 1 << 16;
/// Most runs of one table: rowids can be far apart.
const MAX_RUNS: i64 = 1 << 14;

/// A run of rows of one table.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) table: usize,
    /// First rowid.
    pub(super) first: i64,
    /// Last rowid.
    pub(super) last: i64,
}

/// A table that is read.
pub(super) struct Planned {
    pub(super) source: &'static Source,
    pub(super) sql: String,
    /// Cells that the table has columns for, a bit each.
    pub(super) present: u64,
    /// What to add to a rowid for the number of the row; null where rows are counted instead.
    pub(super) shift: Option<i64>,
}

/// What is read, in order.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) tables: Vec<Planned>,
    pub(super) runs: Vec<Run>,
    /// Number behind the last row; null where rows are counted.
    pub(super) end: Option<u32>,
}

impl Plan {
    /// Plans to read what feeds the tables that `options` wants.
    pub(super) fn new(
        catalog: &Catalog,
        session: &Session,
        options: &ReadOptions,
        stats: &mut Stats,
    ) -> Self {
        let mut plan = Self::default();
        let mut extents = Vec::new();
        let is_wanted = |source: &&Source| {
            options.wants(source.feeds) && source.kind().is_none_or(|kind| options.wants_kind(kind))
        };
        for source in source::all().into_iter().filter(is_wanted) {
            let table = catalog.table(source.name);
            let Some((table, rowids)) = table.and_then(|table| Some((table, table.rowids?))) else {
                if let Some(code) = session.capture.meaning_of_none(source.recorded_with, table.is_some()) {
                    stats.note_in(code, source.name, None);
                }
                continue;
            };
            if let Some((sql, present)) = select(source, table, options, stats) {
                plan.tables.push(Planned { source, sql, present, shift: None });
                extents.push(rowids);
            }
        }
        plan.number(&extents);
        for (table, &(first, last)) in extents.iter().enumerate() {
            plan.cut(table, first, last);
        }
        plan
    }

    /// The runs in parts of which each is read when those before are.
    ///
    /// Which calls launched GPU work is known when that was read, and which ranges enclose one when the
    /// calls were.
    pub(super) fn phases(&self, options: &ReadOptions) -> Vec<Range<usize>> {
        let feeds = |run: &Run| self.tables.get(run.table).map_or("", |table| table.source.feeds);
        let ends = if options.only_launching {
            let work = self.runs.iter().take_while(|run| feeds(run) == "gpu_ops").count();
            let calls = self.runs[work..].iter().take_while(|run| feeds(run) == "launches").count();
            vec![work, work + calls, self.runs.len()]
        } else {
            vec![self.runs.len()]
        };
        let starts = std::iter::once(0).chain(ends.iter().copied());
        starts.zip(ends.iter().copied()).map(|(start, end)| start..end).collect()
    }

    /// Gives each row the number of its rowid behind the tables before, if all fit.
    fn number(&mut self, extents: &[(i64, i64)]) {
        let mut next: i64 = 0;
        let mut shifts = Vec::with_capacity(extents.len());
        for &(first, last) in extents {
            shifts.push(next);
            let after = if first >= 0 { next.checked_add(last).and_then(|n| n.checked_add(1)) } else { None };
            let Some(after) = after.filter(|&after| after < i64::from(u32::MAX / 2)) else { return };
            next = after;
        }
        for (table, shift) in self.tables.iter_mut().zip(shifts) {
            table.shift = Some(shift);
        }
        self.end = u32::try_from(next).ok();
    }

    fn cut(&mut self, table: usize, first: i64, last: i64) {
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

    /// Every table with rows, whether it is read, and where its rows are among those of the trace.
    pub(super) fn describe(&self, catalog: &Catalog, stats: &mut Stats) -> Map<String, Value> {
        let read = |name: &str| self.tables.iter().find(|table| table.source.name == name);
        let mut tables: Vec<_> =
            catalog.tables().filter_map(|(name, table)| Some((name, table.rowids?))).collect();
        tables.sort_unstable();
        let mut unread = 0;
        let describe = |(name, rowids): (&str, (i64, i64))| {
            let planned = read(name);
            unread += u64::from(planned.is_none() && !is_surroundings(name));
            let row_of_rowid_0 = planned.and_then(|planned| planned.shift);
            let value = json!({
                "read": planned.is_some() || is_surroundings(name),
                "last_rowid": rowids.1,
                "row_of_rowid_0": row_of_rowid_0,
            });
            (name.to_owned(), value)
        };
        let described = tables.into_iter().map(describe).collect();
        stats.note_many(Code::UnreadTable, unread, None);
        described
    }
}

/// Tables that are read and hold no events.
fn is_surroundings(name: &str) -> bool {
    const NAMES: [&str; 16] = [
        "StringIds",
        "ANALYSIS_DETAILS",
        "META_DATA_CAPTURE",
        "META_DATA_EXPORT",
        "EXPORT_META_DATA",
        "PROCESSES",
        "ThreadNames",
        "TARGET_INFO_SESSION_START_TIME",
        "TARGET_INFO_SYSTEM_ENV",
        "TARGET_INFO_GPU",
        "TARGET_INFO_GPU_METRICS",
        "TARGET_INFO_CUDA_DEVICE",
        "TARGET_INFO_CUDA_STREAM",
        "TARGET_INFO_CUDA_CONTEXT_INFO",
        "sqlite_sequence",
        "sqlite_stat1",
    ];
    NAMES.contains(&name) || name.starts_with("ENUM_")
}

/// The query for the rows of a run, and the cells it fills; null where a column is missing without
/// which rows say nothing.
fn select(source: &Source, table: &Table, options: &ReadOptions, stats: &mut Stats) -> Option<(String, u64)> {
    let mut cells = vec!["rowid".to_owned()];
    let mut is_readable = true;
    let mut present = 1;
    for column in source.columns {
        let is_wanted = column.serves.is_empty()
            || column.serves.iter().any(|served| options.wants_column(source.feeds, served))
            // Whoever reads calls beside the work wants the links between them.
            || (column.serves.contains(&"launch_row") && options.wants("launches"));
        if !is_wanted {
            cells.push("NULL".to_owned());
            continue;
        }
        if table.has(column.name) {
            present |= 1 << cells.len();
            cells.push(quoted(column.name));
            continue;
        }
        cells.push("NULL".to_owned());
        let code = match column.need {
            Need::Required => Code::UnreadableTable,
            Need::Usual => Code::MissingColumn,
            Need::Newer => Code::NewerColumn,
        };
        is_readable &= column.need != Need::Required;
        stats.note_in(code, column.full_name, None);
    }
    let flagged: Vec<String> = match options.wants("extra_args") {
        true => {
            source.flagged.iter().filter(|column| table.has(column)).map(|column| quoted(column)).collect()
        }
        false => Vec::new(),
    };
    present |= u64::from(!flagged.is_empty()) << cells.len();
    cells.push(match flagged.as_slice() {
        [] => "0".to_owned(),
        [one] => format!("{one} IS NOT NULL"),
        many => format!("coalesce({}) IS NOT NULL", many.join(", ")),
    });
    let sql = format!(
        "SELECT {} FROM {} WHERE rowid BETWEEN ?1 AND ?2 ORDER BY rowid",
        cells.join(", "),
        quoted(source.name)
    );
    is_readable.then_some((sql, present))
}
