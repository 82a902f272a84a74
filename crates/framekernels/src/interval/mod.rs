//! Intervals of integer time: sets, an index and a sweep.
//!
//! An interval is half-open, `[start, end)`, and knows nothing of traces.

mod busy;
mod depth;
mod first;
mod grouped;
mod intervals;
mod longest;
mod open;
mod runs;
mod seek;
mod share;
#[cfg(test)]
mod tests;
mod tree;
mod waits;

pub use busy::BusySet;
pub use depth::Change;
use first::first_of_each;
pub use grouped::{Ends, GroupedIntervals, order_by_start, some_by_start};
pub use intervals::{Intervals, longest_spans};
pub use open::OpenIntervals;
pub use seek::seek;
pub use tree::IntervalTree;
pub use waits::depth_changes;
