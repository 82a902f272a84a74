//! Which ranges enclose which calls.

use hashbrown::HashMap;
use std::collections::BTreeMap;

use super::{Call, HostRange, NONE, nesting_key};
use crate::interval::IntervalTree;

/// Which ranges enclose which calls.
///
/// The ranges of a thread are swept in order. Those that nest form trees: `parents` leads from each to
/// the one around it, and a call has all ranges from its innermost up. One that overlaps the last in
/// part is set aside, and what it encloses stands in `loose`, pair by pair.
#[derive(Debug, Default)]
pub struct Enclosure {
    /// Nested ranges, thread by thread, outer ones first.
    pub(super) nested: Vec<u32>,
    /// The nested range around each nested range; [`NONE`] for roots and all other ranges.
    pub(super) parents: Vec<u32>,
    /// Ranges of a thread that overlap others in part, by thread.
    pub(super) odd: BTreeMap<u32, Vec<u32>>,
    /// The innermost nested range that encloses each call.
    pub(super) chains: Vec<u32>,
    /// Range and call, where the chain of the call does not have the range.
    pub(super) loose: Vec<(u32, u32)>,
    innermost: Vec<u32>,
}

impl Enclosure {
    /// Finds every pair of a range and a call that it encloses.
    pub fn find(ranges: &[HostRange], calls: &[Call]) -> Self {
        let mut found = Self::on_threads(ranges, calls);
        found.add_callers(ranges, calls);
        found.add_crossing(ranges, calls);
        found
    }

    /// Finds the pairs in which the range and the call are of one thread.
    fn on_threads(ranges: &[HostRange], calls: &[Call]) -> Self {
        let mut found =
            Self { parents: vec![NONE; ranges.len()], chains: vec![NONE; calls.len()], ..Self::default() };
        let mut calls_of: HashMap<u32, Vec<u32>> = HashMap::new();
        for (index, call) in (0_u32..).zip(calls) {
            calls_of.entry(call.thread).or_default().push(index);
            calls_of.entry(call.caller).or_default();
        }
        for calls_of_thread in calls_of.values_mut() {
            sort_calls(calls_of_thread, calls);
        }
        // Ranges of threads that neither make a call nor wait for one enclose nothing.
        for (thread, order) in by_thread(ranges, |thread| calls_of.contains_key(&thread)) {
            let calls_of_thread = &calls_of[&thread];
            found.sweep(ranges, &order, calls, calls_of_thread);
            if let Some(odd) = found.odd.get(&thread) {
                for &range in odd {
                    add_enclosed(&mut found.loose, range, ranges, calls_of_thread, calls);
                }
            }
        }
        found.settle_innermost(ranges);
        found
    }

    /// The innermost range of the thread that encloses a call: that with the latest start, the shortest
    /// of several, the last recorded of equal ones. Without any, one of the thread that waits for the call,
    /// then one of the process; else [`NONE`].
    pub fn innermost(&self, call: u32) -> u32 {
        self.innermost.get(call as usize).copied().unwrap_or(NONE)
    }

    /// Calls `visit` with every range that encloses `call` and nests, from the innermost out.
    pub fn for_each_nested(&self, call: u32, mut visit: impl FnMut(u32)) {
        let mut range = self.chains.get(call as usize).copied().unwrap_or(NONE);
        while range != NONE {
            visit(range);
            range = self.parents.get(range as usize).copied().unwrap_or(NONE);
        }
    }

    /// Pairs of a range and a call that [`Self::for_each_nested`] leaves out.
    pub fn loose(&self) -> &[(u32, u32)] {
        &self.loose
    }

    /// Builds the tree of one thread and finds the innermost nested range of each of its calls.
    fn sweep(&mut self, ranges: &[HostRange], order: &[u32], calls: &[Call], calls_of_thread: &[u32]) {
        let end = |range: u32| ranges[range as usize].end;
        let first_nested = self.nested.len();
        let mut stack: Vec<u32> = Vec::new();
        let mut waiting = calls_of_thread.iter().copied().peekable();
        let mut points = Vec::new();
        let mut take = |before: Option<i64>, stack: &[u32], chains: &mut [u32]| {
            while let Some(call) =
                waiting.next_if(|&call| before.is_none_or(|at| calls[call as usize].start < at))
            {
                let Call { start, end: call_end, .. } = calls[call as usize];
                if start == call_end {
                    points.push(call);
                    continue;
                }
                // Ends on the stack fall from bottom to top.
                let reaching = stack.partition_point(|&range| end(range) >= call_end);
                chains[call as usize] = stack[..reaching].last().copied().unwrap_or(NONE);
            }
        };
        for &range in order {
            let HostRange { start, end: range_end, thread, .. } = ranges[range as usize];
            take(Some(start), &stack, &mut self.chains);
            while stack.last().is_some_and(|&top| end(top) < range_end && end(top) <= start) {
                stack.pop();
            }
            let parent = stack.last().copied().unwrap_or(NONE);
            if parent != NONE && end(parent) < range_end {
                self.odd.entry(thread).or_default().push(range);
                continue;
            }
            self.parents[range as usize] = parent;
            self.nested.push(range);
            stack.push(range);
        }
        take(None, &stack, &mut self.chains);
        self.place_points(ranges, first_nested, calls, &points);
    }

