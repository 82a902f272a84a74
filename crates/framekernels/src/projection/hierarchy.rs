//! How the ranges with GPU work stand above one another.

use hashbrown::HashMap;

use super::{Enclosure, HostRange, NONE, nesting_key};
use crate::interval::IntervalTree;

/// The place of each range among the given ones.
pub(super) struct Hierarchy {
    /// The shortest range around each.
    pub(super) parents: Vec<u32>,
    pub(super) depths: Vec<u32>,
    pub(super) children: Vec<u32>,
}

impl Hierarchy {
    /// The places of the ranges `indices`, which are in order, among themselves.
    ///
    /// Where every range around one of them is among them, too, as with all that have GPU work, these
    /// are its places among all ranges. A range that crosses threads stands for itself.
    pub(super) fn find(ranges: &[HostRange], enclosure: &Enclosure, indices: &[u32]) -> Self {
        let position = |range: u32| indices.binary_search(&range).ok();
        let odd = OddRanges::new(ranges, enclosure, position);
        let parents: Vec<u32> = indices.iter().map(|&range| odd.parent(ranges, enclosure, range)).collect();
        let mut order: Vec<u32> = (0..indices.len() as u32).collect();
        order.sort_by_key(|&at| nesting_key(ranges, indices[at as usize]));
        let (mut depths, mut children) = (vec![0_u32; indices.len()], vec![0_u32; indices.len()]);
        // A parent starts no later and is no shorter, so it comes first.
        for at in order {
            if let Some(parent) = position(parents[at as usize]) {
                depths[at as usize] = depths[parent] + 1;
                children[parent] += 1;
            }
        }
        Self { parents, depths, children }
    }
}

/// An index of the ranges that overlap others in part, and of the nested ones on the same threads.
struct OddRanges {
    trees: HashMap<u32, (IntervalTree, IntervalTree)>,
}

impl OddRanges {
    fn new(ranges: &[HostRange], enclosure: &Enclosure, position: impl Fn(u32) -> Option<usize>) -> Self {
        let mut trees = HashMap::new();
        let interval = |range: u32| (ranges[range as usize].start, ranges[range as usize].end, range);
        let mut nested: HashMap<u32, Vec<u32>> = HashMap::new();
        for &range in &enclosure.nested {
            let thread = ranges[range as usize].thread;
            if enclosure.odd.contains_key(&thread) && position(range).is_some() {
                nested.entry(thread).or_default().push(range);
            }
        }
        for (&thread, odd) in &enclosure.odd {
            let odd = odd.iter().copied().filter(|&range| position(range).is_some());
            let nested = nested.remove(&thread).unwrap_or_default();
            let tree = IntervalTree::new(odd.map(interval));
            trees.insert(thread, (tree, IntervalTree::new(nested.into_iter().map(interval))));
        }
        Self { trees }
    }

    /// The shortest range around `range` on its thread; of several the one that starts first. A range
    /// that takes no time belongs to one that begins with it rather than to one that began before.
    fn parent(&self, ranges: &[HostRange], enclosure: &Enclosure, range: u32) -> u32 {
        let HostRange { start, end, thread, crosses_threads, .. } = ranges[range as usize];
        if crosses_threads {
            return NONE;
        }
        let Some((odd, nested)) = self.trees.get(&thread) else { return enclosure.parents[range as usize] };
        let is_around = |other: u32| {
            let HostRange { start: s, end: e, .. } = ranges[other as usize];
            other != range && ((s, e) != (start, end) || other < range)
        };
        let key = |&other: &u32| {
            let HostRange { start: s, end: e, .. } = ranges[other as usize];
            // Of equal ranges the last recorded is the inner one.
            (start == end && s < start, e.saturating_sub(s), s, std::cmp::Reverse(other))
        };
        let inner = enclosure.parents[range as usize];
        // For a range that does not nest: of those around it that do, the innermost is the shortest.
        let inner = if inner == NONE { nested.innermost(start, end).unwrap_or(NONE) } else { inner };
        let candidates = odd.containing(start, end).chain((inner != NONE).then_some(inner));
        candidates.filter(|&other| is_around(other)).min_by_key(key).unwrap_or(NONE)
    }
}
