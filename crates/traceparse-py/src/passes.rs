//! Signatures of the passes of `framekernels`, which documents each under the same name.

use framekernels::{call_tree, comparison, costing, dependencies, interval, numbering};
use pyo3::prelude::*;

use crate::frame::{ArrowTable, Frame, answer, answer_watched};

/// Declares functions of Python, each with what runs it and the pass that it calls.
macro_rules! passes {
    ($( $run:ident $name:ident($($argument:ident: $type:ty),*) -> $answer:ty = $pass:expr; )*) => { $(
        #[pyfunction]
        pub(crate) fn $name(py: Python<'_>, $($argument: $type),*) -> PyResult<$answer> {
            $run(py, move || $pass)
        }
    )* };
}

passes! {
    answer nest_slices(slices: Frame) -> ArrowTable = call_tree::nest_slices(&slices);
    answer innermost_slices(points: Frame, slices: Frame) -> Option<ArrowTable> =
        call_tree::innermost_slices(&points, &slices);
    answer marked_parents(slices: Frame) -> ArrowTable = call_tree::marked_parents(&slices);
    answer divide_rows(columns: Frame) -> (ArrowTable, ArrowTable) = numbering::divide_rows(&columns);
    answer path_texts(paths: Frame, texts: Vec<String>, wanted: Frame, root_first: bool) -> ArrowTable =
        call_tree::texts_of_paths(&paths, &texts, &wanted, root_first);
    answer fold_paths(paths: Frame, texts: Vec<String>, calls: Frame, most: usize) -> ArrowTable =
        call_tree::fold_paths(&paths, &texts, &calls, most);
    answer longest_paths(nodes: Frame, edges: Frame) -> ArrowTable = dependencies::longest_paths(&nodes, &edges);
    answer longest_spans(waits: Frame, spans: Frame, steps: Frame) -> ArrowTable =
        interval::longest_spans(&waits, &spans, &steps);
    answer nest_tracks(intervals: Frame) -> ArrowTable = interval::nest_tracks(&intervals);
    answer find_rows(rows: Frame, wanted: Frame) -> ArrowTable = numbering::find_rows(&rows, &wanted);
    answer_watched attribute_windows(claims: Frame, windows: Vec<(i64, i64)>) -> ArrowTable =
        comparison::attribute_windows(&claims, &windows);
    answer_watched align_events(a: Frame, b: Frame, levels: Vec<String>) -> ArrowTable =
        comparison::align_events(&a, &b, &levels);
    answer cost_owners(calls: Frame, traits: Frame, anchors: Option<Frame>, outermost: bool)
        -> (ArrowTable, ArrowTable) = costing::cost_owners(&calls, &traits, anchors.as_deref(), outermost);
    answer operator_work(pieces: Frame, marks: Frame, count: usize) -> ArrowTable =
        costing::operator_work(&pieces, &marks, count);
}
