//! Where calls start: tells at once of most ranges that they enclose none.

use hashbrown::HashMap;

use super::{Call, HostRange};

/// The starts of the calls of each thread and process.
#[derive(Debug, Default)]
pub(super) struct CallStarts {
    of_threads: HashMap<u32, Vec<i64>>,
    /// Built when the first range crosses threads, which is rare.
    of_processes: Option<HashMap<i64, Vec<i64>>>,
}

impl CallStarts {
    pub(super) fn new(calls: &[Call]) -> Self {
        Self { of_threads: by(calls, |call| call.thread), of_processes: None }
    }

    /// Whether any of `calls`, those of which this was made, starts inside `range`.
    pub(super) fn any_in(&mut self, range: &HostRange, calls: &[Call]) -> bool {
        let starts = if range.crosses_threads {
            let processes = self.of_processes.get_or_insert_with(|| by(calls, |call| call.process));
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

fn by<K: std::hash::Hash + Eq>(calls: &[Call], key: impl Fn(&Call) -> K) -> HashMap<K, Vec<i64>> {
    let mut found: HashMap<K, Vec<i64>> = HashMap::new();
    for call in calls {
        found.entry(key(call)).or_default().push(call.start);
    }
    for starts in found.values_mut() {
        // In order as a rule, which a stable sort makes use of.
        starts.sort();
    }
    found
}
