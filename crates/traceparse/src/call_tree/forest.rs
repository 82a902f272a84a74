//! Calls and the calls that they lie in.

use super::NONE;

/// Marks a call that is being looked at, on the way from a call to where it leads.
const OPEN: u32 = NONE - 1;

/// Calls lie in each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Circular;

/// Calls by position, with the call around each.
#[derive(Debug)]
pub struct Forest {
    parents: Vec<u32>,
    /// Which call each is counted as.
    kept: Vec<u32>,
    /// Every call before the one that it lies in; none where calls in reverse are in such an order.
    inner_first: Option<Vec<u32>>,
}

impl Forest {
    /// Calls with the positions of the calls around them.
    ///
    /// # Errors
    ///
    /// Calls that lie in each other.
    pub fn new(mut parents: Vec<u32>) -> Result<Self, Circular> {
        let size = parents.len() as u32;
        parents.iter_mut().filter(|parent| **parent >= size).for_each(|parent| *parent = NONE);
        let is_ordered = parents.iter().zip(0_u32..).all(|(&parent, at)| parent == NONE || parent < at);
        let inner_first = if is_ordered { None } else { Some(inner_first(&parents)?) };
        Ok(Self { kept: (0..size).collect(), parents, inner_first })
    }

    /// How many calls there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parents.len()
    }

    /// Whether there is no call.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parents.is_empty()
    }

    /// The call around each, which is none for a call that is merged into another.
    #[must_use]
    pub fn parents(&self) -> &[u32] {
        &self.parents
    }

    /// Which call each is counted as: itself if it is not merged.
    #[must_use]
    pub fn kept(&self) -> &[u32] {
        &self.kept
    }

    /// Whether the call at `at` is merged into another.
    #[must_use]
    pub fn is_merged(&self, at: usize) -> bool {
        self.kept.get(at).is_some_and(|&kept| kept as usize != at)
    }

    /// Merges calls that are the only one inside a call of their own name into that one.
    pub fn merge_repeats(&mut self, names: &[u32]) {
        let mut children = vec![0_u32; self.parents.len()];
        for &parent in &self.parents {
            if let Some(count) = children.get_mut(parent as usize) {
                *count += 1;
            }
        }
        let repeats = |at: usize, parent: u32| {
            children.get(parent as usize) == Some(&1) && names.get(parent as usize) == names.get(at)
        };
        let into = self.parents.iter().zip(0_u32..);
        let mut kept: Vec<u32> =
            into.map(|(&parent, at)| if repeats(at as usize, parent) { parent } else { at }).collect();
        settle(&mut kept);
        self.merge(&kept);
    }

    /// The nearest marked call on the way up from each, itself included.
    #[must_use]
    pub fn nearest(&self, is_marked: impl Fn(usize) -> bool) -> Vec<u32> {
        let up = self.parents.iter().zip(0_u32..);
        if self.inner_first.is_none() {
            // What is known of a call is known of those inside it.
            let mut found: Vec<u32> = Vec::with_capacity(self.parents.len());
            for (&parent, at) in up {
                let around = || found.get(parent as usize).copied().unwrap_or(NONE);
                found.push(if is_marked(at as usize) { at } else { around() });
            }
            return found;
        }
        let mut found: Vec<u32> =
            up.map(|(&parent, at)| if is_marked(at as usize) { at } else { parent }).collect();
        settle(&mut found);
        found
    }

    /// Merges every call that is not marked into the nearest marked one around it, or into none.
    pub fn retain(&mut self, is_marked: impl Fn(usize) -> bool) {
        self.merge(&self.nearest(is_marked));
    }

    /// Counts each call as the one in `kept`, which is itself or lies around it.
    fn merge(&mut self, kept: &[u32]) {
        for (at, (parent, &into)) in self.parents.iter_mut().zip(kept).enumerate() {
            *parent = if into as usize == at { *kept.get(*parent as usize).unwrap_or(&NONE) } else { NONE };
        }
        let merged = |&before: &u32| kept.get(before as usize).copied().unwrap_or(NONE);
        self.kept = self.kept.iter().map(merged).collect();
    }

    /// Visits every call after the one that it lies in.
    pub fn for_each_outer_first(&self, visit: impl FnMut(usize)) {
        match &self.inner_first {
            Some(order) => order.iter().rev().map(|&at| at as usize).for_each(visit),
            None => (0..self.parents.len()).for_each(visit),
        }
    }

    /// What each call's children come to.
    #[must_use]
    pub fn of_children(&self, values: &[i64]) -> Vec<i64> {
        let mut sums = vec![0_i64; self.parents.len()];
        for (&parent, &value) in self.parents.iter().zip(values) {
            if let Some(sum) = sums.get_mut(parent as usize) {
                *sum = sum.wrapping_add(value);
            }
        }
        sums
    }

    /// Which calls have another value than the call around them, or none around them.
    #[must_use]
    pub fn changes(&self, values: &[i64]) -> Vec<bool> {
        let pairs = self.parents.iter().zip(values);
        pairs.map(|(&parent, value)| values.get(parent as usize) != Some(value)).collect()
    }

    /// What each call comes to with all inside it.
    #[must_use]
    pub fn with_inner(&self, mut values: Vec<i64>) -> Vec<i64> {
        let mut add = |at: usize| {
            let Some(&parent) = self.parents.get(at).filter(|&&parent| parent != NONE) else { return };
            let value = values.get(at).copied().unwrap_or_default();
            if let Some(sum) = values.get_mut(parent as usize) {
                *sum = sum.wrapping_add(value);
            }
        };
        match &self.inner_first {
            Some(order) => order.iter().for_each(|&at| add(at as usize)),
            None => (0..self.parents.len()).rev().for_each(&mut add),
        }
        values
    }
}

/// Puts every call before the one that it lies in.
fn inner_first(parents: &[u32]) -> Result<Vec<u32>, Circular> {
    let mut waiting = vec![0_u32; parents.len()];
    for &parent in parents {
        if let Some(count) = waiting.get_mut(parent as usize) {
            *count += 1;
        }
    }
    let leaves = waiting.iter().zip(0_u32..).filter(|&(&count, _)| count == 0);
    let mut order: Vec<u32> = leaves.map(|(_, at)| at).collect();
    let mut next = 0;
    while let Some(&at) = order.get(next) {
        next += 1;
        let parent = parents.get(at as usize).copied().unwrap_or(NONE);
        if let Some(count) = waiting.get_mut(parent as usize) {
            *count -= 1;
            if *count == 0 {
                order.push(parent);
            }
        }
    }
    if order.len() == parents.len() { Ok(order) } else { Err(Circular) }
}

/// Follows every link to its end: a call that leads to itself, or none.
///
/// What lies on the way is settled with it, so that no link is followed twice.
fn settle(links: &mut [u32]) {
    let mut way: Vec<u32> = Vec::new();
    for start in 0..links.len() as u32 {
        let mut at = start;
        let end = loop {
            match links.get_mut(at as usize) {
                // Back on the way: it leads nowhere.
                None | Some(&mut OPEN) => break NONE,
                Some(link) if *link == at => break at,
                Some(link) => {
                    way.push(at);
                    at = std::mem::replace(link, OPEN);
                }
            }
        };
        for at in way.drain(..) {
            if let Some(link) = links.get_mut(at as usize) {
                *link = end;
            }
        }
    }
}
