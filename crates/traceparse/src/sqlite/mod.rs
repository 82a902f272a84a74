//! SQLite databases of any recorder: opened without writing, probed, and read whatever their cells hold.

pub(crate) mod catalog;
pub(crate) mod cells;
pub(crate) mod codes;
pub(crate) mod open;
