//! Trees of calls: which call lies in which, and what each comes to with the calls inside.
//!
//! A call is known by its position among the calls; a link to a call is a position, or [`NONE`].
//! Calls may come in any order, a caller behind what it calls too. Everything takes one pass or two
//! over arrays, whatever the depth; only [`nest`] sorts what is not in order already.

mod classes;
mod columns;
mod covered;
mod forest;
mod innermost;
mod nest;
mod paths;
mod positions;

#[cfg(test)]
mod tests;

pub use classes::{Classes, set_apart};
pub use columns::{Column, Values, Working};
pub use covered::Covered;
pub use forest::{Circular, Forest, marked_around};
pub use innermost::{Nested, Points, innermost, lineage};
pub use nest::{Slices, nest};
pub use paths::{Fold, Paths, Told, folded, path_texts};
pub use positions::Positions;

/// No call.
pub const NONE: u32 = u32::MAX;
