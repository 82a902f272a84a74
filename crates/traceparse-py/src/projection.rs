//! Projects host ranges onto the GPU.

use std::sync::Arc;

use arrow_array::types::{Int64Type, UInt32Type};
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, UInt32Array};
use framekernels::numbering::Numbering;
use framekernels::projection::{Call, GroupSums, HostRange, NONE, Projection, Projector, Totals};
use pyo3::prelude::*;

use crate::answer::{answer, answer_watched};
use crate::frame::{Frame, Outcome, column, nullable, optional};
use crate::numbering::{add_part, first_rows};
use crate::table::{ArrowTable, table};

/// Collects GPU work, then the calls, then the host ranges, and relates them.
///
/// Frames are added part by part, so that their copies are never all there at once.
#[pyclass(module = "kernelscope._traceparse")]
#[derive(Default)]
pub(crate) struct RangeProjector {
    projector: Projector,
    /// The columns that agree in a group.
    by: Vec<String>,
    groups: Numbering,
}

#[pymethods]
impl RangeProjector {
    /// Groups ranges by the columns `by`.
    #[new]
    fn new(by: Vec<String>) -> Self {
        Self { by, ..Self::default() }
    }

    /// Adds GPU work: columns `launch_row`, `start_ns` and `dur_ns`; rows that lack any are left out.
    fn add_work(&mut self, py: Python<'_>, frame: Frame) -> PyResult<()> {
        answer(py, || read_work(frame, &mut self.projector))
    }

    /// Adds calls: columns `row`, `start_ns`, `dur_ns` (0 if null), `track`, and `process` if ranges cross
    /// threads.
    fn add_calls(&mut self, py: Python<'_>, frame: Frame) -> PyResult<()> {
        answer(py, || read_calls(frame, &mut self.projector))
    }

    /// Adds ranges: columns `start_ns`, `dur_ns`, `track`, `crosses_threads` and `process` if any crosses
    /// threads, and those it is grouped by. Without a duration a range is only counted.
    fn add_ranges(&mut self, py: Python<'_>, frame: Frame) -> PyResult<()> {
        answer(py, || read_ranges(frame, self))
    }

    /// What the ranges come to on the GPU, one row for each that has GPU work. Forgets everything.
    fn project(&mut self, py: Python<'_>) -> PyResult<ArrowTable> {
        let Self { projector, .. } = std::mem::take(self);
        answer_watched(py, move || projected_table(projector.project()))
    }

    /// What the ranges come to by group, with the first range of each. Forgets everything.
    fn sums(&mut self, py: Python<'_>) -> PyResult<ArrowTable> {
        let Self { projector, groups, .. } = std::mem::take(self);
        answer_watched(py, move || sum_table(&projector.sum(), &groups))
    }

    /// Every pair of a range, as an index, and the row of a call that it encloses, and whether the range
    /// is the innermost. Forgets everything.
    fn pairs(&mut self, py: Python<'_>) -> PyResult<ArrowTable> {
        let Self { projector, .. } = std::mem::take(self);
        answer_watched(py, move || pair_table(&projector.pairs()))
    }
}

fn read_work(frame: Frame, projector: &mut Projector) -> Outcome<()> {
    for batch in frame.parts() {
        let launch: &UInt32Array = nullable(batch, "launch_row")?;
        let start = column::<Int64Type>(batch, "start_ns")?;
        let length: &Int64Array = nullable(batch, "dur_ns")?;
        for ((row, &start), length) in launch.iter().zip(start.values()).zip(length) {
            if let (Some(row), Some(length)) = (row, length) {
                projector.add_work(row, start, start.saturating_add(length));
            }
        }
    }
    Ok(())
}

fn read_calls(frame: Frame, projector: &mut Projector) -> Outcome<()> {
    for batch in frame.parts() {
        let (row, track) = (column::<UInt32Type>(batch, "row")?, column::<UInt32Type>(batch, "track")?);
        let start = column::<Int64Type>(batch, "start_ns")?;
        let length: &Int64Array = nullable(batch, "dur_ns")?;
        let process = optional::<Int64Array>(batch, "process");
        for at in 0..batch.num_rows() {
            let length = if length.is_null(at) { 0 } else { length.value(at) };
            let call = Call {
                start: start.value(at),
                end: start.value(at).saturating_add(length.max(0)),
                thread: track.value(at),
                process: process.map_or(0, |process| process.value(at)),
            };
            projector.add_call(row.value(at), call);
        }
    }
    Ok(())
}

