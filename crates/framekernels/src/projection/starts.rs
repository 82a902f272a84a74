//! Where calls start: tells at once of most ranges that they enclose none.

use hashbrown::HashMap;

use super::{Call, HostRange};
use crate::interval::seek;

/// The starts of the calls of each thread and process.
///
/// Ranges that are asked about in order of their starts cost a few steps each.
#[derive(Debug, Default)]
pub(super) struct CallStarts {
    of_threads: HashMap<u32, Starts>,
    /// Built when the first range crosses threads, which is rare.
    of_processes: Option<HashMap<i64, Starts>>,
}

impl CallStarts {
    pub(super) fn new(calls: &[Call]) -> Self {
        Self { of_threads: by(calls, |call| call.thread), of_processes: None }
    }

    /// Whether any of `calls`, those of which this was made, starts inside `range`.
    pub(super) fn any_in(&mut self, range: &HostRange, calls: &[Call]) -> bool {
        let starts = if range.crosses_threads {
            let processes = self.of_processes.get_or_insert_with(|| by(calls, |call| call.process));
            processes.get_mut(&range.process)
        } else {
            self.of_threads.get_mut(&range.thread)
        };
        starts.is_some_and(|starts| starts.any_in(range.start, range.end))
    }
}

fn by<K: std::hash::Hash + Eq>(calls: &[Call], key: impl Fn(&Call) -> K) -> HashMap<K, Starts> {
    let mut found: HashMap<K, Starts> = HashMap::new();
    for call in calls {
        found.entry(key(call)).or_default().starts.push(call.start);
    }
    for starts in found.values_mut() {
        // In order as a rule, which a stable sort makes use of.
        starts.starts.sort();
    }
    found
}

#[derive(Debug, Default)]
struct Starts {
    starts: Vec<i64>,
    /// The place of what was asked for last.
    at: usize,
}

impl Starts {
    fn any_in(&mut self, start: i64, end: i64) -> bool {
        self.at = seek(&self.starts, self.at, |&first| first < start);
        self.starts.get(self.at).is_some_and(|&first| first <= end)
    }
}
