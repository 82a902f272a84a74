//! How NVTX ranges nest, and which calls they enclose.

use super::NONE;
use super::gpu::GpuLinks;
use super::names::Link;
use super::order::{Extents, TrackOrder, innermost_containers, innermost_enclosing};
use crate::schema::{SymbolTable, Table, Tables};

/// Parents and depths of ranges, and the ranges of launches, by index.
pub(super) struct Nesting {
    /// Innermost enclosing push/pop range of each push/pop range.
    pub(super) parents: Vec<u32>,
    pub(super) depths: Vec<u32>,
    /// Innermost range of the thread that encloses each launch.
    pub(super) launches: Vec<u32>,
}

impl Nesting {
    /// Ranges with one pair of bounds nest in the order in which they were recorded.
    pub(super) fn find(tables: &Tables, track_count: usize, symbols: &SymbolTable) -> Self {
        let Tables { ranges, launches, .. } = tables;
        if ranges.is_empty() {
            return Self { parents: Vec::new(), depths: Vec::new(), launches: vec![NONE; launches.len()] };
        }
        let extents = Extents::new(&ranges.start_ns, &ranges.dur_ns);
        let [push_pop, mark] = ["push_pop", "mark"].map(|kind| symbols.find(kind));
        let kinds = ranges.kind.values();
        let is = |range: u32, kind| Some(kinds[range as usize]) == kind;
        let order = TrackOrder::new(ranges.track.values(), track_count, extents, |r| !is(r, mark));
        // A range that another thread ends says nothing about what this thread does meanwhile.
        let is_of_thread = |range: u32| ranges.end_tid.get(range as usize).is_none();
        let calls = Extents::new(&launches.start_ns, &launches.dur_ns);
        let call_order = TrackOrder::new(launches.track.values(), track_count, calls, |_| true);
        let launch_ranges = innermost_containers(
            &order,
            extents,
            is_of_thread,
            &call_order,
            |call| calls.of(call),
            launches.len(),
        );
        drop(call_order);
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
        Self { parents, depths, launches: launch_ranges }
    }

    /// The range of each piece of GPU work: that of its launch. Notes how work without an op is placed.
    pub(super) fn of_gpu_ops(&self, gpu: &mut GpuLinks) -> Vec<u32> {
        let range = |&launch: &u32| self.launches.get(launch as usize).copied().unwrap_or(NONE);
        let ranges: Vec<u32> = gpu.launches.iter().map(range).collect();
        for (link, &range) in gpu.links.iter_mut().zip(&ranges) {
            if range != NONE && matches!(link, Link::NoOp) {
                *link = Link::NvtxRange;
            }
        }
        ranges
    }
}
