//! Owners against loops that are plainly right.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;

use super::{Calls, Owned, Owner, Traits};
use crate::call_tree::{Forest, NONE};

/// Calls of which each lies in an earlier one or in none, with forwards, classes, and traits of these.
#[derive(Debug, Clone)]
struct Case {
    parents: Vec<u32>,
    forwards: Vec<u32>,
    classes: Vec<u32>,
    traits: Vec<Traits>,
    anchors: Vec<u32>,
}

fn some_traits() -> impl Strategy<Value = Traits> {
    let flags = (any::<[bool; 6]>(), 0..4_i64);
    flags.prop_map(|([computed, modelled, wrapper, gradient, product, works], flops)| Traits {
        is_computed: computed,
        is_modelled: modelled || computed,
        is_wrapper: wrapper,
        tells_gradient: gradient && computed,
        is_product: product || gradient,
        works: works && computed,
        flops,
    })
}

fn cases() -> impl Strategy<Value = Case> {
    let link = || prop_oneof![1 => Just(NONE), 2 => 0..16_u32];
    let calls = vec((link(), prop_oneof![2 => Just(NONE), 1 => 0..16_u32], 0..4_u32), 1..16);
    (calls, vec(some_traits(), 4), vec(link(), 0..12)).prop_map(|(calls, traits, anchors)| {
        let size = calls.len() as u32;
        let inside = |link: u32, below: u32| if link < below { link } else { NONE };
        Case {
            parents: calls.iter().zip(0..).map(|(call, at)| inside(call.0, at)).collect(),
            forwards: calls.iter().map(|call| inside(call.1, size)).collect(),
            classes: calls.iter().map(|call| call.2).collect(),
            traits,
            anchors: anchors.into_iter().map(|anchor| inside(anchor, size)).collect(),
        }
    })
}

impl Case {
    /// The call and those around it, from the inside out.
    fn way(&self, call: u32) -> Vec<u32> {
        let up = |&call: &u32| self.parents.get(call as usize).copied();
        std::iter::successors(Some(call), up).take_while(|&call| call != NONE).collect()
    }

    fn traits(&self, call: u32) -> Traits {
        self.traits[self.classes[call as usize] as usize]
    }

    fn owner(&self, anchor: u32, outermost: bool) -> Owner {
        let way = self.way(anchor);
        let computed: Vec<u32> = way.iter().copied().filter(|&call| self.traits(call).is_computed).collect();
        let own = if outermost { computed.last() } else { computed.first() };
        if let Some(&call) = own {
            return Owner { call, forward: NONE };
        }
        let known = way.iter().copied().find(|&call| self.traits(call).is_modelled);
        let node = way.iter().copied().find(|&call| self.forwards[call as usize] != NONE);
        let is_open = known.is_none_or(|known| self.traits(known).is_product) && !outermost;
        let forward = node.filter(|_| is_open).and_then(|node| {
            let forward = self.forwards[node as usize];
            let asked = self.asked();
            let inside =
                |&call: &u32| self.way(call).into_iter().find(|on| asked.contains(on)) == Some(forward);
            let gradients =
                (0..self.parents.len() as u32).filter(inside).filter(|&c| self.traits(c).tells_gradient);
            gradients.min_by_key(|&call| (-self.traits(call).flops, call))
        });
        match (node, forward) {
            (Some(call), Some(forward)) => Owner { call, forward },
            _ => Owner { call: known.unwrap_or(anchor), forward: NONE },
        }
    }

    /// Forwards of gradients whose work has no cost of its own.
    fn asked(&self) -> BTreeSet<u32> {
        let asked = self.anchors.iter().filter_map(|&anchor| {
            let way = self.way(anchor);
            let known = way.iter().find(|&&call| self.traits(call).is_modelled);
            let is_open = known.is_none_or(|&known| self.traits(known).is_product);
            let has_own = way.iter().any(|&call| self.traits(call).is_computed);
            let node = way.iter().map(|&call| self.forwards[call as usize]).find(|&forward| forward != NONE);
            node.filter(|_| is_open && !has_own)
        });
        asked.collect()
    }
}

/// What is found for the work of the case, or on the host alone.
fn found(case: &Case, outermost: Option<bool>) -> Owned {
    let forest = Forest::new(case.parents.clone()).unwrap();
    let (forwards, classes, traits) = (&case.forwards, &case.classes, &case.traits);
    let calls = Calls { forest: &forest, forwards, classes, traits };
    outermost.map_or_else(|| calls.owned_on_host(), |outermost| calls.owned(&case.anchors, outermost))
}

proptest! {
    #[test]
    fn work_counts_for_the_call_on_its_way((case, outermost) in (cases(), any::<bool>())) {
        let owned = found(&case, Some(outermost));
        let owners: Vec<Owner> = case.anchors.iter().map(|&anchor| case.owner(anchor, outermost)).collect();
        let last: BTreeMap<u32, u32> = owners.iter().map(|owner| (owner.call, owner.forward)).collect();
        let expected: Vec<Owner> =
            last.into_iter().filter(|&(call, _)| call != NONE).map(|(call, forward)| Owner { call, forward }).collect();
        let index = |call: u32| expected.iter().position(|e| e.call == call).map_or(NONE, |at| at as u32);
        let of_work: Vec<u32> = owners.iter().map(|owner| index(owner.call)).collect();
        let around = |call: u32| case.way(call).into_iter().skip(1).map(index).find(|&at| at != NONE);
        let outer: Vec<u32> = expected.iter().map(|owner| around(owner.call).unwrap_or(NONE)).collect();
        prop_assert_eq!(owned, Owned { calls: expected, outer, of_work });
    }

    #[test]
    fn on_the_host_the_outermost_count(case in cases()) {
        let owned = found(&case, None);
        let is_plain = |&call: &u32| case.traits(call).is_computed && !case.traits(call).is_wrapper;
        let counts = |call: u32| {
            let plain: Vec<u32> = case.way(call).into_iter().filter(is_plain).collect();
            plain == [call]
        };
        let calls = 0..case.parents.len() as u32;
        let is_inside = |inner: u32, call: u32| case.way(inner).contains(&call);
        let stands = |call: u32| {
            let mut working = calls.clone().filter(|&inner| is_inside(inner, call) && case.traits(inner).works);
            let is_wrapper = case.traits(call).is_computed && case.traits(call).is_wrapper;
            counts(call) || is_wrapper && !working.any(counts)
        };
        let expected: Vec<u32> = calls
            .clone()
            .filter(|&call| case.way(call).into_iter().filter(|&on| stands(on)).collect::<Vec<_>>() == [call])
            .collect();
        prop_assert_eq!(owned.calls.iter().map(|owner| owner.call).collect::<Vec<_>>(), expected);
        prop_assert!(owned.of_work.is_empty() && owned.outer.iter().all(|&outer| outer == NONE));
    }
}