fn read_ranges(frame: Frame, into: &mut RangeProjector) -> Outcome<()> {
    for batch in frame.parts() {
        let groups = add_part(batch, &into.by, &mut into.groups)?;
        let (start, track) = (column::<Int64Type>(batch, "start_ns")?, column::<UInt32Type>(batch, "track")?);
        let length: &Int64Array = nullable(batch, "dur_ns")?;
        let process = optional::<Int64Array>(batch, "process");
        let crosses = optional::<BooleanArray>(batch, "crosses_threads");
        for (at, &group) in groups.iter().enumerate() {
            let range = (!length.is_null(at)).then(|| HostRange {
                start: start.value(at),
                end: start.value(at).saturating_add(length.value(at).max(0)),
                thread: track.value(at),
                process: process.map_or(0, |process| process.value(at)),
                crosses_threads: crosses.is_some_and(|crosses| crosses.value(at)),
            });
            into.projector.add_range(group, range);
        }
    }
    Ok(())
}

fn pair_table(pairs: &[(u32, u32, bool)]) -> Outcome<ArrowTable> {
    table(vec![
        ("range", Arc::new(pairs.iter().map(|pair| pair.0).collect::<UInt32Array>())),
        ("launch_row", Arc::new(pairs.iter().map(|pair| pair.1).collect::<UInt32Array>())),
        ("is_innermost", Arc::new(pairs.iter().map(|pair| Some(pair.2)).collect::<BooleanArray>())),
    ])
}

fn sum_table(sums: &[GroupSums], groups: &Numbering) -> Outcome<ArrowTable> {
    let column = |value: fn(&GroupSums) -> i64| -> ArrayRef {
        Arc::new(sums.iter().map(value).collect::<Int64Array>())
    };
    table(vec![
        ("first", first_rows(groups)),
        ("ranges", column(|sums| sums.ranges)),
        ("host_ns", column(|sums| sums.host_ns)),
        ("projected", column(|sums| sums.projected)),
        ("projected_host_ns", column(|sums| sums.projected_host_ns)),
        ("gpu_span_ns", column(|sums| sums.span_ns)),
        ("gpu_busy_ns", column(|sums| sums.busy_ns)),
        ("gpu_exclusive_ns", column(|sums| sums.exclusive_ns)),
        ("launches", column(|sums| sums.launches)),
        ("gpu_ops", column(|sums| sums.gpu_ops)),
    ])
}

fn projected_table(projection: Projection) -> Outcome<ArrowTable> {
    let Projection { ranges, all, own, parents, depths, children } = projection;
    let number = |totals: &[Totals], value: fn(&Totals) -> i64| -> ArrayRef {
        let known = |totals: &Totals| (totals.launches > 0).then(|| value(totals));
        Arc::new(totals.iter().map(known).collect::<Int64Array>())
    };
    let mut columns: Vec<(&str, ArrayRef)> = vec![
        ("range", Arc::new(UInt32Array::from(ranges))),
        (
            "parent",
            Arc::new(parents.iter().map(|&p| Some(p).filter(|&p| p != NONE)).collect::<UInt32Array>()),
        ),
        ("depth", Arc::new(UInt32Array::from(depths))),
        ("children", Arc::new(UInt32Array::from(children))),
        ("gpu_start_ns", number(&all, |t| t.start)),
        ("gpu_end_ns", number(&all, |t| t.end)),
        ("gpu_busy_ns", number(&all, |t| t.busy)),
        ("launches", number(&all, |t| i64::from(t.launches))),
        ("gpu_ops", number(&all, |t| i64::from(t.ops))),
    ];
    drop((all, parents));
    columns.extend([
        ("own_start_ns", number(&own, |t| t.start)),
        ("own_end_ns", number(&own, |t| t.end)),
        ("own_busy_ns", number(&own, |t| t.busy)),
        ("own_launches", number(&own, |t| i64::from(t.launches))),
        ("own_gpu_ops", number(&own, |t| i64::from(t.ops))),
    ]);
    table(columns)
}
