//! What the readers of SQLite databases share.
//!
//! `open` connects without writing, `catalog` lists tables and columns, `source` declares a table and what
//! turns its rows into rows of the trace, `plan` cuts the tables into runs of rows, and `scan` reads the runs
//! on several threads and puts them back into order. `cells` reads values whatever their type, `texts`
//! interns them, and `builder` holds what a thread needs. `wal` puts a database and its log together.

pub(crate) mod builder;
pub(crate) mod catalog;
pub(crate) mod cells;
pub(crate) mod labels;
pub(crate) mod open;
pub(crate) mod plan;
pub(crate) mod scan;
pub(crate) mod source;
pub(crate) mod texts;
mod wal;
