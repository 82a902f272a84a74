//! Table `memory`.

use super::symbols::Symbol;
use super::table::table;

table! {
    /// An allocation, a free or an out-of-memory event of the caching allocator, or of the
    /// device's own allocator in a database of nsys.
    MemoryEvents, MemoryRow, "memory";
    recorded {
        /// Position of the event in the source; unique over all tables of the trace.
        row: u32 as row,
        /// Name as recorded; null where the event has none.
        name: Option<Symbol>,
        /// Number of the (pid, tid) pair the event is drawn on; key of `threads`.
        track: u32 as track,
        /// Start, ns on the trace's clock.
        start_ns: i64 as time,
        /// Address of the block.
        address: Option<u64>,
        /// Bytes allocated, negative when freed.
        bytes: Option<i64>,
        /// Bytes allocated on the device after the event.
        total_allocated_bytes: Option<i64>,
        /// Bytes reserved on the device after the event.
        total_reserved_bytes: Option<i64>,
        /// Kind of memory, such as `Device` or `Managed`, where recorded.
        memory_kind: Option<Symbol>,
        /// PyTorch's device type: 0 CPU, 1 CUDA, 6 HIP, 12 XPU, 19 MTIA, 20 PrivateUse1.
        device_type: Option<i32>,
        /// Device index; -1 for the CPU.
        device_id: Option<i32>,
        /// Call stack as recorded.
        call_stack: Option<Symbol>,
        /// `Ev Idx`: order of collection inside the profiler.
        event_index: Option<i64> as id,
    }
    derived {
        /// Process id; null where the source has a text (see `threads`).
        pid: Option<i64> as id,
        /// Thread id; null where the source has a text (see `threads`).
        tid: Option<i64> as id,
        /// Number of the profiler step the row belongs to.
        step: Option<i32>,
    }
}
