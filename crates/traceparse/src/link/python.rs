//! Which Python frame called which.

use super::ids::IdIndex;
use super::order::{Extents, TrackOrder, innermost_enclosing};
use super::{NONE, rows};
use crate::schema::{PythonFrames, Table, Tables};
use crate::stats::{Code, Stats};
use crate::trace::Trace;

/// Finds the callers of Python frames; returns what stores them.
pub(super) fn find(trace: &Trace) -> impl FnOnce(&mut Tables, &mut Stats) + Send + use<> {
    let frames = &trace.tables.python;
    let Callers { parents, cycles } = callers(frames, trace.tracks.len());
    let parent_row = rows(parents, &frames.row);
    move |tables, stats| {
        tables.python.parent_row = parent_row;
        stats.note_many(Code::ParentCycle, cycles, None);
    }
}

/// Callers of Python frames, by index.
struct Callers {
    /// [`NONE`] for roots, and where the caller is not in the trace.
    parents: Vec<u32>,
    /// Links that were cut because frames named each other as callers.
    cycles: u64,
}

/// The caller of every frame: by its recorded parent id; for frames without ids, which the
/// interpreter's own work has, the innermost frame around them on their thread.
fn callers(python: &PythonFrames, track_count: usize) -> Callers {
    let starts = python.start_ns.values();
    let ids = IdIndex::new(&python.python_id, starts);
    let mut parents: Vec<u32> = (0..python.len())
        .map(|index| {
            let id = python.python_parent_id.get(index);
            id.and_then(|id| ids.find(id, starts[index])).unwrap_or(NONE)
        })
        .collect();
    fill_by_time(python, track_count, &mut parents);
    let cycles = cut_cycles(&mut parents);
    Callers { parents, cycles }
}

fn fill_by_time(python: &PythonFrames, track_count: usize, parents: &mut [u32]) {
    let has_id = |index: u32| {
        python.python_id.get(index as usize).is_some()
            || python.python_parent_id.get(index as usize).is_some()
    };
    let rows = 0..python.len() as u32;
    if rows.clone().all(has_id) {
        return;
    }
    let extents = Extents::new(&python.start_ns, &python.dur_ns);
    let order = TrackOrder::new(python.track.values(), track_count, extents, |_| true);
    let containers = innermost_enclosing(&order, extents);
    for index in rows.filter(|&index| !has_id(index)) {
        parents[index as usize] = containers[index as usize];
    }
}

/// Makes every chain of parents end, and counts the links that had to go.
fn cut_cycles(parents: &mut [u32]) -> u64 {
    // Callers are written before the frames they call, as a rule: then there can be no cycle.
    if parents.iter().enumerate().all(|(index, &parent)| parent == NONE || (parent as usize) < index) {
        return 0;
    }
    // The walk that visited a frame; a walk that meets its own mark has gone around a cycle.
    let mut walks = vec![NONE; parents.len()];
    let mut cut = 0;
    for first in 0..parents.len() as u32 {
        let mut frame = first;
        while walks[frame as usize] == NONE {
            walks[frame as usize] = first;
            let parent = parents[frame as usize];
            if parent == NONE {
                break;
            }
            if walks[parent as usize] == first {
                parents[frame as usize] = NONE;
                cut += 1;
                break;
            }
            frame = parent;
        }
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::{callers, cut_cycles};
    use crate::link::NONE;
    use crate::schema::{PythonFrames, PythonRow};

    /// Track, start, duration, id, id of the caller.
    type Frame = (u32, i64, i64, Option<i64>, Option<i64>);

    fn frames(rows: &[Frame]) -> PythonFrames {
        let mut table = PythonFrames::default();
        for &(track, start_ns, dur, python_id, python_parent_id) in rows {
            let dur_ns = Some(dur);
            table.push(PythonRow {
                track,
                start_ns,
                dur_ns,
                python_id,
                python_parent_id,
                ..Default::default()
            });
        }
        table
    }

    #[test]
    fn ids_tell_the_caller_even_across_threads() {
        let table = frames(&[
            (0, 0, 100, Some(1), None),
            (0, 10, 50, Some(2), Some(1)),
            (1, 500, 10, Some(3), Some(2)),
            (1, 500, 10, Some(4), Some(77)),
        ]);
        assert_eq!(callers(&table, 2).parents, [NONE, 0, 1, NONE]);
    }

    #[test]
    fn frames_without_ids_are_placed_by_time() {
        let table = frames(&[
            (0, 0, 100, Some(1), None),
            (0, 10, 50, Some(2), Some(1)),
            (0, 20, 5, None, None),
            (0, 22, 1, None, None),
            (0, 60, 0, None, None),
            (1, 20, 5, None, None),
        ]);
        assert_eq!(callers(&table, 2).parents, [NONE, 0, 1, 2, 0, NONE]);
    }

    #[test]
    fn cycles_are_cut_once_each() {
        let mut parents = vec![1, 2, 0, 0, 4, 3];
        assert_eq!(cut_cycles(&mut parents), 2);
        assert_eq!(parents, [1, 2, NONE, 0, NONE, 3]);
        let mut ring: Vec<u32> = (1..200_000).chain([0]).collect();
        assert_eq!(cut_cycles(&mut ring), 1);
    }
}
