//! Collects work, calls and ranges, keeps what relates to each other, and projects it.

use hashbrown::HashMap;

use super::totals::RangeTotals;
use super::{Call, Enclosure, HostRange, NONE, Projection, Work, project};

/// A call is wanted, but has not come.
const WANTED: u32 = NONE - 1;

/// Sums of the ranges of a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupSums {
    /// Ranges of the group.
    pub ranges: i64,
    /// Sum of their durations on the host.
    pub host_ns: i64,
    /// Those that have GPU work.
    pub projected: i64,
    /// Sum of the durations of these on the host.
    pub projected_host_ns: i64,
    /// Sum of their lengths on the GPU, from the first work to the last.
    pub span_ns: i64,
    /// Sum of the times in which work of theirs runs.
    pub busy_ns: i64,
    /// The same for the work of which each is the innermost range.
    pub exclusive_ns: i64,
    /// Sum of their calls.
    pub launches: i64,
    /// Sum of their work.
    pub gpu_ops: i64,
    /// Sum of the durations of the work that other threads launched.
    pub other_thread_ns: i64,
}

/// Collects GPU work, then the calls, then the ranges, and relates them.
///
/// Calls without work and ranges that enclose no call with work change nothing, and are not kept.
#[derive(Debug, Default)]
pub struct Projector {
    work: Vec<Work>,
    /// The call of each row, from the first row on that launched work.
    call_of_row: Vec<u32>,
    first_row: u32,
    calls: Vec<Call>,
    call_rows: Vec<u32>,
    starts: Option<CallStarts>,
    ranges: Vec<HostRange>,
    indices: Vec<u32>,
    groups: Vec<u32>,
    sums: Vec<GroupSums>,
    seen: u32,
}

impl Projector {
    /// Adds a piece of work that the call of row `launch_row` launched.
    pub fn add_work(&mut self, launch_row: u32, start: i64, end: i64) {
        self.work.push(Work { call: launch_row, start, end });
    }

    /// Adds the call of row `row`; all work has been added.
    pub fn add_call(&mut self, row: u32, call: Call) {
        if self.call_of_row.is_empty() {
            self.want_calls();
        }
        let slot = row.checked_sub(self.first_row).and_then(|at| self.call_of_row.get_mut(at as usize));
        if let Some(slot) = slot.filter(|slot| **slot == WANTED) {
            *slot = self.calls.len() as u32;
            self.calls.push(call);
            self.call_rows.push(row);
        }
    }

    /// Adds a range to a group; all calls have been added. One that has no `range` only counts.
    pub fn add_range(&mut self, group: u32, range: Option<HostRange>) {
        if self.sums.len() <= group as usize {
            self.sums.resize(group as usize + 1, GroupSums::default());
        }
        let index = self.seen;
        self.seen += 1;
        let Some(sums) = self.sums.get_mut(group as usize) else { return };
        sums.ranges += 1;
        let Some(range) = range else { return };
        sums.host_ns = sums.host_ns.wrapping_add(range.end.wrapping_sub(range.start));
        let starts = self.starts.get_or_insert_with(|| CallStarts::new(&self.calls));
        if starts.any_in(&range, &self.calls) {
            self.ranges.push(range);
            self.indices.push(index);
            self.groups.push(group);
        }
    }

    /// Returns the totals of every range with GPU work; ranges are numbered as they were added.
    pub fn project(mut self) -> Projection {
        self.resolve();
        let mut found = project(&self.ranges, &self.calls, &self.work);
        let indices = self.indices;
        let numbered = |&range: &u32| indices.get(range as usize).copied().unwrap_or(NONE);
        found.ranges = found.ranges.iter().map(numbered).collect();
        found.parents = found.parents.iter().map(numbered).collect();
        found
    }

