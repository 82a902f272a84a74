//! How long each call itself runs.

use std::hash::Hash;

use hashbrown::HashMap;

use super::nest::by_group;
use super::{NONE, Slices};

/// For how long each of the `calls` is the one that started last of what runs in its group, `others` included.
///
/// No moment counts twice, and none less than nothing, though calls may overlap in part. Of those with the same
/// time, `others` start last.
#[must_use]
pub fn own_times<G: Copy + Eq + Hash>(calls: Slices<'_, G>, others: Slices<'_, G>) -> Vec<i64> {
    let mut own = vec![0; calls.groups.len()];
    let mut beside: HashMap<G, Vec<u32>> = by_group(others.groups, |_| true).into_iter().collect();
    for (group, called) in by_group(calls.groups, |_| true) {
        let others_here = beside.remove(&group).unwrap_or_default();
        let mut called = in_order(&calls, called).peekable();
        let mut others_here = in_order(&others, others_here).peekable();
        let mut open = Open { calls: Vec::new(), reached: i64::MIN, own: &mut own };
        loop {
            let is_call = match (called.peek(), others_here.peek()) {
                (None, None) => break,
                (Some(&call), Some(&other)) => calls.span(call) <= others.span(other),
                (call, _) => call.is_some(),
            };
            let next = if is_call { called.next() } else { others_here.next() };
            let Some(at) = next else { break };
            let (start, end) = if is_call { calls.time(at) } else { others.time(at) };
            open.advance(start);
            open.calls.push((if is_call { at } else { NONE }, end));
        }
        open.advance(i64::MAX);
    }
    own
}

/// The members of a group in order of start, the longest first.
fn in_order<G>(slices: &Slices<'_, G>, mut members: Vec<u32>) -> impl Iterator<Item = u32> + use<G> {
    if !members.is_sorted_by_key(|&at| slices.key(at)) {
        members.sort_by_key(|&at| slices.key(at));
    }
    members.into_iter()
}

/// The calls of a group that have not been closed yet, up to a moment.
struct Open<'a> {
    /// Each with its end; [`NONE`] for one whose time is not asked for.
    calls: Vec<(u32, i64)>,
    reached: i64,
    own: &'a mut [i64],
}

impl Open<'_> {
    /// Gives the time until a moment to the calls that are innermost meanwhile.
    fn advance(&mut self, moment: i64) {
        while let Some(&(call, end)) = self.calls.last() {
            let until = end.min(moment);
            if until > self.reached {
                if let Some(own) = self.own.get_mut(call as usize) {
                    *own += until - self.reached;
                }
                self.reached = until;
            }
            if end > moment {
                break;
            }
            self.calls.pop();
        }
        self.reached = self.reached.max(moment);
    }
}
