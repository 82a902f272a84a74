//! The extension module `kernelscope._traceparse`: signatures, error mapping and the hand-over of
//! tables; everything else is in `traceparse`.
#![allow(clippy::needless_pass_by_value, reason = "arguments from Python come by value")]

mod classes;
mod demo;
mod describe;
mod errors;
mod export;
mod frame;
mod gathering;
mod passes;
mod reading;
mod watch;

/// Reads profiler traces into Arrow tables, and writes demo traces.
#[pyo3::pymodule]
mod _traceparse {
    #[pymodule_export]
    use super::classes::{
        AllocatorRecords, CallTree, DependencyGraph, Intervals, RangeProjector, Replay, TimelineIndex,
    };
    #[pymodule_export]
    use super::demo::{
        demo_causes, demo_layouts, demo_recomputes, demo_training_causes, write_demo, write_demo_database,
        write_demo_serving, write_demo_training,
    };
    #[pymodule_export]
    use super::describe::{describe_diagnostics, describe_tables, host_collectives, step_lengths};
    #[pymodule_export]
    use super::errors::error_classes;
    #[pymodule_export]
    use super::export::TraceEventWriter;
    #[pymodule_export]
    use super::frame::ArrowTable;
    #[pymodule_export]
    use super::gathering::gather_row_groups;
    #[pymodule_export]
    use super::passes::{
        align_events, attribute_windows, cost_owners, divide_rows, find_rows, fold_paths, innermost_slices,
        longest_paths, longest_spans, marked_parents, nest_slices, nest_tracks, operator_work, path_texts,
    };
    #[pymodule_export]
    use super::reading::{RawTrace, read};

    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "the name Python shows")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "the name Python shows")]
    const is_debug_build: bool = cfg!(debug_assertions);
}
