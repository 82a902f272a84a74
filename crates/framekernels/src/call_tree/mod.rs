//! Trees of calls: which call lies in which, and the sums of each with the calls inside.
//!
//! A call is known by its position among the calls; a link to a call is a position, or [`NONE`].
//! Calls may come in any order, a caller behind what it calls too. Everything takes one pass or two
//! over arrays, whatever the depth; only [`nest`] sorts what is not in order already.

mod forest;
mod innermost;
mod nest;
mod own_time;
mod paths;
mod slices;
mod tree;

#[cfg(test)]
mod tests;

pub use forest::{Circular, Forest, marked_around};
pub use innermost::{Nested, Points, innermost};
pub(crate) use nest::by_group;
pub use nest::{Slices, nest};
pub use own_time::own_times;
pub use paths::{Fold, Paths, fold_paths, folded, path_texts, texts_of_paths};
pub use slices::{innermost_slices, marked_parents, nest_slices};
pub use tree::CallTree;

pub use crate::frame::NONE;
