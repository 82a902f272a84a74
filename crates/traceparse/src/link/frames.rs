//! The columns that follow from their own table and the tracks alone.

use super::python;
use super::rows;
use super::threads::TableIdents;
use crate::schema::{Column, Tables};
use crate::stats::{Code, Stats};
use crate::trace::Trace;

/// Callers of Python frames, and process and thread ids of every table.
pub(super) struct FrameColumns {
    parent_row: Column<u32>,
    cut_callers: u64,
    idents: TableIdents,
}

impl FrameColumns {
    pub(super) fn find(trace: &Trace) -> Self {
        let frames = &trace.tables.python;
        let callers = python::callers(frames, trace.tracks.len());
        Self {
            parent_row: rows(&callers.parents, &frames.row),
            cut_callers: callers.cycles,
            idents: TableIdents::new(&trace.tables, &trace.tracks),
        }
    }

    pub(super) fn store(self, tables: &mut Tables, stats: &mut Stats) {
        tables.python.parent_row = self.parent_row;
        self.idents.store(tables);
        stats.note_many(Code::ParentCycle, self.cut_callers, None);
    }
}
