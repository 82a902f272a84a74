//! The column that Python frames decide among themselves.

use super::{python, rows};
use crate::schema::{Column, Tables};
use crate::stats::{Code, Stats};
use crate::trace::Trace;

/// Callers of Python frames.
pub(super) struct FrameColumns {
    parent_row: Column<u32>,
    cut_callers: u64,
}

impl FrameColumns {
    pub(super) fn find(trace: &Trace) -> Self {
        let frames = &trace.tables.python;
        let callers = python::callers(frames, trace.tracks.len());
        Self { parent_row: rows(callers.parents, &frames.row), cut_callers: callers.cycles }
    }

    pub(super) fn store(self, tables: &mut Tables, stats: &mut Stats) {
        tables.python.parent_row = self.parent_row;
        stats.note_many(Code::ParentCycle, self.cut_callers, None);
    }
}
