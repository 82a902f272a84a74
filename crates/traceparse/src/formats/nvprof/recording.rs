//! What is known of a recording before its events are read.

use rusqlite::Connection;

use super::ends::Ends;
use crate::formats::sqlite::cells::Cells;
use crate::formats::sqlite::{builder, source};
use crate::schema::Symbol;

/// A recording of nvprof.
pub(super) struct Recording {
    /// The process that was recorded; null where several were.
    pub(super) pid: Option<i64>,
    pub(super) ends: Ends,
}

/// A table of nvprof.
pub(super) type Source = source::Source<Recording>;
/// Turns rows of nvprof into rows of the trace.
pub(super) type Builder<'c, 's> = builder::Builder<'c, 's, Recording>;

impl builder::Recorder for Recording {
    /// Every recording has every table.
    type Feature = ();
    type Thread<'c> = ();
    const STRINGS: (&'static str, &'static str) = ("StringTable", "_id_");

    fn thread(&self, _: &Connection) {}
}

impl Builder<'_, '_> {
    /// The text that a cell refers to by number; 0 is none.
    pub(super) fn text(&mut self, cells: &mut Cells<'_, '_>, cell: usize) -> Option<Symbol> {
        cells.int(cell).filter(|&id| id != 0)?;
        self.string(cells, cell)
    }
}
