//! Signatures of the passes of `framekernels`, which documents each under the same name.

use framekernels::{call_tree, comparison, costing, interval, numbering};
use pyo3::prelude::*;

use crate::frame::{ArrowTable, Frame, answer, answer_watched};

#[pyfunction]
pub(crate) fn nest_slices(py: Python<'_>, slices: Frame) -> PyResult<ArrowTable> {
    answer(py, || call_tree::nest_slices(&slices))
}

#[pyfunction]
pub(crate) fn innermost_slices(py: Python<'_>, points: Frame, slices: Frame) -> PyResult<Option<ArrowTable>> {
    answer(py, || call_tree::innermost_slices(&points, &slices))
}

#[pyfunction]
pub(crate) fn slice_lineage(py: Python<'_>, slices: Frame, wanted: Frame) -> PyResult<ArrowTable> {
    answer(py, || call_tree::slice_lineage(&slices, &wanted))
}

#[pyfunction]
pub(crate) fn marked_parents(py: Python<'_>, slices: Frame) -> PyResult<ArrowTable> {
    answer(py, || call_tree::marked_parents(&slices))
}

#[pyfunction]
pub(crate) fn divide_rows(py: Python<'_>, columns: Frame) -> PyResult<(ArrowTable, ArrowTable)> {
    answer(py, || numbering::divide_rows(&columns))
}

/// See `framekernels::call_tree::texts_of_paths`.
#[pyfunction]
pub(crate) fn path_texts(
    py: Python<'_>,
    paths: Frame,
    texts: Vec<String>,
    wanted: Frame,
    root_first: bool,
) -> PyResult<ArrowTable> {
    answer(py, || call_tree::texts_of_paths(&paths, &texts, &wanted, root_first))
}

#[pyfunction]
pub(crate) fn fold_paths(
    py: Python<'_>,
    paths: Frame,
    texts: Vec<String>,
    calls: Frame,
    most: usize,
) -> PyResult<ArrowTable> {
    answer(py, || call_tree::fold_paths(&paths, &texts, &calls, most))
}

#[pyfunction]
pub(crate) fn longest_spans(
    py: Python<'_>,
    waits: Frame,
    spans: Frame,
    steps: Frame,
) -> PyResult<ArrowTable> {
    answer(py, || interval::longest_spans(&waits, &spans, &steps))
}

#[pyfunction]
pub(crate) fn find_rows(py: Python<'_>, rows: Frame, wanted: Frame) -> PyResult<ArrowTable> {
    answer(py, || numbering::find_rows(&rows, &wanted))
}

#[pyfunction]
pub(crate) fn attribute_windows(
    py: Python<'_>,
    claims: Frame,
    windows: Vec<(i64, i64)>,
) -> PyResult<ArrowTable> {
    answer_watched(py, move || comparison::attribute_windows(&claims, &windows))
}

#[pyfunction]
pub(crate) fn align_events(py: Python<'_>, a: Frame, b: Frame, levels: Vec<String>) -> PyResult<ArrowTable> {
    answer_watched(py, move || comparison::align_events(&a, &b, &levels))
}

#[pyfunction]
pub(crate) fn cost_owners(
    py: Python<'_>,
    calls: Frame,
    traits: Frame,
    anchors: Option<Frame>,
    outermost: bool,
) -> PyResult<(ArrowTable, ArrowTable)> {
    answer(py, || costing::cost_owners(&calls, &traits, anchors.as_deref(), outermost))
}
