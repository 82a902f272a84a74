//! How NVTX ranges nest, and which calls they enclose.

use std::collections::BTreeSet;

use hashbrown::{HashMap, HashSet};

use super::NONE;
use super::gpu::GpuLinks;
use super::names::Link;
use super::order::{Extents, TrackOrder, innermost_containers, innermost_enclosing};
use crate::schema::{Column, SymbolTable, Table, Tables};
use crate::tracks::{Ident, TrackTable};

/// Parents and depths of ranges, and the ranges of launches, by index.
pub(super) struct Nesting {
    /// Innermost enclosing push/pop range of each push/pop range.
    pub(super) parents: Vec<u32>,
    pub(super) depths: Vec<u32>,
    /// Innermost range of the thread that encloses each launch, else the only one of its process that does.
    pub(super) launches: Vec<u32>,
    /// Launches that only ranges of their process enclose, and more than one.
    disputed: HashSet<u32>,
}

impl Nesting {
    /// Ranges with one pair of bounds nest in the order in which they were recorded.
    pub(super) fn find(tables: &Tables, tracks: &TrackTable, symbols: &SymbolTable) -> Self {
        let Tables { ranges, launches, .. } = tables;
        if ranges.is_empty() {
            return Self::none(launches.len());
        }
        let track_count = tracks.len();
        let extents = Extents::new(&ranges.start_ns, &ranges.dur_ns);
        let [push_pop, start_end, mark] = ["push_pop", "start_end", "mark"].map(|kind| symbols.find(kind));
        let kinds = ranges.kind.values();
        let is = |range: u32, kind| Some(kinds[range as usize]) == kind;
        let order = TrackOrder::new(ranges.track.values(), track_count, extents, |r| !is(r, mark));
        // A range that another thread ends says nothing about what this thread does meanwhile.
        let is_of_thread = |range: u32| ranges.end_tid.get(range as usize).is_none();
        let calls = Extents::new(&launches.start_ns, &launches.dur_ns);
        let call_order = TrackOrder::new(launches.track.values(), track_count, calls, |_| true);
        let mut launch_ranges = innermost_containers(
            &order,
            extents,
            is_of_thread,
            &call_order,
            |call| calls.of(call),
            launches.len(),
        );
        drop(call_order);
        let of_process = (0..ranges.len() as u32).filter(|&range| {
            let is_of_no_thread = || tracks.key(ranges.track.values()[range as usize]).1 == Ident::Missing;
            is(range, start_end) && (!is_of_thread(range) || is_of_no_thread())
        });
        let disputed = add_ranges_of_processes(tables, tracks, of_process.collect(), &mut launch_ranges);
        let is_stack = order.indices().iter().all(|&range| is(range, push_pop));
        let stack = if is_stack {
            order
        } else {
            drop(order);
            TrackOrder::new(ranges.track.values(), track_count, extents, |r| is(r, push_pop))
        };
        let parents = innermost_enclosing(&stack, extents);
        // Nothing is enclosed by a range with parent NONE and depth NONE: it is no push/pop range.
        let mut depths = vec![NONE; ranges.len()];
        for &range in stack.indices() {
            let parent = parents[range as usize];
            depths[range as usize] = if parent == NONE { 0 } else { depths[parent as usize] + 1 };
        }
        Self { parents, depths, launches: launch_ranges, disputed }
    }

    /// No nesting, and no range around any of `launches` calls.
    pub(super) fn none(launches: usize) -> Self {
        Self {
            parents: Vec::new(),
            depths: Vec::new(),
            launches: vec![NONE; launches],
            disputed: HashSet::new(),
        }
    }

    /// The range of each piece of GPU work: that of its launch. Notes how work without an op is placed.
    pub(super) fn of_gpu_ops(&self, gpu: &mut GpuLinks) -> Vec<u32> {
        let range = |&launch: &u32| self.launches.get(launch as usize).copied().unwrap_or(NONE);
        let ranges: Vec<u32> = gpu.launches.iter().map(range).collect();
        for ((link, &range), launch) in gpu.links.iter_mut().zip(&ranges).zip(&gpu.launches) {
            *link = match link {
                Link::NoOp if range != NONE => Link::NvtxRange,
                Link::NoOp if self.disputed.contains(launch) => Link::SeveralRanges,
                _ => continue,
            }
        }
        ranges
    }
}

/// Gives launches without a range the only one of `of_process` that is open while they last; returns those that
/// several enclose, of which none can be told from the others.
fn add_ranges_of_processes(
    tables: &Tables,
    tracks: &TrackTable,
    of_process: Vec<u32>,
    found: &mut [u32],
) -> HashSet<u32> {
    let mut disputed = HashSet::new();
    if of_process.is_empty() {
        return disputed;
    }
    let loose = (0..found.len() as u32).filter(|&call| found[call as usize] == NONE).collect();
    enclosing_in_process(tables, tracks, of_process, loose, |call, enclosing| {
        match (enclosing.next(), enclosing.next()) {
            (Some(range), None) => found[call as usize] = range,
            (Some(_), Some(_)) => _ = disputed.insert(call),
            _ => {}
        }
    });
    disputed
}

/// Calls `found` with each of `calls` whose process has one of `ranges`, and with those that enclose it.
pub(super) fn enclosing_in_process(
    tables: &Tables,
    tracks: &TrackTable,
    mut ranges: Vec<u32>,
    mut calls: Vec<u32>,
    mut found: impl FnMut(u32, &mut dyn Iterator<Item = u32>),
) {
    let extents = Extents::new(&tables.ranges.start_ns, &tables.ranges.dur_ns);
    let times = Extents::new(&tables.launches.start_ns, &tables.launches.dur_ns);
    let process = |tracks_of: &Column<u32>, index: u32| tracks.key(tracks_of.values()[index as usize]).0;
    ranges.sort_by_key(|&range| extents.start(range));
    calls.sort_by_key(|&call| times.start(call));
    let mut begin = ranges.into_iter().peekable();
    // By process: the ends of the ranges that have begun.
    let mut open: HashMap<Ident, BTreeSet<(i64, u32)>> = HashMap::new();
    for call in calls {
        let (start, end) = times.of(call);
        while let Some(range) = begin.next_if(|&range| extents.start(range) <= start) {
            open.entry(process(&tables.ranges.track, range)).or_default().insert((extents.end(range), range));
        }
        let Some(open) = open.get_mut(&process(&tables.launches.track, call)) else { continue };
        while open.first().is_some_and(|&(until, _)| until < start) {
            open.pop_first();
        }
        found(call, &mut open.range((end, 0)..).map(|&(_, range)| range));
    }
}
