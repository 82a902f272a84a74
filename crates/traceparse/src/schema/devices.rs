//! Table `devices`.

use super::symbols::Symbol;
use super::table::table;

table! {
    /// A GPU that the trace describes or uses.
    Devices, DeviceRow, "devices";
    recorded {
        /// GPU index.
        device: i32,
        /// Product name.
        name: Option<Symbol>,
        /// Memory, bytes.
        total_memory_bytes: Option<i64>,
        /// Compute capability, major.
        compute_major: Option<i64>,
        /// Compute capability, minor.
        compute_minor: Option<i64>,
        /// Streaming multiprocessors or compute units.
        sm_count: Option<i64>,
        /// Threads in a warp or wavefront.
        warp_size: Option<i64>,
        /// Limit of threads per block.
        max_threads_per_block: Option<i64>,
        /// Limit of resident threads per SM.
        max_threads_per_sm: Option<i64>,
        /// Limit of registers per block.
        registers_per_block: Option<i64>,
        /// Registers per SM.
        registers_per_sm: Option<i64>,
        /// Default limit of shared memory per block, bytes.
        shared_memory_per_block_bytes: Option<i64>,
        /// Opt-in limit of shared memory per block, bytes.
        shared_memory_per_block_optin_bytes: Option<i64>,
        /// Shared memory per SM, bytes.
        shared_memory_per_sm_bytes: Option<i64>,
    }
    derived {}
}
