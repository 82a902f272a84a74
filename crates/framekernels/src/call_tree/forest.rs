//! Calls and the calls that they lie in.

use super::NONE;

/// Marks a call that is being looked at, on the way from a call to where it leads.
const OPEN: u32 = NONE - 1;

/// Calls lie in each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Circular;

/// Calls by position, with the call around each.
#[derive(Debug, Clone)]
pub struct Forest {
    parents: Vec<u32>,
    /// Which call each is counted as; none where no call is merged.
    kept: Option<Vec<u32>>,
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
        Ok(Self { kept: None, parents, inner_first })
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
    #[inline]
    pub fn parents(&self) -> &[u32] {
        &self.parents
    }

    /// Which call the one at `at` is counted as: itself if it is not merged, [`NONE`] for none.
    #[must_use]
    #[inline]
    pub fn kept(&self, at: u32) -> u32 {
        let unmerged = if (at as usize) < self.parents.len() { at } else { NONE };
        self.kept.as_ref().map_or(unmerged, |kept| kept.get(at as usize).copied().unwrap_or(NONE))
    }

    /// Whether some call is merged into another.
    #[must_use]
    #[inline]
    pub fn has_merged(&self) -> bool {
        self.kept.is_some()
    }

    /// Whether the call at `at` is merged into another.
    #[must_use]
    #[inline]
    pub fn is_merged(&self, at: usize) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.get(at).is_some_and(|&kept| kept as usize != at))
    }

    /// The calls in order that are not merged and wanted.
    pub fn places(&self, is_wanted: impl Fn(usize) -> bool) -> Vec<u32> {
        let unmerged = (0..self.len()).filter(|&at| !self.is_merged(at));
        unmerged.filter(|&at| is_wanted(at)).map(|at| at as u32).collect()
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
        let mut kept: Vec<u32> = Vec::with_capacity(self.parents.len());
        if self.inner_first.is_none() {
            // What the call around is counted as is known.
            for (&parent, at) in into {
                let around = || kept.get(parent as usize).copied().unwrap_or(NONE);
                kept.push(if repeats(at as usize, parent) { around() } else { at });
            }
        } else {
            kept.extend(into.map(|(&parent, at)| if repeats(at as usize, parent) { parent } else { at }));
            settle(&mut kept);
        }
        self.merge(kept);
    }

    /// The nearest marked call on the way up from each, itself included.
    #[must_use]
    pub fn nearest(&self, is_marked: impl Fn(usize) -> bool) -> Vec<u32> {
        let mut found = Vec::new();
        self.find_nearest(is_marked, &mut found);
        found
    }

    /// The same, in the room of `found`.
    pub fn find_nearest(&self, is_marked: impl Fn(usize) -> bool, found: &mut Vec<u32>) {
        found.clear();
        found.reserve_exact(self.parents.len());
        let up = self.parents.iter().zip(0_u32..);
        if self.inner_first.is_some() {
            found.extend(up.map(|(&parent, at)| if is_marked(at as usize) { at } else { parent }));
            settle(found);
            return;
        }
        for (&parent, at) in up {
            // What is known of a call is known of those inside it.
            let around = || found.get(parent as usize).copied().unwrap_or(NONE);
            found.push(if is_marked(at as usize) { at } else { around() });
        }
    }

    /// The marked calls in order; `found` has for each call the place among them of the
    /// [nearest](Self::nearest).
    pub fn number(&self, is_marked: impl Fn(usize) -> bool, found: &mut Vec<u32>) -> Vec<u32> {
        let mut marked: Vec<u32> = Vec::new();
        if self.inner_first.is_some() {
            self.find_nearest(&is_marked, found);
            marked.extend((0_u32..).take(self.len()).filter(|&at| is_marked(at as usize)));
            let place = |at: u32| marked.binary_search(&at).map_or(NONE, |place| place as u32);
            found.iter_mut().for_each(|at| *at = place(*at));
            return marked;
        }
        found.clear();
        found.reserve_exact(self.parents.len());
        for (&parent, at) in self.parents.iter().zip(0_u32..) {
            found.push(if is_marked(at as usize) {
                marked.push(at);
                marked.len() as u32 - 1
            } else {
                found.get(parent as usize).copied().unwrap_or(NONE)
            });
        }
        marked
    }

    /// Merges every call that is not marked into the nearest marked one around it, or into none.
    pub fn keep_marked(&mut self, is_marked: impl Fn(usize) -> bool) {
        self.merge(self.nearest(is_marked));
    }

    /// Counts each call as the one in `kept`, which is itself or lies around it.
    fn merge(&mut self, kept: Vec<u32>) {
        for (at, (parent, &into)) in self.parents.iter_mut().zip(&kept).enumerate() {
            *parent = if into as usize == at { *kept.get(*parent as usize).unwrap_or(&NONE) } else { NONE };
        }
        self.kept = Some(match self.kept.take() {
            None => kept,
            Some(mut before) => {
                let merged = |before: u32| kept.get(before as usize).copied().unwrap_or(NONE);
                before.iter_mut().for_each(|at| *at = merged(*at));
                before
            }
        });
    }

    /// Visits every call after the one that it lies in.
    pub fn for_each_outer_first(&self, visit: impl FnMut(usize)) {
        match &self.inner_first {
            Some(order) => order.iter().rev().map(|&at| at as usize).for_each(visit),
            None => (0..self.parents.len()).for_each(visit),
        }
    }

    /// Visits every call before the one that it lies in.
    fn for_each_inner_first(&self, visit: impl FnMut(usize)) {
        match &self.inner_first {
            Some(order) => order.iter().map(|&at| at as usize).for_each(visit),
            None => (0..self.parents.len()).rev().for_each(visit),
        }
    }

    /// Subtracts from each call the sum of the calls directly inside.
    pub fn subtract_children(&self, values: &mut [i64]) {
        // A call gives its value to the one around it before it loses those of the calls inside.
        self.for_each_outer_first(|at| {
            let Some(&parent) = self.parents.get(at).filter(|&&parent| parent != NONE) else { return };
            let value = values.get(at).copied().unwrap_or_default();
            if let Some(own) = values.get_mut(parent as usize) {
                *own = own.wrapping_sub(value);
            }
        });
    }

    /// Marks the calls that have another value than the call around them, or none around them, with 1, and
    /// the others with 0.
    pub fn changes(&self, values: &mut [i64]) {
        // The call around is looked at for the last time before it is marked.
        self.for_each_inner_first(|at| {
            let around = self.parents.get(at).and_then(|&parent| values.get(parent as usize)).copied();
            if let Some(value) = values.get_mut(at) {
                *value = i64::from(around != Some(*value));
            }
        });
    }

    /// Adds to each call the values of all calls inside it.
    pub fn with_inner(&self, values: &mut [i64]) {
        self.for_each_inner_first(|at| {
            let Some(&parent) = self.parents.get(at).filter(|&&parent| parent != NONE) else { return };
            let value = values.get(at).copied().unwrap_or_default();
            if let Some(sum) = values.get_mut(parent as usize) {
                *sum = sum.wrapping_add(value);
            }
        });
    }
}

