//! What intervals of several groups cover.
//!
//! A frame has the columns `group`, `start_ns` and `end_ns`, none null. Answers name a group by the
//! position of one of its intervals, in the column `at`.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::types::{Float64Type, Int64Type, UInt8Type, UInt32Type};
use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, UInt8Array, UInt32Array};
use pyo3::prelude::*;
use traceparse::interval::{GroupedIntervals, first_of_each};
use traceparse::numbering::{NOWHERE, places};

use crate::answer::answer;
use crate::frame::{Frame, Outcome};
use crate::table::{ArrowTable, table};

/// The union of each group: `at`, `start_ns`, `end_ns`, in order.
#[pyfunction]
pub(crate) fn unite_intervals(py: Python<'_>, frame: Frame) -> PyResult<ArrowTable> {
    answer(py, || {
        let columns = Columns::read(&frame)?;
        let parts = columns.intervals().union();
        table(vec![
            ("at", numbers(parts.iter().map(|part| part.0))),
            ("start_ns", times(parts.iter().map(|part| part.1))),
            ("end_ns", times(parts.iter().map(|part| part.2))),
        ])
    })
}

/// For how long each level, or one before it, runs in each group: `at`, `level`, `covered_ns`.
///
/// The frame has the column `level`, too.
#[pyfunction]
pub(crate) fn cover_levels(py: Python<'_>, frame: Frame) -> PyResult<ArrowTable> {
    answer(py, || {
        let columns = Columns::read(&frame)?;
        let levels = frame.values::<UInt8Type>("level")?;
        let found = columns.intervals().covered(&levels);
        table(vec![
            ("at", numbers(found.iter().map(|part| part.0))),
            ("level", Arc::new(found.iter().map(|part| part.1).collect::<UInt8Array>())),
            ("covered_ns", times(found.iter().map(|part| part.2))),
        ])
    })
}

/// How much of each interval of one frame those of the same group of another cover: `hidden_ns`.
#[pyfunction]
pub(crate) fn hidden_lengths(py: Python<'_>, frame: Frame, cover: Frame) -> PyResult<ArrowTable> {
    answer(py, || {
        let (columns, cover) = (Columns::read(&frame)?, Columns::read(&cover)?);
        let hidden = columns.intervals().hidden_by(&cover.intervals());
        table(vec![("hidden_ns", Arc::new(Int64Array::from(hidden)))])
    })
}

/// The gaps of each group: `at`, the position of the interval that ends each, `start_ns`, `dur_ns`, and of the
/// call that started it, where that is known, `launch_ns` and `track`.
///
/// The frame has `launch_row`, too, and in place of an end `dur_ns`, which may be null; calls have `row`,
/// `start_ns` and `track`.
#[pyfunction]
pub(crate) fn find_gaps(py: Python<'_>, frame: Frame, calls: Frame) -> PyResult<ArrowTable> {
    answer(py, || {
        let (groups, starts) = (frame.values::<UInt32Type>("group")?, frame.values::<Int64Type>("start_ns")?);
        let lengths = frame.numbers("dur_ns")?;
        let end = |(start, length): (&i64, &i64)| start.saturating_add((*length).max(0));
        let ends: Vec<i64> = starts.iter().zip(lengths.iter()).map(end).collect();
        let gaps = GroupedIntervals::new(&groups, &starts, &ends).gaps();
        let launches = frame.links("launch_row", NOWHERE)?;
        let row = |at: u32| launches.get(at as usize).copied().unwrap_or(NOWHERE);
        let launched: Vec<u32> = gaps.iter().map(|gap| row(gap.0)).collect();
        let found = places(&calls.links("row", NOWHERE)?, &launched);
        let (moments, tracks) = (calls.values::<Int64Type>("start_ns")?, calls.links("track", NOWHERE)?);
        let lasts =
            |&(at, before): &(u32, i64)| starts.get(at as usize).map(|start| start.saturating_sub(before));
        let moment = |&at: &u32| moments.get(at as usize).copied();
        let track = |&at: &u32| tracks.get(at as usize).copied().filter(|&track| track != NOWHERE);
        table(vec![
            ("at", numbers(gaps.iter().map(|gap| gap.0))),
            ("start_ns", times(gaps.iter().map(|gap| gap.1))),
            ("dur_ns", Arc::new(gaps.iter().map(lasts).collect::<Int64Array>())),
            ("launch_ns", Arc::new(found.iter().map(moment).collect::<Int64Array>())),
            ("track", Arc::new(found.iter().map(track).collect::<UInt32Array>())),
        ])
    })
}

