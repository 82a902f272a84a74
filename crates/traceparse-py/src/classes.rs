//! The classes of `framekernels`, as Python sees them.

use std::sync::Arc;

use framekernels::{call_tree, dependencies, interval, memory, projection, timeline};
use pyo3::prelude::*;

use crate::frame::{ArrowTable, Frame, answer, answer_watched, run};

/// Declares the methods of a class: those that are written out, and those that only hand on to `framekernels`,
/// each with the answer.
macro_rules! methods {
    ($class:ident { $($written:tt)* }
     $( $(#[$attribute:meta])* $name:ident(&$($this:ident)+ $(, $argument:ident: $type:ty)*) -> $answer:ty
        = $pass:expr; )*) => {
        #[pymethods]
        impl $class {
            $($written)*

            $( $(#[$attribute])*
            fn $name(&$($this)+, py: Python<'_> $(, $argument: $type)*) -> PyResult<$answer> {
                answer(py, || $pass)
            } )*
        }
    };
}

/// See `framekernels::call_tree::CallTree`.
#[pyclass(module = "kernelscope._traceparse")]
pub(crate) struct CallTree(call_tree::CallTree);

methods! {
    CallTree {
        #[new]
        fn new(py: Python<'_>, calls: Frame) -> PyResult<Self> {
            run(py, || call_tree::CallTree::new(&calls)).map(Self)
        }

        fn copy_structure(&self) -> Self {
            Self(self.0.copy_structure())
        }
    }
    merge_repeats(&mut self, names: Frame) -> () = self.0.merge_repeats(&names);
    #[pyo3(signature = (marks, classes=None))]
    keep_marked(&mut self, marks: Frame, classes: Option<Frame>) -> () =
        self.0.keep_marked(&marks, classes.as_deref());
    kept(&self) -> ArrowTable = self.0.kept();
    parents(&self) -> ArrowTable = self.0.parents();
    put(&mut self, values: Frame) -> () = self.0.put(&values);
    put_by_class(&mut self, classes: Frame, values: Frame) -> () = self.0.put_by_class(&classes, &values);
    put_records(&mut self, calls: Frame, records: Frame, device_types: Vec<i64>, into: &str) -> () =
        self.0.put_records(&calls, &records, &device_types, into);
    add(&mut self, values: Frame) -> () = self.0.add(&values);
    add_by_class(&mut self, values: Frame, classes: Frame, keys: Frame, counts: Vec<String>, sums: Vec<String>)
        -> () = self.0.add_by_class(&values, &classes, &keys, &counts, &sums);
    put_own_time(&mut self, calls: Frame, others: Frame, into: &str) -> () =
        self.0.put_own_time(&calls, &others, into);
    subtract_children(&mut self, column: &str, into: &str) -> () = self.0.subtract_children(column, into);
    with_inner(&mut self, column: &str, into: &str) -> () = self.0.with_inner(column, into);
    mark_changes(&mut self, column: &str, into: &str) -> () = self.0.mark_changes(column, into);
    columns(&self, names: Vec<String>) -> ArrowTable = self.0.columns(&names);
    columns_where(&self, column: &str, names: Vec<String>) -> ArrowTable =
        self.0.columns_where(column, &names);
    class_sums(&self, classes: Frame, count: usize, names: Vec<String>) -> ArrowTable =
        self.0.class_sums(&classes, count, &names);
    paths(&self, names: Frame, most_levels: u32) -> (ArrowTable, ArrowTable) =
        self.0.paths(&names, most_levels);
}

/// See `framekernels::interval::Intervals`.
#[pyclass(module = "kernelscope._traceparse", frozen)]
pub(crate) struct Intervals(interval::Intervals);

methods! {
    Intervals {
        #[new]
        fn new(py: Python<'_>, frame: Frame) -> PyResult<Self> {
            run(py, || interval::Intervals::new(&frame)).map(Self)
        }

        fn part(&self, py: Python<'_>, marks: Frame, of: Option<Frame>) -> PyResult<Self> {
            run(py, || self.0.part(&marks, of.as_deref())).map(Self)
        }

        fn regrouped(&self, py: Python<'_>, groups: Option<Frame>) -> PyResult<Self> {
            run(py, || self.0.regrouped(groups.as_deref())).map(Self)
        }
    }
    union(&self) -> ArrowTable = self.0.union();
    covered(&self, levels: Frame, of: Option<Frame>, window: Option<(i64, i64)>) -> ArrowTable =
        self.0.covered(&levels, of.as_deref(), window);
    gaps(&self, launched: Frame, launches: Frame) -> ArrowTable = self.0.gaps(&launched, &launches);
    queues(&self, launched: Frame, launches: Frame) -> ArrowTable = self.0.queues(&launched, &launches);
    filled(&self, shares: Frame, of: Option<Frame>, window: Option<(i64, i64)>) -> ArrowTable =
        self.0.filled(&shares, of.as_deref(), window);
    runs(&self, labels: Frame) -> ArrowTable = self.0.runs(&labels);
    shared(&self) -> ArrowTable = self.0.shared();
    groups(&self) -> ArrowTable = self.0.groups();
    hidden_by(&self, cover: &Intervals) -> ArrowTable = self.0.hidden_by(&cover.0);
}

/// See `framekernels::dependencies::DependencyGraph`.
#[pyclass(frozen, module = "kernelscope._traceparse")]
pub(crate) struct DependencyGraph(Arc<dependencies::DependencyGraph>);

methods! {
    DependencyGraph {
        #[new]
        fn new(
            py: Python<'_>,
            host: Frame,
            callers: Frame,
            gpu: Frame,
            waits: Frame,
            events: Frame,
            handed: Frame,
        ) -> PyResult<Self> {
            let graph =
                || dependencies::DependencyGraph::new(&host, &callers, &gpu, &waits, &events, &handed);
            run(py, || graph().map(Arc::new)).map(Self)
        }

        /// The names of edges, by number.
        fn edge_names(&self) -> [&'static str; 9] {
            dependencies::EDGES
        }

        #[pyo3(signature = (changes=None, skipped=None, *, keeps_unknown=false))]
        fn replay(
            &self,
            py: Python<'_>,
            changes: Option<Frame>,
            skipped: Option<Frame>,
            keeps_unknown: bool,
        ) -> PyResult<Replay> {
            let graph = Arc::clone(&self.0);
            let replay =
                || dependencies::Replay::new(graph, changes.as_deref(), skipped.as_deref(), keeps_unknown);
            run(py, replay).map(Replay)
        }
    }
    size(&self) -> ArrowTable = self.0.size();
    classes(&self) -> ArrowTable = self.0.classes();
    enclosing(&self, marks: Frame, outermost: bool) -> ArrowTable = self.0.enclosing(&marks, outermost);
}

/// See `framekernels::dependencies::Replay`.
#[pyclass(frozen, module = "kernelscope._traceparse")]
pub(crate) struct Replay(dependencies::Replay);

methods! {
    Replay {}
    times(&self) -> ArrowTable = self.0.times();
    latest_marks(&self, marks: Frame, groups: usize) -> ArrowTable = self.0.latest_marks(&marks, groups);
    terms(&self, meetings: Frame, marks: Frame, groups: usize) -> ArrowTable =
        self.0.terms(&meetings, &marks, groups);
    slack(&self, end_ns: i64) -> ArrowTable = self.0.slack(end_ns);
    critical_paths(&self, windows: Vec<(i64, i64)>, to: Vec<Option<u32>>) -> ArrowTable =
        self.0.critical_paths(&windows, &to);
}

/// See `framekernels::memory::AllocatorRecords`.
#[pyclass(frozen, module = "kernelscope._traceparse")]
pub(crate) struct AllocatorRecords(memory::AllocatorRecords);

methods! {
    AllocatorRecords {
        #[new]
        fn new(py: Python<'_>, records: Frame, devices: usize) -> PyResult<Self> {
            run(py, || memory::AllocatorRecords::new(&records, devices)).map(Self)
        }
    }
    partners(&self, anywhere: bool) -> ArrowTable = self.0.partners(anywhere);
    courses(&self) -> ArrowTable = self.0.courses();
    curve(&self, device: u32, most: Option<usize>) -> ArrowTable = self.0.curve(device, most);
    held(&self, device: u32, times: Vec<i64>) -> Option<ArrowTable> = self.0.held(device, &times);
    alive(&self) -> ArrowTable = self.0.alive();
}

/// See `framekernels::projection::RangeProjector`.
#[pyclass(module = "kernelscope._traceparse")]
pub(crate) struct RangeProjector(projection::RangeProjector);

methods! {
    RangeProjector {
        #[new]
        fn new(by: Vec<String>) -> Self {
            Self(projection::RangeProjector::new(by))
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
    add_work(&mut self, frame: Frame) -> () = self.0.add_work(&frame);
    add_calls(&mut self, frame: Frame) -> () = self.0.add_calls(&frame);
    add_ranges(&mut self, frame: Frame) -> () = self.0.add_ranges(&frame);
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

    #[pyo3(signature = (start_ns, end_ns, pixels, only=None, most=None))]
    fn show(
        &self,
        py: Python<'_>,
        start_ns: i64,
        end_ns: i64,
        pixels: u32,
        only: Option<Vec<u32>>,
        most: Option<usize>,
    ) -> PyResult<Option<ArrowTable>> {
        let timeline = Arc::clone(&self.timeline);
        let span = (start_ns, end_ns);
        answer_watched(py, move || timeline::show(&timeline, span, pixels, only.as_deref(), most))
    }
}
