//! What two traces are compared with: who owns each moment of a step, and which events correspond.
//!
//! Nothing here knows what a trace is: intervals have priorities, and events are tokens.

mod align;
mod myers;
mod owners;

#[cfg(test)]
mod tests;

pub use align::{Match, align};
pub use owners::{Claim, NOBODY, Owned, owners};
