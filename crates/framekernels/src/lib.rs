//! Passes over columns that data frame libraries have no expression for.
//!
//! Everything here works on numbers, flags and positions of rows: it knows neither the tables of a
//! trace nor the formats they are read from. No pass is recursive, so deep input needs no deep stack.
#![forbid(unsafe_code)]

pub mod call_tree;
pub mod comparison;
pub mod costing;
pub mod dependencies;
pub mod export;
pub mod frame;
pub mod interval;
pub mod memory;
pub mod numbering;
pub mod projection;
pub mod timeline;
