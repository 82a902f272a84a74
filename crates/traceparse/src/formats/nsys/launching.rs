//! Calls that launched GPU work, and whether a range encloses one.
//!
//! Of a capture with ranges around every operator, one in five encloses GPU work. Where only that work
//! is asked for, the others need not be read further than to their end.

use hashbrown::HashMap;

use crate::schema::{Table, Tables};

/// What is known of the calls that launched GPU work.
#[derive(Debug, Default)]
pub(super) struct Launching {
    /// Correlation ids of GPU work by process, in order; of no process where the work names none.
    ids: HashMap<Option<i64>, Vec<i64>>,
    /// Calls by track, once they were read.
    calls: HashMap<u32, Calls>,
}

/// The calls of one track.
#[derive(Debug, Default)]
struct Calls {
    starts: Vec<i64>,
    /// The first end among the calls from each position on.
    first_ends: Vec<i64>,
}

/// Where each track was last looked at: ranges come nearly in order.
#[derive(Debug, Default)]
pub(super) struct Positions {
    by_track: HashMap<u32, usize>,
}

impl Launching {
    /// Takes note of what was read so far.
    pub(super) fn learn(&mut self, tables: &Tables) {
        if tables.launches.is_empty() {
            self.learn_work(tables);
        } else if self.calls.is_empty() {
            self.learn_calls(tables);
        }
    }

    fn learn_work(&mut self, tables: &Tables) {
        let gpu_ops = &tables.gpu_ops;
        let names_processes = !gpu_ops.pid.is_all_null();
        self.ids.clear();
        for (id, pid) in gpu_ops.correlation.iter().zip(gpu_ops.pid.iter()) {
            if let Some(id) = id {
                self.ids.entry(pid.filter(|_| names_processes)).or_default().push(id);
            }
        }
        for ids in self.ids.values_mut() {
            if !ids.is_sorted() {
                ids.sort_unstable();
            }
            ids.dedup();
        }
    }

    fn learn_calls(&mut self, tables: &Tables) {
        let launches = &tables.launches;
        let mut by_track: HashMap<u32, Vec<(i64, i64)>> = HashMap::new();
        let starts = launches.track.values().iter().zip(launches.start_ns.values());
        for ((&track, &start), dur) in starts.zip(launches.dur_ns.iter()) {
            let end = start.saturating_add(dur.unwrap_or(0).max(0));
            by_track.entry(track).or_default().push((start, end));
        }
        self.calls = by_track.into_iter().map(|(track, calls)| (track, Calls::new(calls))).collect();
    }

    /// Whether a call launched GPU work.
    #[inline]
    pub(super) fn has_work(&self, pid: Option<i64>, correlation: Option<i64>) -> bool {
        let Some(id) = correlation else { return false };
        let ids = self.ids.get(&pid).or_else(|| self.ids.get(&None));
        ids.is_some_and(|ids| ids.binary_search(&id).is_ok())
    }

    /// Whether a range of a track encloses a call that launched GPU work.
    #[inline]
    pub(super) fn is_around_call(
        &self,
        positions: &mut Positions,
        track: u32,
        start: i64,
        dur: Option<i64>,
    ) -> bool {
        let Some(calls) = self.calls.get(&track) else { return false };
        let position = positions.by_track.entry(track).or_insert(0);
        *position = calls.position(start, *position);
        calls.first_ends.get(*position).is_some_and(|&end| end <= start.saturating_add(dur.unwrap_or(0)))
    }
}

impl Calls {
    fn new(mut calls: Vec<(i64, i64)>) -> Self {
        if !calls.is_sorted() {
            calls.sort_unstable();
        }
        let starts = calls.iter().map(|call| call.0).collect();
        let mut first_ends: Vec<i64> = calls.into_iter().map(|call| call.1).collect();
        let mut first = i64::MAX;
        for end in first_ends.iter_mut().rev() {
            first = first.min(*end);
            *end = first;
        }
        Self { starts, first_ends }
    }

    /// Position of the first call that starts at `start` or later, looked for near `hint`.
    fn position(&self, start: i64, hint: usize) -> usize {
        let count = self.starts.len();
        let (mut low, mut high, mut step) = (hint.min(count), hint.min(count), 1);
        while low > 0 && self.starts.get(low - 1).is_some_and(|&before| before >= start) {
            (high, low) = (low - 1, low.saturating_sub(step));
            step *= 2;
        }
        step = 1;
        while self.starts.get(high).is_some_and(|&after| after < start) {
            (low, high) = (high + 1, high.saturating_add(step).min(count));
            step *= 2;
        }
        let between = self.starts.get(low..high).unwrap_or_default();
        low + between.partition_point(|&other| other < start)
    }
}

#[cfg(test)]
mod tests {
    use super::{Calls, Launching, Positions};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equals_a_search_of_all_calls(
            calls in proptest::collection::vec((0i64..40, 0i64..9), 0..20),
            ranges in proptest::collection::vec((0i64..50, 0i64..20), 1..20),
        ) {
            let calls: Vec<_> = calls.into_iter().map(|(start, length)| (start, start + length)).collect();
            let mut launching = Launching::default();
            launching.calls.insert(3, Calls::new(calls.clone()));
            let mut positions = Positions::default();
            for (start, length) in ranges {
                let encloses = calls.iter().any(|call| call.0 >= start && call.1 <= start + length);
                prop_assert_eq!(launching.is_around_call(&mut positions, 3, start, Some(length)), encloses);
                prop_assert!(!launching.is_around_call(&mut positions, 4, start, Some(length)));
            }
        }
    }
}
