//! The GPU time of ranges of the host.
//!
//! A range, of NVTX or of a profiler's annotation, encloses a call if it starts no later and ends no
//! earlier: both ends count. It encloses calls of its own thread only, unless one thread started and
//! another ended it: such a range encloses calls of its whole process. The GPU work of a call belongs
//! to every range that encloses the call, and the range reaches on the GPU from the start of the first
//! to the end of the last of that work. A call that a thread makes while another waits for it, as threads
//! of autograd do, belongs to the ranges of both.
//!
//! Most ranges of a thread nest, and what nests is a tree in which a call needs only its innermost
//! range; see [`Enclosure`]. Work is added up from the leaves to the roots, so the cost does not grow
//! with depth. Ranges that overlap in part, or belong to a process, are looked up call by call: their
//! cost is the number of pairs.

mod enclosure;
mod frames;
mod hierarchy;
mod projector;
mod totals;

#[cfg(test)]
mod tests;

pub use enclosure::Enclosure;
pub use frames::RangeProjector;
pub use projector::{GroupSums, Projector};
pub use totals::{Projected, Projection, Totals, project};

pub use crate::frame::NONE;

/// A range of the host, in ns.
#[derive(Debug, Clone, Copy)]
pub struct HostRange {
    /// Its first instant.
    pub start: i64,
    /// Its last instant; no earlier than the start.
    pub end: i64,
    /// Thread that started it: any number that tells threads apart.
    pub thread: u32,
    /// Process of the thread: any number that tells processes apart.
    pub process: i64,
    /// Whether another thread ended it.
    pub crosses_threads: bool,
}

/// A call of the host that launched GPU work, in ns.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// Its first instant.
    pub start: i64,
    /// Its last instant; no earlier than the start.
    pub end: i64,
    /// Thread that made it.
    pub thread: u32,
    /// Process of the thread.
    pub process: i64,
    /// Thread that waits for it; [`NONE`] if none does.
    pub caller: u32,
}

/// A piece of GPU work, in ns.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// Index of the call that launched it.
    pub call: u32,
    /// Its start on the GPU.
    pub start: i64,
    /// Its end on the GPU.
    pub end: i64,
}

/// The order in which ranges nest: earlier, then longer, then recorded first.
fn nesting_key(ranges: &[HostRange], index: u32) -> (i64, std::cmp::Reverse<i64>, u32) {
    let range = &ranges[index as usize];
    (range.start, std::cmp::Reverse(range.end), index)
}
