//! Which call each piece of work counts for.

use crate::call_tree::{Forest, NONE};

/// What the cost of the calls of a class tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traits {
    /// The cost is known.
    pub is_computed: bool,
    /// There is a model, whether or not it could tell the cost.
    pub is_modelled: bool,
    /// What the calls do is done by those inside.
    pub is_wrapper: bool,
    /// The cost tells what the gradient costs.
    pub tells_gradient: bool,
    /// There is a model of a family of which gradients are known, with a cost or without.
    pub is_product: bool,
    /// The cost is known and not 0.
    pub works: bool,
    /// Operations; 0 if they are not known.
    pub flops: i64,
}

/// Calls with their classes, and what is known of these.
#[derive(Debug, Clone, Copy)]
pub struct Calls<'a> {
    /// Which call lies in which.
    pub forest: &'a Forest,
    /// The call of which each is the gradient; empty where there are no gradients.
    pub forwards: &'a [u32],
    /// The class of each.
    pub classes: &'a [u32],
    /// What is known of each class.
    pub traits: &'a [Traits],
}

/// The call whose cost counts for a piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The call, or none.
    pub call: u32,
    /// The call of whose cost that of the gradient `call` is made, or none.
    pub forward: u32,
}

/// The calls that count, in order, and for which work each does.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Owned {
    /// Calls with the forward whose cost each takes.
    pub calls: Vec<Owner>,
    /// For each of `calls`, the nearest other one around it, as an index into `calls`, or none.
    pub outer: Vec<u32>,
    /// For each piece of work its call, as an index into `calls`, or none.
    pub of_work: Vec<u32>,
}