/// The nearest marked call around each marked call, in order; [`NONE`] for none, and where calls lie in each
/// other.
///
/// `parent` tells the call around one. Only calls around marked ones are looked at, each once.
#[must_use]
pub fn marked_around(marked: &[bool], parent: impl Fn(usize) -> u32) -> Vec<u32> {
    // One higher than what a call that is not marked leads to, or OPEN for nothing; memory of other calls is
    // never touched.
    const UNKNOWN: u32 = 0;
    let mut leads_to = vec![UNKNOWN; marked.len()];
    let mut way: Vec<usize> = Vec::new();
    let around = |start: usize| {
        let mut at = parent(start);
        let end = loop {
            match (marked.get(at as usize), leads_to.get_mut(at as usize)) {
                (Some(false), Some(known)) if *known == UNKNOWN => {
                    // Back on the way: it leads nowhere.
                    *known = OPEN;
                    way.push(at as usize);
                    at = parent(at as usize);
                }
                (Some(false), Some(known)) => break if *known == OPEN { NONE } else { *known - 1 },
                (Some(true), _) => break at,
                _ => break NONE,
            }
        };
        for at in way.drain(..) {
            if let Some(known) = leads_to.get_mut(at) {
                *known = if end == NONE { OPEN } else { end + 1 };
            }
        }
        end
    };
    (0..marked.len()).filter(|&at| marked.get(at) == Some(&true)).map(around).collect()
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
