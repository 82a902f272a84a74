//! Intervals of integer time: sets, an index and a sweep.
//!
//! An interval is half-open, `[start, end)`, and knows nothing of traces.

mod busy;
mod grouped;
mod intervals;
mod open;
mod share;
#[cfg(test)]
mod tests;
mod tracks;
mod tree;

pub use busy::BusySet;
pub use grouped::{Ends, GroupedIntervals, order_by_start, some_by_start};
pub use intervals::{Intervals, longest_spans};
pub use open::OpenIntervals;
pub use tracks::nest_tracks;
pub use tree::IntervalTree;
