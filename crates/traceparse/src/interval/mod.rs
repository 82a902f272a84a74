//! Intervals of integer time: sets, an index and a sweep.
//!
//! An interval is half-open, `[start, end)`, and knows nothing of traces.

mod busy;
mod open;
mod seek;
mod set;
mod tree;

pub use busy::BusySet;
pub use open::OpenIntervals;
pub use seek::seek;
pub use set::IntervalSet;
pub use tree::IntervalTree;
