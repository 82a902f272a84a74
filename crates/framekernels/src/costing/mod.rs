//! Which call's cost GPU work counts for, and sums of work by kinds of calls and of work.
//!
//! What a cost is, is not known here: calls have classes, whose traits the caller gives, and figures are
//! those of a class. A call or a piece of work is known by its position; there is [`NONE`] of them.
//!
//! [`NONE`]: crate::frame::NONE

mod frames;
mod owners;
mod work;

#[cfg(test)]
mod tests;

pub use frames::{CallCosting, WorkCosting, WorkPairs};
pub use owners::{Calls, Owned, Owner, Traits};
pub use work::{Figures, Limits, Marks, OfOp, Pair, Pairs, UNTIMED, Work};
