//! What intervals of several groups cover, for frames that Python hands over as Arrow IPC streams.
//!
//! A stream has the columns `group`, `start_ns` and `end_ns`, none null. Answers name a group by the
//! position of one of its intervals, in the column `at`.

use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, Float64Type, Int64Type, UInt8Type, UInt32Type};
use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, UInt8Array, UInt32Array};
use arrow_ipc::reader::StreamReader;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use traceparse::interval::{GroupedIntervals, first_of_each};

use crate::projection::{Outcome, column, refused, table};
use crate::table::ArrowTable;
use crate::watch;

/// The union of each group: `at`, `start_ns`, `end_ns`, in order.
#[pyfunction]
pub(crate) fn unite_intervals(py: Python<'_>, stream: PyBackedBytes) -> PyResult<ArrowTable> {
    answer(py, move || {
        let columns = Columns::read(&stream)?;
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
/// The stream has the column `level`, too.
#[pyfunction]
pub(crate) fn cover_levels(py: Python<'_>, stream: PyBackedBytes) -> PyResult<ArrowTable> {
    answer(py, move || {
        let columns = Columns::read(&stream)?;
        let levels: Vec<u8> = columns.values::<UInt8Type>("level")?;
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
pub(crate) fn hidden_lengths(
    py: Python<'_>,
    stream: PyBackedBytes,
    cover: PyBackedBytes,
) -> PyResult<ArrowTable> {
    answer(py, move || {
        let (columns, cover) = (Columns::read(&stream)?, Columns::read(&cover)?);
        let hidden = columns.intervals().hidden_by(&cover.intervals());
        table(vec![("hidden_ns", Arc::new(Int64Array::from(hidden)))])
    })
}

/// The gaps of each group: `at`, the position of the interval that ends each, and `before_ns`.
#[pyfunction]
pub(crate) fn find_gaps(py: Python<'_>, stream: PyBackedBytes) -> PyResult<ArrowTable> {
    answer(py, move || {
        let columns = Columns::read(&stream)?;
        let gaps = columns.intervals().gaps();
        table(vec![
            ("at", numbers(gaps.iter().map(|gap| gap.0))),
            ("before_ns", times(gaps.iter().map(|gap| gap.1))),
        ])
    })
}

/// The integral of summed shares, of which at most 1 counts: `at`, `filled_ns`.
///
/// The stream has the column `share`, too.
#[pyfunction]
pub(crate) fn filled_time(py: Python<'_>, stream: PyBackedBytes) -> PyResult<ArrowTable> {
    answer(py, move || {
        let columns = Columns::read(&stream)?;
        let found = columns.intervals().filled(&columns.values::<Float64Type>("share")?);
        table(vec![
            ("at", numbers(found.iter().map(|part| part.0))),
            ("filled_ns", Arc::new(found.iter().map(|part| part.1).collect::<Float64Array>())),
        ])
    })
}

/// Which intervals of a group follow one another with the same `label`: `run`, by position.
///
/// The stream has the column `label`, too.
#[pyfunction]
pub(crate) fn number_runs(py: Python<'_>, stream: PyBackedBytes) -> PyResult<ArrowTable> {
    answer(py, move || {
        let columns = Columns::read(&stream)?;
        let runs = columns.intervals().runs(&columns.values::<UInt32Type>("label")?);
        table(vec![("run", Arc::new(UInt32Array::from(runs)))])
    })
}

/// Every change of the number of open intervals of each group: `at`, `at_ns`, `opens`, `depth`.
///
/// The stream has the column `id`, too: of the intervals of a group that share one, that counts which
/// ends first.
#[pyfunction]
pub(crate) fn depth_changes(py: Python<'_>, stream: PyBackedBytes) -> PyResult<ArrowTable> {
    answer(py, move || {
        let columns = Columns::read(&stream)?.first_by_end()?;
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
/// The stream is that of `depth_changes`; answers come by group, then depth.
#[pyfunction]
pub(crate) fn depth_totals(py: Python<'_>, stream: PyBackedBytes) -> PyResult<ArrowTable> {
    answer(py, move || {
        let columns = Columns::read(&stream)?.first_by_end()?;
        let totals = columns.intervals().depth_totals();
        table(vec![
            ("at", numbers(totals.iter().map(|total| columns.row(total.at)))),
            ("depth", times(totals.iter().map(|total| total.depth))),
            ("changes", times(totals.iter().map(|total| total.changes))),
            ("lasts_ns", times(totals.iter().map(|total| total.duration))),
        ])
    })
}

fn answer(
    py: Python<'_>,
    work: impl FnOnce() -> Outcome<ArrowTable> + Send + 'static,
) -> PyResult<ArrowTable> {
    watch::run(py, None, move |_| work().map_err(|error| refused(&error)))
}

fn numbers(values: impl Iterator<Item = u32>) -> ArrayRef {
    Arc::new(UInt32Array::from_iter_values(values))
}

fn times(values: impl Iterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

/// The columns of a stream.
struct Columns {
    batches: Vec<RecordBatch>,
    groups: Vec<u32>,
    starts: Vec<i64>,
    ends: Vec<i64>,
    /// The rows of the stream that are left, if some are not.
    rows: Option<Vec<u32>>,
}

impl Columns {
    fn read(stream: &[u8]) -> Outcome<Self> {
        let batches = StreamReader::try_new(stream, None)?.collect::<Outcome<Vec<_>>>()?;
        let mut columns =
            Self { batches, groups: Vec::new(), starts: Vec::new(), ends: Vec::new(), rows: None };
        columns.groups = columns.values::<UInt32Type>("group")?;
        columns.starts = columns.values::<Int64Type>("start_ns")?;
        columns.ends = columns.values::<Int64Type>("end_ns")?;
        Ok(columns)
    }

    fn values<T: ArrowPrimitiveType>(&self, name: &str) -> Outcome<Vec<T::Native>> {
        let rows = self.batches.iter().map(RecordBatch::num_rows).sum();
        let mut values = Vec::with_capacity(rows);
        for batch in &self.batches {
            values.extend_from_slice(column::<T>(batch, name)?.values());
        }
        Ok(values)
    }

    /// Only the intervals that end first among those of their group that share an `id`.
    fn first_by_end(self) -> Outcome<Self> {
        let ids = self.values::<UInt32Type>("id")?;
        let rows = first_of_each(&self.groups, &ids, &self.ends);
        if rows.len() == self.groups.len() {
            return Ok(self);
        }
        let kept =
            |values: &[i64]| rows.iter().filter_map(|&row| values.get(row as usize).copied()).collect();
        let groups = rows.iter().filter_map(|&row| self.groups.get(row as usize).copied()).collect();
        let (starts, ends) = (kept(&self.starts), kept(&self.ends));
        Ok(Self { batches: self.batches, groups, starts, ends, rows: Some(rows) })
    }

    fn intervals(&self) -> GroupedIntervals<'_> {
        GroupedIntervals::new(&self.groups, &self.starts, &self.ends)
    }

    /// The row of the stream at which an interval is.
    fn row(&self, at: u32) -> u32 {
        self.rows.as_ref().and_then(|rows| rows.get(at as usize)).copied().unwrap_or(at)
    }
}
