//! The extension module `kernelscope._traceparse`: signatures, error mapping and the hand-over of
//! tables; everything else is in `traceparse`.
#![allow(clippy::needless_pass_by_value, reason = "arguments from Python come by value")]

mod answer;
mod call_tree;
mod comparison;
mod costing;
mod demo;
mod describe;
mod errors;
mod export;
mod frame;
mod intervals;
mod launching;
mod memory;
mod numbering;
mod pack;
mod projection;
mod reading;
mod slices;
mod table;
mod timeline;
mod watch;

/// Reads profiler traces into Arrow tables, and writes demo traces.
#[pyo3::pymodule]
mod _traceparse {
    #[pymodule_export]
    use super::call_tree::{CallTree, divide_rows, fold_paths, path_texts, told_paths};
    #[pymodule_export]
    use super::comparison::{align_events, divide_windows};
    #[pymodule_export]
    use super::costing::{CallCosting, WorkCosting, WorkPairs};
    #[pymodule_export]
    use super::demo::{demo_layouts, write_demo, write_demo_database};
    #[pymodule_export]
    use super::describe::describe_tables;
    #[pymodule_export]
    use super::errors::error_classes;
    #[pymodule_export]
    use super::export::JsonEventWriter;
    #[pymodule_export]
    use super::intervals::{Intervals, depth_changes, depth_totals, longest_spans, rows_within};
    #[pymodule_export]
    use super::launching::describe_launches;
    #[pymodule_export]
    use super::memory::AllocatorRecords;
    #[pymodule_export]
    use super::numbering::{
        describe_groups, distinct_rows, find_rows, heaviest_rows, sum_groups, weigh_groups,
    };
    #[pymodule_export]
    use super::pack::gzip;
    #[pymodule_export]
    use super::projection::RangeProjector;
    #[pymodule_export]
    use super::reading::{RawTrace, read};
    #[pymodule_export]
    use super::slices::{
        call_members, covered_calls, innermost_slices, marked_parents, nest_slices, slice_lineage,
    };
    #[pymodule_export]
    use super::table::ArrowTable;
    #[pymodule_export]
    use super::timeline::TimelineIndex;

    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "the name Python shows")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "the name Python shows")]
    const is_debug_build: bool = cfg!(debug_assertions);
}