/// The integral of summed shares, of which at most 1 counts: `at`, `filled_ns`.
///
/// The frame has the column `share`, too.
#[pyfunction]
pub(crate) fn filled_time(py: Python<'_>, frame: Frame) -> PyResult<ArrowTable> {
    answer(py, || {
        let columns = Columns::read(&frame)?;
        let found = columns.intervals().filled(&frame.values::<Float64Type>("share")?);
        table(vec![
            ("at", numbers(found.iter().map(|part| part.0))),
            ("filled_ns", Arc::new(found.iter().map(|part| part.1).collect::<Float64Array>())),
        ])
    })
}

/// Which intervals of a group follow one another with the same `label`: `run`, by position.
///
/// The frame has the column `label`, too.
#[pyfunction]
pub(crate) fn number_runs(py: Python<'_>, frame: Frame) -> PyResult<ArrowTable> {
    answer(py, || {
        let columns = Columns::read(&frame)?;
        let runs = columns.intervals().runs(&frame.values::<UInt32Type>("label")?);
        table(vec![("run", Arc::new(UInt32Array::from(runs)))])
    })
}

/// Every change of the number of open intervals of each group: `at`, `at_ns`, `opens`, `depth`.
///
/// The frame has the column `id`, too: of the intervals of a group that share one, that counts which
/// ends first.
#[pyfunction]
pub(crate) fn depth_changes(py: Python<'_>, frame: Frame) -> PyResult<ArrowTable> {
    answer(py, || {
        let columns = Columns::read(&frame)?.first_by_end()?;
        let (mut at, mut time, mut opens, mut depth) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        columns.intervals().each_change(|change| {
            at.push(columns.row(change.at));
            time.push(change.time);
            opens.push(change.opens);
            depth.push(change.depth);
        });
        table(vec![
            ("at", Arc::new(UInt32Array::from(at))),
            ("at_ns", Arc::new(Int64Array::from(time))),
            ("opens", Arc::new(BooleanArray::from(opens))),
            ("depth", Arc::new(Int64Array::from(depth))),
        ])
    })
}

/// How often and how long so many intervals were open: `at`, `depth`, `changes`, `lasts_ns`.
///
/// The frame is that of `depth_changes`; answers come by group, then depth.
#[pyfunction]
pub(crate) fn depth_totals(py: Python<'_>, frame: Frame) -> PyResult<ArrowTable> {
    answer(py, || {
        let columns = Columns::read(&frame)?.first_by_end()?;
        let totals = columns.intervals().depth_totals();
        table(vec![
            ("at", numbers(totals.iter().map(|total| columns.row(total.at)))),
            ("depth", times(totals.iter().map(|total| total.depth))),
            ("changes", times(totals.iter().map(|total| total.changes))),
            ("lasts_ns", times(totals.iter().map(|total| total.duration))),
        ])
    })
}

fn numbers(values: impl Iterator<Item = u32>) -> ArrayRef {
    Arc::new(UInt32Array::from_iter_values(values))
}

fn times(values: impl Iterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

/// The columns of a frame.
struct Columns<'a> {
    frame: &'a Frame,
    groups: Cow<'a, [u32]>,
    starts: Cow<'a, [i64]>,
    ends: Cow<'a, [i64]>,
    /// The rows of the frame that are left, if some are not.
    rows: Option<Vec<u32>>,
}

impl<'a> Columns<'a> {
    fn read(frame: &'a Frame) -> Outcome<Self> {
        Ok(Self {
            frame,
            groups: frame.values::<UInt32Type>("group")?,
            starts: frame.values::<Int64Type>("start_ns")?,
            ends: frame.values::<Int64Type>("end_ns")?,
            rows: None,
        })
    }

    /// Only the intervals that end first among those of their group that share an `id`.
    fn first_by_end(mut self) -> Outcome<Self> {
        let ids = self.frame.values::<UInt32Type>("id")?;
        let rows = first_of_each(&self.groups, &ids, &self.ends);
        if rows.len() < self.groups.len() {
            self.groups = kept(&self.groups, &rows);
            self.starts = kept(&self.starts, &rows);
            self.ends = kept(&self.ends, &rows);
            self.rows = Some(rows);
        }
        Ok(self)
    }

    fn intervals(&self) -> GroupedIntervals<'_> {
        GroupedIntervals::new(&self.groups, &self.starts, &self.ends)
    }

    /// The row of the frame at which an interval is.
    fn row(&self, at: u32) -> u32 {
        self.rows.as_ref().and_then(|rows| rows.get(at as usize)).copied().unwrap_or(at)
    }
}

fn kept<'a, V: Copy>(values: &[V], rows: &[u32]) -> Cow<'a, [V]> {
    Cow::Owned(rows.iter().filter_map(|&row| values.get(row as usize).copied()).collect())
}
