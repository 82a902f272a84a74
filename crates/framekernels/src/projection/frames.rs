//! Work, calls and ranges that come in frames.

use arrow_array::RecordBatch;
use arrow_array::types::{Int64Type, UInt32Type};

use super::{Call, HostRange, Projection, Projector, Totals};
use crate::frame::{Frame, NONE, Result, column, is_set, positions, records, table};
use crate::numbering::Numbering;

/// Collects GPU work, then the calls, then the host ranges, and relates them.
///
/// Frames are added part by part, so that their copies are never all there at once.
#[derive(Debug, Default)]
pub struct RangeProjector {
    projector: Projector,
    /// The columns that agree in a group.
    by: Vec<String>,
    groups: Numbering,
}

impl RangeProjector {
    /// Groups ranges by the columns `by`.
    pub fn new(by: Vec<String>) -> Self {
        Self { by, ..Self::default() }
    }

    /// Adds GPU work: columns `launch_row`, `start_ns` and `dur_ns`; rows that lack any are left out.
    pub fn add_work(&mut self, work: &Frame) -> Result<()> {
        let (launches, starts) = (work.u32_array("launch_row")?, work.values::<Int64Type>("start_ns")?);
        let lengths = work.nullable_i64("dur_ns")?;
        for ((&row, &start), length) in launches.iter().zip(starts).zip(&lengths) {
            if let Some(length) = length.filter(|_| row != NONE) {
                self.projector.add_work(row, start, start.saturating_add(length));
            }
        }
        Ok(())
    }

    /// Adds calls: columns `row`, `start_ns`, `dur_ns` (0 if null), `track`, and, if ranges cross threads or
    /// threads wait for others, `process` and `caller_track`.
    pub fn add_calls(&mut self, calls: &Frame) -> Result<()> {
        let (rows, tracks) = (calls.values::<UInt32Type>("row")?, calls.values::<UInt32Type>("track")?);
        let (starts, lengths) = (calls.values::<Int64Type>("start_ns")?, calls.i64_array("dur_ns")?);
        let process = process_of(calls)?;
        let callers = calls.has("caller_track").then(|| calls.u32_array("caller_track")).transpose()?;
        for (at, &row) in rows.iter().enumerate() {
            let (start, end) = (starts[at], starts[at].saturating_add(lengths[at].max(0)));
            let caller = callers.as_ref().map_or(NONE, |callers| callers[at]);
            let call = Call { start, end, thread: tracks[at], process: process(at), caller };
            self.projector.add_call(row, call);
        }
        Ok(())
    }

    /// Adds ranges: columns `start_ns`, `dur_ns`, `track`, `crosses_threads` and `process` if any crosses
    /// threads, and those it is grouped by. Without a duration a range is only counted.
    pub fn add_ranges(&mut self, ranges: &Frame) -> Result<()> {
        let groups = self.groups.add(ranges, self.by.iter().map(String::as_str))?;
        let (starts, tracks) =
            (ranges.values::<Int64Type>("start_ns")?, ranges.values::<UInt32Type>("track")?);
        let (lengths, process) = (ranges.nullable_i64("dur_ns")?, process_of(ranges)?);
        let crosses = ranges.has("crosses_threads").then(|| ranges.flags("crosses_threads")).transpose()?;
        for ((at, &group), length) in groups.iter().enumerate().zip(&lengths) {
            let range = length.map(|length| HostRange {
                start: starts[at],
                end: starts[at].saturating_add(length.max(0)),
                thread: tracks[at],
                process: process(at),
                crosses_threads: crosses.as_ref().is_some_and(|crosses| is_set(crosses, at)),
            });
            self.projector.add_range(group, range);
        }
        Ok(())
    }

    /// Where the ranges are on the GPU, one row for each that has GPU work: see [`Projection`].
    pub fn project(self) -> Result<RecordBatch> {
        let Projection { ranges, all, own, parents, depths, children } = self.projector.project();
        let known = |totals: &[Totals], value: fn(&Totals) -> i64| {
            column(totals.iter().map(|totals| (totals.launches > 0).then(|| value(totals))))
        };
        table([
            ("range", column(ranges)),
            ("parent", positions(parents)),
            ("depth", column(depths)),
            ("children", column(children)),
            ("gpu_start_ns", known(&all, |totals| totals.start)),
            ("gpu_end_ns", known(&all, |totals| totals.end)),
            ("gpu_busy_ns", known(&all, |totals| totals.busy)),
            ("gpu_work_ns", known(&all, |totals| totals.work)),
            ("launches", known(&all, |totals| totals.launches.into())),
            ("gpu_ops", known(&all, |totals| totals.ops.into())),
            ("other_thread_ns", known(&all, |totals| totals.other_thread)),
            ("own_start_ns", known(&own, |totals| totals.start)),
            ("own_end_ns", known(&own, |totals| totals.end)),
            ("own_busy_ns", known(&own, |totals| totals.busy)),
            ("own_work_ns", known(&own, |totals| totals.work)),
            ("own_launches", known(&own, |totals| totals.launches.into())),
            ("own_gpu_ops", known(&own, |totals| totals.ops.into())),
        ])
    }

    /// The ranges summed by group, with the first range of each, `first`: see [`GroupSums`](super::GroupSums).
    pub fn sums(self) -> Result<RecordBatch> {
        let (sums, first) = (self.projector.sum(), self.groups.first());
        let sums: Vec<_> = first.iter().zip(sums).collect();
        records!(sums, of =>
            first: *of.0,
            ranges: of.1.ranges,
            host_ns: of.1.host_ns,
            projected: of.1.projected,
            projected_host_ns: of.1.projected_host_ns,
            gpu_span_ns: of.1.span_ns,
            gpu_busy_ns: of.1.busy_ns,
            gpu_exclusive_ns: of.1.exclusive_ns,
            launches: of.1.launches,
            gpu_ops: of.1.gpu_ops,
            other_thread_ns: of.1.other_thread_ns,
        )
    }

    /// Every pair of a `range`, as an index, and the `launch_row` of a call that it encloses, and whether the
    /// range `is_innermost`.
    pub fn pairs(self) -> Result<RecordBatch> {
        let pairs = self.projector.pairs();
        records!(pairs, pair => range: pair.0, launch_row: pair.1, is_innermost: pair.2)
    }
}

/// The process of each row; 0 where there is no such column.
fn process_of(frame: &Frame) -> Result<impl Fn(usize) -> i64> {
    let process = frame.has("process").then(|| frame.i64_array("process")).transpose()?;
    Ok(move |at: usize| process.as_ref().map_or(0, |process| process[at]))
}
