//! Compares two traces: attributes the time of steps, and finds the events that correspond.
//!
//! Nothing here knows what a trace is: intervals have priorities, and events are tokens.

mod align;
mod attribution;
mod frames;

#[cfg(test)]
mod tests;

pub use align::{Match, align};
pub use attribution::{Claim, Owned, owners};
pub use frames::{align_events, attribute_windows};
