//! Which op encloses which on its thread.

use super::NONE;
use super::extents::Extents;
use super::order::TrackOrder;
use crate::stats::{Code, Stats};

/// Parents and depths of the ops, by index.
pub(super) struct OpTree {
    pub(super) parents: Vec<u32>,
    pub(super) depths: Vec<u32>,
}

impl OpTree {
    /// Nests the ops of each track by the rule of the profiler's own tables: an op lies in the
    /// innermost open op that it does not outlast, and an op that is outlasted is closed.
    pub(super) fn new(order: &TrackOrder, extents: Extents<'_>, stats: &mut Stats) -> Self {
        let mut tree = Self { parents: vec![NONE; extents.len()], depths: vec![0; extents.len()] };
        let mut partial_overlaps = 0;
        let mut open: Vec<(i64, u32)> = Vec::new();
        for (_, rows) in order.tracks() {
            open.clear();
            for &index in rows {
                let (start, end) = (extents.start(index), extents.end(index));
                while let Some(&(open_end, _)) = open.last() {
                    if start < open_end && end <= open_end {
                        break;
                    }
                    partial_overlaps += u64::from(start < open_end);
                    open.pop();
                }
                if let Some(&(_, parent)) = open.last() {
                    tree.parents[index as usize] = parent;
                }
                tree.depths[index as usize] = open.len() as u32;
                open.push((end, index));
            }
        }
        stats.note_many(Code::PartialOverlap, partial_overlaps, None);
        tree
    }
}