impl Calls<'_> {
    /// The calls that count for work that the calls `anchors` launched, each of which may be none.
    ///
    /// That is the innermost call with a cost around the launch, or with `outermost` the outermost:
    /// so does a counter that does not look inside a call. Where there is none, a gradient has what
    /// its forward call tells; else the work stays with the innermost call that has a model, or with
    /// the innermost of all.
    #[must_use]
    pub fn owned(&self, anchors: &[u32], outermost: bool) -> Owned {
        let owners = self.owners(anchors, outermost);
        let mut is_owner = vec![false; self.forest.len()];
        for owner in &owners {
            if let Some(mark) = is_owner.get_mut(owner.call as usize) {
                *mark = true;
            }
        }
        let is_owner = |call: usize| is_owner.get(call) == Some(&true);
        let (counted, nearest) = self.forest.numbered(is_owner);
        let mut calls: Vec<Owner> = counted.into_iter().map(|call| Owner { call, forward: NONE }).collect();
        for owner in owners.iter().filter(|owner| owner.call != NONE) {
            if let Some(call) = calls.get_mut(at(&nearest, owner.call) as usize) {
                call.forward = owner.forward;
            }
        }
        let of_work = owners.iter().map(|owner| at(&nearest, owner.call)).collect();
        let parents = self.forest.parents();
        let outer = calls.iter().map(|owner| at(&nearest, at(parents, owner.call))).collect();
        Owned { calls, outer, of_work }
    }

    /// The calls that count where there is no work.
    ///
    /// The outermost calls that are no wrappers count, and what they call is part of them. A wrapper
    /// counts where nothing inside it does.
    #[must_use]
    pub fn owned_on_host(&self) -> Owned {
        let parents = self.forest.parents();
        let is_plain = |call: usize| self.has(call, |traits| traits.is_computed && !traits.is_wrapper);
        let plain = self.forest.nearest(is_plain);
        let is_outer = |around: &[u32], call: usize| at(around, at(parents, call as u32)) == NONE;
        let counts = |call: usize| is_plain(call) && is_outer(&plain, call);
        let works = |call: usize| i64::from(counts(call) && self.has(call, |traits| traits.works));
        let mut inside: Vec<i64> = (0..parents.len()).map(works).collect();
        self.forest.with_inner(&mut inside, |_, _| {});
        let stands = |call: usize| {
            let is_wrapper = self.has(call, |traits| traits.is_computed && traits.is_wrapper);
            counts(call) || is_wrapper && inside.get(call) == Some(&0)
        };
        let standing = self.forest.nearest(stands);
        let found = (0..parents.len()).filter(|&call| stands(call) && is_outer(&standing, call));
        let calls: Vec<Owner> = found.map(|call| Owner { call: call as u32, forward: NONE }).collect();
        let outer = vec![NONE; calls.len()];
        Owned { calls, outer, of_work: Vec::new() }
    }

    #[inline]
    fn has(&self, call: usize, trait_of: impl Fn(&Traits) -> bool) -> bool {
        let class = self.classes.get(call).and_then(|&class| self.traits.get(class as usize));
        class.is_some_and(trait_of)
    }

    fn owners(&self, anchors: &[u32], outermost: bool) -> Vec<Owner> {
        let is_computed = |call: usize| self.has(call, |traits| traits.is_computed);
        let mut own = self.forest.nearest(is_computed);
        if outermost {
            let parents = self.forest.parents();
            own = self.forest.nearest(|call| is_computed(call) && at(&own, at(parents, call as u32)) == NONE);
        }
        let settled = anchors.iter().all(|&anchor| anchor == NONE || at(&own, anchor) != NONE);
        let known = if settled {
            Vec::new()
        } else {
            self.forest.nearest(|call| self.has(call, |traits| traits.is_modelled))
        };
        let forward_of =
            if settled || outermost { Vec::new() } else { self.told_by_forward(&own, &known, anchors) };
        let owner = |(place, &anchor): (usize, &u32)| {
            let (own, known) = (at(&own, anchor), at(&known, anchor));
            match forward_of.get(place) {
                _ if own != NONE => Owner { call: own, forward: NONE },
                Some(told) if told.forward != NONE => *told,
                _ => Owner { call: if known == NONE { anchor } else { known }, forward: NONE },
            }
        };
        anchors.iter().enumerate().map(owner).collect()
    }

    /// For each anchor without a cost of its own, the gradient around it and the call that tells its cost.
    fn told_by_forward(&self, own: &[u32], known: &[u32], anchors: &[u32]) -> Vec<Owner> {
        if self.forwards.iter().all(|&forward| forward == NONE) {
            return Vec::new();
        }
        let node = self.forest.nearest(|call| at(self.forwards, call as u32) != NONE);
        let asks = |anchor: u32| {
            // What a node calls may say that its work is of another kind, such as a copy.
            let known = at(known, anchor);
            let is_open = known == NONE || self.has(known as usize, |traits| traits.is_product);
            at(own, anchor) == NONE && is_open
        };
        let of_anchor = |&anchor: &u32| {
            let call = if asks(anchor) { at(&node, anchor) } else { NONE };
            Owner { call, forward: at(self.forwards, call) }
        };
        let mut told: Vec<Owner> = anchors.iter().map(of_anchor).collect();
        if told.iter().all(|owner| owner.forward == NONE) {
            return Vec::new();
        }
        let best = self.costliest_within(&told);
        told.iter_mut().for_each(|owner| owner.forward = at(&best, owner.forward));
        told
    }

    /// By each forward call of `asked`, itself or the costliest inside it that tells the gradient's cost.
    fn costliest_within(&self, asked: &[Owner]) -> Vec<u32> {
        let mut best = vec![NONE; self.forest.len()];
        let mut is_asked = vec![false; self.forest.len()];
        for owner in asked {
            if let Some(mark) = is_asked.get_mut(owner.forward as usize) {
                *mark = true;
            }
        }
        let within = self.forest.nearest(|call| is_asked.get(call) == Some(&true));
        let traits_of = |call: u32| self.traits.get(at(self.classes, call) as usize);
        for (call, &forward) in (0_u32..).zip(&within) {
            let Some(traits) = traits_of(call).filter(|traits| traits.tells_gradient) else { continue };
            let costs = |other: u32| traits_of(other).map_or(i64::MIN, |traits| traits.flops);
            if let Some(costliest) = best.get_mut(forward as usize)
                && (*costliest == NONE || traits.flops > costs(*costliest))
            {
                *costliest = call;
            }
        }
        best
    }
}

/// The value at a position; none at none.
#[inline]
fn at(values: &[u32], position: u32) -> u32 {
    values.get(position as usize).copied().unwrap_or(NONE)
}
