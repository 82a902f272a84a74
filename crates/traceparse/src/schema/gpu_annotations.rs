//! Table `gpu_annotations`.

use super::symbols::Symbol;
use super::table::table;

table! {
    /// The span on a GPU stream of all work launched under one annotation; not work itself.
    GpuAnnotations, GpuAnnotationRow, "gpu_annotations";
    recorded {
        /// Position of the event in the source; unique over all tables of the trace.
        row: u32 as row,
        /// Name as recorded; null where the event has none.
        name: Option<Symbol>,
        /// GPU index.
        device: Option<i32>,
        /// Stream id.
        stream: Option<i64>,
        /// Start, ns on the trace's clock.
        start_ns: i64 as time,
        /// Duration, ns; null where the source does not say or says nonsense.
        dur_ns: Option<i64> as duration,
        /// `External id` as recorded. Wrong in files of 2022 to 2024: use the row links instead.
        external_id: Option<i64> as id,
    }
    derived {
        /// `row` in `ops` of the annotation.
        op_row: Option<u32> as link,
    }
}
