//! Table `syncs`.

use super::symbols::Symbol;
use super::table::table;

table! {
    /// A synchronisation or event record on a stream, event or context; timed on the CPU.
    Syncs, SyncRow, "syncs";
    recorded {
        /// Position of the event in the source; unique over all tables of the trace.
        row: u32 as row,
        /// Name as recorded; null where the event has none.
        name: Option<Symbol>,
        /// Category as recorded (`cat`).
        category: Option<Symbol>,
        /// Process that made the call; null where the source does not say.
        pid: Option<i64>,
        /// GPU index.
        device: Option<i32>,
        /// Stream id; null for a whole context.
        stream: Option<i64>,
        /// Start, ns on the trace's clock.
        start_ns: i64 as time,
        /// Duration, ns; null where the source does not say or says nonsense.
        dur_ns: Option<i64> as duration,
        /// Correlation id, shared by a launch and the GPU work it started.
        correlation: Option<i64> as id,
        /// `External id` as recorded. Wrong in files of 2022 to 2024: use the row links instead.
        external_id: Option<i64> as id,
        /// `cuda_sync_kind` as recorded.
        kind: Option<Symbol>,
        /// CUDA event waited on or recorded; null where unknown.
        event_id: Option<i64>,
        /// Stream that recorded the awaited event; null where unknown.
        wait_stream: Option<i64>,
        /// Correlation id of the `cudaEventRecord` call waited on; null where unknown.
        wait_correlation: Option<i64>,
    }
    derived {
        /// `row` of the API call with the same correlation id.
        launch_row: Option<u32> as link,
    }
}