    /// The sums of the ranges of each group.
    pub fn sum(mut self) -> Vec<GroupSums> {
        self.resolve();
        let RangeTotals { ranges, all, own } = RangeTotals::find(&self.ranges, &self.calls, &self.work);
        for ((range, all), own) in ranges.into_iter().zip(all).zip(own) {
            let (Some(&group), Some(host)) =
                (self.groups.get(range as usize), self.ranges.get(range as usize))
            else {
                continue;
            };
            let Some(sums) = self.sums.get_mut(group as usize) else { continue };
            sums.projected += 1;
            sums.projected_host_ns = sums.projected_host_ns.wrapping_add(host.end.wrapping_sub(host.start));
            sums.span_ns = sums.span_ns.wrapping_add(all.end.wrapping_sub(all.start));
            sums.busy_ns = sums.busy_ns.wrapping_add(all.busy);
            sums.exclusive_ns = sums.exclusive_ns.wrapping_add(own.busy);
            sums.launches += i64::from(all.launches);
            sums.gpu_ops += i64::from(all.ops);
            sums.other_thread_ns = sums.other_thread_ns.wrapping_add(all.other_thread);
        }
        self.sums
    }

    /// Every pair of a range and the row of a call with work that it encloses, and whether the range is
    /// the innermost.
    pub fn pairs(self) -> Vec<(u32, u32, bool)> {
        let enclosure = Enclosure::find(&self.ranges, &self.calls);
        let mut found = Vec::new();
        let mut add = |range: u32, call: u32| {
            if let (Some(&index), Some(&row)) =
                (self.indices.get(range as usize), self.call_rows.get(call as usize))
            {
                found.push((index, row, enclosure.innermost(call) == range));
            }
        };
        for call in 0..self.calls.len() as u32 {
            enclosure.for_each_nested(call, |range| add(range, call));
        }
        enclosure.loose().iter().for_each(|&(range, call)| add(range, call));
        found
    }

    /// Marks the rows whose calls launched work.
    fn want_calls(&mut self) {
        let rows = || self.work.iter().map(|piece| piece.call);
        let (Some(first), Some(last)) = (rows().min(), rows().max()) else { return };
        self.first_row = first;
        self.call_of_row = vec![NONE; (last - first) as usize + 1];
        for row in self.work.iter().map(|piece| piece.call) {
            if let Some(slot) = self.call_of_row.get_mut((row - first) as usize) {
                *slot = WANTED;
            }
        }
    }

    /// Lets work point at calls instead of rows; work of which no call came belongs to no range.
    fn resolve(&mut self) {
        let (calls, first) = (std::mem::take(&mut self.call_of_row), self.first_row);
        let known = self.calls.len();
        self.work.retain_mut(|piece| {
            let at = piece.call.checked_sub(first).and_then(|at| calls.get(at as usize)).copied();
            piece.call = at.unwrap_or(NONE);
            (piece.call as usize) < known
        });
    }
}

/// The starts of the calls of each thread and process: tells at once of most ranges that they enclose none.
#[derive(Debug, Default)]
struct CallStarts {
    of_threads: HashMap<u32, Vec<i64>>,
    /// Built when the first range crosses threads, which is rare.
    of_processes: Option<HashMap<i64, Vec<i64>>>,
}

impl CallStarts {
    fn new(calls: &[Call]) -> Self {
        let threads = |call: &Call| [Some(call.thread), Some(call.caller).filter(|&track| track != NONE)];
        Self { of_threads: by(calls, threads), of_processes: None }
    }

    /// Whether any of `calls`, those of which this was made, starts inside `range`.
    fn any_in(&mut self, range: &HostRange, calls: &[Call]) -> bool {
        let starts = if range.crosses_threads {
            let processes =
                self.of_processes.get_or_insert_with(|| by(calls, |call| [Some(call.process), None]));
            processes.get(&range.process)
        } else {
            self.of_threads.get(&range.thread)
        };
        starts.is_some_and(|starts| {
            let next = starts.partition_point(|&start| start < range.start);
            starts.get(next).is_some_and(|&start| start <= range.end)
        })
    }
}

fn by<K: std::hash::Hash + Eq>(
    calls: &[Call],
    keys: impl Fn(&Call) -> [Option<K>; 2],
) -> HashMap<K, Vec<i64>> {
    let mut found: HashMap<K, Vec<i64>> = HashMap::new();
    for call in calls {
        for key in keys(call).into_iter().flatten() {
            found.entry(key).or_default().push(call.start);
        }
    }
    for starts in found.values_mut() {
        // In order as a rule, which a stable sort makes use of.
        starts.sort();
    }
    found
}
