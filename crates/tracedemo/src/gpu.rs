//! The GPU of the demo, an H100 SXM, and what its limits make of a kernel launch.

use crate::event::list;

/// GPUs of a host.
pub(crate) const GPUS: u32 = 8;
/// Streaming multiprocessors.
const SM_COUNT: u32 = 132;
const MAX_THREADS_PER_SM: u32 = 2048;
const MAX_BLOCKS_PER_SM: u32 = 32;
const REGISTERS_PER_SM: u32 = 65536;
const SHARED_MEMORY_PER_SM: u32 = 233_472;
/// Shared memory that the system takes from each resident block.
const SHARED_MEMORY_RESERVED: u32 = 1024;

/// A kernel's launch parameters and what limits it.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// Demangled name.
    pub(crate) name: String,
    /// Blocks.
    pub(crate) grid: [u32; 3],
    /// Threads per block.
    pub(crate) block: [u32; 3],
    /// Registers per thread.
    pub(crate) registers: u32,
    /// Shared memory per block, bytes.
    pub(crate) shared_memory: u32,
    /// Mean duration, ns.
    pub(crate) dur_ns: u32,
}

impl Kernel {
    /// A kernel with its registers per thread and bytes of shared memory per block.
    pub(crate) fn new(
        name: &str,
        grid: [u32; 3],
        block: [u32; 3],
        (registers, shared_memory): (u32, u32),
        dur_ns: u32,
    ) -> Self {
        Self { name: name.to_owned(), grid, block, registers, shared_memory, dur_ns }
    }

    /// Blocks of the launch by SMs.
    pub(crate) fn blocks_per_sm(&self) -> f64 {
        f64::from(product(self.grid)) / f64::from(SM_COUNT)
    }

    /// Warps of the launch by SMs.
    pub(crate) fn warps_per_sm(&self) -> f64 {
        self.blocks_per_sm() * f64::from(product(self.block)) / 32.0
    }

    /// Share of an SM's threads that can be resident, in whole percent, as the profiler estimates it.
    pub(crate) fn occupancy_pct(&self) -> u32 {
        let threads = product(self.block);
        let by_threads = MAX_THREADS_PER_SM / threads;
        let warps = threads.div_ceil(32);
        // Registers are handed out to a warp in units of 256.
        let by_registers = REGISTERS_PER_SM / (warps * (self.registers * 32).next_multiple_of(256));
        let by_memory = SHARED_MEMORY_PER_SM / (self.shared_memory + SHARED_MEMORY_RESERVED);
        let resident = by_threads.min(by_registers).min(by_memory).min(MAX_BLOCKS_PER_SM);
        let resident = f64::from(resident).min(self.blocks_per_sm());
        (resident * f64::from(threads) / f64::from(MAX_THREADS_PER_SM) * 100.0 + 0.5) as u32
    }
}

fn product(size: [u32; 3]) -> u32 {
    size[0] * size[1] * size[2]
}

/// `deviceProperties` of that many H100s.
pub(crate) fn device_properties(count: u32) -> String {
    let device = |id: u32| {
        format!(
            "{{\"id\": {id}, \"name\": \"NVIDIA H100 80GB HBM3\", \"totalGlobalMem\": 85014085632, \
             \"computeMajor\": 9, \"computeMinor\": 0, \"maxThreadsPerBlock\": 1024, \
             \"maxThreadsPerMultiprocessor\": {MAX_THREADS_PER_SM}, \"regsPerBlock\": 65536, \
             \"warpSize\": 32, \"sharedMemPerBlock\": 49152, \"numSms\": {SM_COUNT}, \
             \"regsPerMultiprocessor\": {REGISTERS_PER_SM}, \"sharedMemPerBlockOptin\": 232448, \
             \"sharedMemPerMultiprocessor\": {SHARED_MEMORY_PER_SM}}}"
        )
    };
    list((0..count).map(device))
}

/// Duration of a dense bf16 matrix product: 620 TFLOP/s, about what an H100 sustains, and a ramp.
pub(crate) fn gemm_ns(m: i64, n: i64, k: i64) -> u32 {
    const FLOP_PER_NS: i64 = 620_000;
    let flops = 2 * m * n * k;
    (flops / FLOP_PER_NS) as u32 + 2_400
}

/// Duration of a kernel that moves that many bytes of device memory.
pub(crate) fn stream_ns(bytes: i64) -> u32 {
    const BYTES_PER_NS: i64 = 2_400;
    (bytes / BYTES_PER_NS) as u32 + 1_300
}

#[cfg(test)]
mod tests {
    use super::Kernel;

    #[test]
    fn occupancy_follows_the_tightest_limit() {
        let kernel = |grid: u32, block: u32, registers: u32, shared_memory: u32| {
            Kernel::new("", [grid, 1, 1], [block, 1, 1], (registers, shared_memory), 0)
        };
        assert_eq!(kernel(10_000, 128, 24, 0).occupancy_pct(), 100);
        assert_eq!(kernel(10_000, 512, 40, 400).occupancy_pct(), 75, "three blocks by registers");
        assert_eq!(kernel(10_000, 384, 168, 231_424).occupancy_pct(), 19, "one block by shared memory");
        assert_eq!(kernel(66, 128, 24, 0).occupancy_pct(), 3, "half a block per SM");
    }
}
