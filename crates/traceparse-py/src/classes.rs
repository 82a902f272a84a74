//! The classes of `framekernels`, as Python sees them.

use std::sync::Arc;

use framekernels::{call_tree, interval, memory, projection, timeline};
use pyo3::prelude::*;

use crate::frame::{ArrowTable, Frame, answer, answer_watched, run};

/// See `framekernels::call_tree::CallTree`.
#[pyclass(module = "kernelscope._traceparse")]
pub(crate) struct CallTree(call_tree::CallTree);

#[pymethods]
impl CallTree {
    #[new]
    fn new(py: Python<'_>, calls: Frame) -> PyResult<Self> {
        run(py, || call_tree::CallTree::new(&calls)).map(Self)
    }

    fn merge_repeats(&mut self, py: Python<'_>, names: Frame) -> PyResult<()> {
        answer(py, || self.0.merge_repeats(&names))
    }

    #[pyo3(signature = (marks, classes=None))]
    fn keep_marked(&mut self, py: Python<'_>, marks: Frame, classes: Option<Frame>) -> PyResult<()> {
        answer(py, || self.0.keep_marked(&marks, classes.as_deref()))
    }

    fn copy_structure(&self) -> Self {
        Self(self.0.copy_structure())
    }

    fn kept(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        answer(py, || self.0.kept())
    }

    fn parents(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        answer(py, || self.0.parents())
    }

    fn put(&mut self, py: Python<'_>, values: Frame) -> PyResult<()> {
        answer(py, || self.0.put(&values))
    }

    fn put_by_class(&mut self, py: Python<'_>, classes: Frame, values: Frame) -> PyResult<()> {
        answer(py, || self.0.put_by_class(&classes, &values))
    }

    fn put_records(
        &mut self,
        py: Python<'_>,
        calls: Frame,
        records: Frame,
        device_types: Vec<i64>,
        into: &str,
    ) -> PyResult<()> {
        answer(py, || self.0.put_records(&calls, &records, &device_types, into))
    }

    fn add(&mut self, py: Python<'_>, values: Frame) -> PyResult<()> {
        answer(py, || self.0.add(&values))
    }

    fn add_by_class(
        &mut self,
        py: Python<'_>,
        values: Frame,
        classes: Frame,
        keys: Frame,
        counts: Vec<String>,
        sums: Vec<String>,
    ) -> PyResult<()> {
        answer(py, || self.0.add_by_class(&values, &classes, &keys, &counts, &sums))
    }

    fn subtract_outermost(&mut self, py: Python<'_>, slices: Frame, into: &str) -> PyResult<()> {
        answer(py, || self.0.subtract_outermost(&slices, into))
    }

    fn subtract_children(&mut self, py: Python<'_>, column: &str, into: &str) -> PyResult<()> {
        answer(py, || self.0.subtract_children(column, into))
    }

    fn with_inner(&mut self, py: Python<'_>, column: &str, into: &str) -> PyResult<()> {
        answer(py, || self.0.with_inner(column, into))
    }

    fn mark_changes(&mut self, py: Python<'_>, column: &str, into: &str) -> PyResult<()> {
        answer(py, || self.0.mark_changes(column, into))
    }

    fn columns(&self, py: Python<'_>, names: Vec<String>) -> PyResult<ArrowTable> {
        answer(py, || self.0.columns(&names))
    }

    fn columns_where(&self, py: Python<'_>, column: &str, names: Vec<String>) -> PyResult<ArrowTable> {
        answer(py, || self.0.columns_where(column, &names))
    }

    fn class_sums(
        &self,
        py: Python<'_>,
        classes: Frame,
        count: usize,
        names: Vec<String>,
    ) -> PyResult<ArrowTable> {
        answer(py, || self.0.class_sums(&classes, count, &names))
    }

    fn paths(&self, py: Python<'_>, names: Frame, most_levels: u32) -> PyResult<(ArrowTable, ArrowTable)> {
        answer(py, || self.0.paths(&names, most_levels))
    }
}

/// See `framekernels::interval::Intervals`.
#[pyclass(module = "kernelscope._traceparse", frozen)]
pub(crate) struct Intervals(interval::Intervals);

#[pymethods]
impl Intervals {
    #[new]
    fn new(py: Python<'_>, frame: Frame) -> PyResult<Self> {
        run(py, || interval::Intervals::new(&frame)).map(Self)
    }

    fn union(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        answer(py, || self.0.union())
    }

    fn covered(
        &self,
        py: Python<'_>,
        levels: Frame,
        of: Option<Frame>,
        window: Option<(i64, i64)>,
    ) -> PyResult<ArrowTable> {
        answer(py, || self.0.covered(&levels, of.as_deref(), window))
    }

    fn gaps(&self, py: Python<'_>, launched: Frame, launches: Frame) -> PyResult<ArrowTable> {
        answer(py, || self.0.gaps(&launched, &launches))
    }