    /// Calls that take no time: two ranges that only touch can both enclose one.
    fn place_points(&mut self, ranges: &[HostRange], first_nested: usize, calls: &[Call], points: &[u32]) {
        if points.is_empty() {
            return;
        }
        let nested = &self.nested[first_nested..];
        let tree = IntervalTree::new(nested.iter().map(|&range| {
            let HostRange { start, end, .. } = ranges[range as usize];
            (start, end, range)
        }));
        for &call in points {
            let at = calls[call as usize].start;
            let mut enclosing: Vec<u32> = tree.containing(at, at).collect();
            let Some(&innermost) = enclosing.last() else { continue };
            self.chains[call as usize] = innermost;
            // Both the chain and the list run from the innermost out.
            let mut chain = innermost;
            while let Some(range) = enclosing.pop() {
                if range == chain {
                    chain = self.parents[chain as usize];
                } else {
                    self.loose.push((range, call));
                }
            }
        }
    }

    /// Finds the innermost range of each call among those of its thread.
    fn settle_innermost(&mut self, ranges: &[HostRange]) {
        self.innermost = self.chains.clone();
        for &(range, call) in &self.loose {
            let innermost = &mut self.innermost[call as usize];
            if *innermost == NONE || nesting_key(ranges, range) > nesting_key(ranges, *innermost) {
                *innermost = range;
            }
        }
    }

    /// Adds the ranges of threads that wait for a call.
    fn add_callers(&mut self, ranges: &[HostRange], calls: &[Call]) {
        let is_waited_for = |call: &Call| call.caller != NONE && call.caller != call.thread;
        let waited: Vec<u32> =
            (0_u32..).zip(calls).filter(|(_, call)| is_waited_for(call)).map(|(index, _)| index).collect();
        if waited.is_empty() {
            return;
        }
        let moved = |&call: &u32| Call { thread: calls[call as usize].caller, ..calls[call as usize] };
        let there = Self::on_threads(ranges, &waited.iter().map(moved).collect::<Vec<_>>());
        for (at, &call) in (0_u32..).zip(&waited) {
            let chain = &mut self.chains[call as usize];
            if *chain == NONE {
                *chain = there.chains[at as usize];
            } else {
                there.for_each_nested(at, |range| self.loose.push((range, call)));
            }
            let innermost = &mut self.innermost[call as usize];
            if *innermost == NONE {
                *innermost = there.innermost(at);
            }
        }
        self.loose.extend(there.loose.iter().map(|&(range, at)| (range, waited[at as usize])));
    }

    /// Adds the ranges that another thread ended, which say something about the process only.
    fn add_crossing(&mut self, ranges: &[HostRange], calls: &[Call]) {
        let crossing: Vec<u32> =
            (0..ranges.len() as u32).filter(|&r| ranges[r as usize].crosses_threads).collect();
        if crossing.is_empty() {
            return;
        }
        let mut calls_of: HashMap<i64, Vec<u32>> = HashMap::new();
        for (index, call) in (0_u32..).zip(calls) {
            calls_of.entry(call.process).or_default().push(index);
        }
        for calls_of_process in calls_of.values_mut() {
            sort_calls(calls_of_process, calls);
        }
        let first = self.loose.len();
        for range in crossing {
            if let Some(calls_of_process) = calls_of.get(&ranges[range as usize].process) {
                add_enclosed(&mut self.loose, range, ranges, calls_of_process, calls);
            }
        }
        let is_free: Vec<bool> = self.innermost.iter().map(|&range| range == NONE).collect();
        for &(range, call) in &self.loose[first..] {
            let innermost = &mut self.innermost[call as usize];
            let is_inner = *innermost == NONE || nesting_key(ranges, range) > nesting_key(ranges, *innermost);
            if is_free[call as usize] && is_inner {
                *innermost = range;
            }
        }
    }
}

/// The ranges of each wanted thread in the order in which they nest.
fn by_thread(ranges: &[HostRange], is_wanted: impl Fn(u32) -> bool) -> BTreeMap<u32, Vec<u32>> {
    let mut threads: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let of_thread = |range: &HostRange| !range.crosses_threads && is_wanted(range.thread);
    for (index, range) in (0_u32..).zip(ranges).filter(|(_, range)| of_thread(range)) {
        threads.entry(range.thread).or_default().push(index);
    }
    for order in threads.values_mut() {
        // Nearly in order as a rule, which a stable sort makes use of.
        order.sort_by_key(|&range| nesting_key(ranges, range));
    }
    threads
}

fn sort_calls(order: &mut [u32], calls: &[Call]) {
    order.sort_by_key(|&call| (calls[call as usize].start, calls[call as usize].end));
}

/// Adds every call that `range` encloses; `order` are the calls it may enclose, by start.
fn add_enclosed(
    loose: &mut Vec<(u32, u32)>,
    range: u32,
    ranges: &[HostRange],
    order: &[u32],
    calls: &[Call],
) {
    let HostRange { start, end, .. } = ranges[range as usize];
    let first = order.partition_point(|&call| calls[call as usize].start < start);
    let inside = order[first..].iter().take_while(|&&call| calls[call as usize].start <= end);
    loose.extend(inside.filter(|&&call| calls[call as usize].end <= end).map(|&call| (range, call)));
}
