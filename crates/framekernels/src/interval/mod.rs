//! Intervals of integer time: sets, an index and a sweep.
//!
//! An interval is half-open, `[start, end)`, and knows nothing of traces.

mod busy;
mod depth;
mod first;
mod grouped;
mod longest;
mod open;
mod runs;
mod seek;
mod set;
mod settle;
mod share;
#[cfg(test)]
mod tests;
mod tree;

pub use busy::BusySet;
pub use depth::{Change, DepthTotal};
pub use first::first_of_each;
pub use grouped::{Ends, GroupedIntervals, order_by_start, some_by_start};
pub use open::OpenIntervals;
pub use seek::seek;
pub use set::IntervalSet;
pub use settle::settle;
pub use tree::IntervalTree;