    fn filled(
        &self,
        py: Python<'_>,
        shares: Frame,
        of: Option<Frame>,
        window: Option<(i64, i64)>,
    ) -> PyResult<ArrowTable> {
        answer(py, || self.0.filled(&shares, of.as_deref(), window))
    }

    fn runs(&self, py: Python<'_>, labels: Frame) -> PyResult<ArrowTable> {
        answer(py, || self.0.runs(&labels))
    }

    fn part(&self, py: Python<'_>, marks: Frame, of: Option<Frame>) -> PyResult<Self> {
        run(py, || self.0.part(&marks, of.as_deref())).map(Self)
    }

    fn regrouped(&self, py: Python<'_>, groups: Option<Frame>) -> PyResult<Self> {
        run(py, || self.0.regrouped(groups.as_deref())).map(Self)
    }

    fn shared(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        answer(py, || self.0.shared())
    }

    fn groups(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        answer(py, || self.0.groups())
    }

    fn hidden_by(&self, py: Python<'_>, cover: &Intervals) -> PyResult<ArrowTable> {
        answer(py, || self.0.hidden_by(&cover.0))
    }
}

/// See `framekernels::memory::AllocatorRecords`.
#[pyclass(frozen, module = "kernelscope._traceparse")]
pub(crate) struct AllocatorRecords(memory::AllocatorRecords);

#[pymethods]
impl AllocatorRecords {
    #[new]
    fn new(py: Python<'_>, records: Frame, devices: usize) -> PyResult<Self> {
        run(py, || memory::AllocatorRecords::new(&records, devices)).map(Self)
    }

    fn partners(&self, py: Python<'_>, anywhere: bool) -> PyResult<ArrowTable> {
        answer(py, || self.0.partners(anywhere))
    }

    fn courses(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        answer(py, || self.0.courses())
    }

    fn curve(&self, py: Python<'_>, device: u32, most: Option<usize>) -> PyResult<ArrowTable> {
        answer(py, || self.0.curve(device, most))
    }

    fn held(&self, py: Python<'_>, device: u32, times: Vec<i64>) -> PyResult<Option<ArrowTable>> {
        answer(py, || self.0.held(device, &times))
    }

    fn alive(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        answer(py, || self.0.alive())
    }
}

/// See `framekernels::projection::RangeProjector`.
#[pyclass(module = "kernelscope._traceparse")]
pub(crate) struct RangeProjector(projection::RangeProjector);

#[pymethods]
impl RangeProjector {
    #[new]
    fn new(by: Vec<String>) -> Self {
        Self(projection::RangeProjector::new(by))
    }

    fn add_work(&mut self, py: Python<'_>, frame: Frame) -> PyResult<()> {
        answer(py, || self.0.add_work(&frame))
    }

    fn add_calls(&mut self, py: Python<'_>, frame: Frame) -> PyResult<()> {
        answer(py, || self.0.add_calls(&frame))
    }

    fn add_ranges(&mut self, py: Python<'_>, frame: Frame) -> PyResult<()> {
        answer(py, || self.0.add_ranges(&frame))
    }

    /// Forgets everything, as `sums` and `pairs` do.
    fn project(&mut self, py: Python<'_>) -> PyResult<ArrowTable> {
        let projector = std::mem::take(&mut self.0);
        answer_watched(py, move || projector.project())
    }

    fn sums(&mut self, py: Python<'_>) -> PyResult<ArrowTable> {
        let projector = std::mem::take(&mut self.0);
        answer_watched(py, move || projector.sums())
    }

    fn pairs(&mut self, py: Python<'_>) -> PyResult<ArrowTable> {
        let projector = std::mem::take(&mut self.0);
        answer_watched(py, move || projector.pairs())
    }
}

/// See `framekernels::timeline::TimelineIndex`.
#[pyclass(module = "kernelscope._traceparse")]
#[derive(Default)]
pub(crate) struct TimelineIndex {
    index: timeline::TimelineIndex,
    timeline: Arc<timeline::Timeline>,
}

#[pymethods]
impl TimelineIndex {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn add(&mut self, py: Python<'_>, frame: Frame, kind: u32, by: Vec<String>) -> PyResult<()> {
        answer(py, || self.index.add(&frame, kind, &by))
    }

    fn tracks(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        answer(py, || self.index.tracks())
    }

    /// Nothing can be added afterwards; gives the first start and the last end.
    fn build(&mut self, py: Python<'_>, numbers: Vec<u32>) -> PyResult<Option<(i64, i64)>> {
        self.timeline = Arc::new(run(py, || Ok(self.index.build(numbers)))?);
        Ok(self.timeline.extent())
    }

    #[pyo3(signature = (start_ns, end_ns, pixels, most=None))]
    fn show(
        &self,
        py: Python<'_>,
        start_ns: i64,
        end_ns: i64,
        pixels: u32,
        most: Option<usize>,
    ) -> PyResult<Option<ArrowTable>> {
        let timeline = Arc::clone(&self.timeline);
        answer_watched(py, move || timeline::show(&timeline, (start_ns, end_ns), pixels, most))
    }
}
