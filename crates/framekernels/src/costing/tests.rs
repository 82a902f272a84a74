//! Owners and figures against loops that are plainly right.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;

use super::frames::set_apart;
use super::{Calls, Limits, Marks, Owned, Owner, Pairs, Traits, UNTIMED, Work};
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

    #[test]
    fn figures_are_sums_over_the_work_of_a_pair(
        pieces in vec((prop_oneof![1 => Just(NONE), 3 => 0..4_u32], prop::option::of(0..2500_i64), 0..3_u32), 0..20),
        kinds in vec(0..2_u32, 4),
        marks in vec((0..3_u8, 0..3_u8, any::<bool>()), 3),
        least in vec(prop_oneof![Just(f64::NAN), 0.0..5000.0], 24),
    ) {
        let pieces = &pieces;
        let marks: Vec<Marks> =
            marks.into_iter().map(|(cores, math, needs_fewer)| Marks { cores, math, needs_fewer }).collect();
        let work = Work {
            ops: pieces.iter().map(|p| p.0).collect(),
            durations: pieces.iter().map(|p| p.1.unwrap_or(UNTIMED)).collect(),
            busy: pieces.iter().map(|p| p.1.unwrap_or(0) as f64 / 2.0).collect(),
            classes: pieces.iter().map(|p| p.2).collect(),
        };
        let pairs = Pairs::new(&work, &kinds, &marks);
        let limits: Vec<Limits> = least.iter().map(|&least_ns| Limits {
            least_ns, compute_ns: least_ns, memory_ns: least_ns / 2.0, through_ns: f64::NAN, is_estimate: false,
        }).collect();
        let figures = pairs.figures(&work, &limits);
        let length = |at: usize| pieces[at].1.unwrap_or(0);
        let of_op = |op: u32| (0..pieces.len()).filter(move |&at| pieces[at].0 == op);
        let cores = |op: u32| of_op(op).map(|at| marks[pieces[at].2 as usize].cores).max().unwrap();
        let math = |op: u32| {
            let known = of_op(op).filter(|&at| marks[pieces[at].2 as usize].math > 0);
            known.min_by_key(|&at| (-length(at), at)).map_or(0, |at| marks[pieces[at].2 as usize].math)
        };
        let total = |op: u32| of_op(op).map(length).sum::<i64>();
        let share = |at: usize| match total(pieces[at].0) {
            0 => 1.0 / of_op(pieces[at].0).count() as f64,
            total => length(at) as f64 / total as f64,
        };
        let mut seen = 0;
        for (number, pair) in (0_u32..).zip(pairs.pairs()) {
            let members: Vec<usize> = (0..pieces.len()).filter(|&at| {
                let (op, class) = (pieces[at].0, pieces[at].2);
                op != NONE && class == pair.class && kinds[op as usize] == pair.kind
                    && cores(op) == pair.cores && math(op) == pair.math
            }).collect();
            seen += members.len();
            prop_assert!(members.iter().all(|&at| pairs.of_work()[at] == number));
            let (sums, least) = (figures[number as usize], limits[number as usize].least_ns);
            let sum = |of: &dyn Fn(usize) -> f64| members.iter().map(|&at| of(at)).sum::<f64>();
            prop_assert_eq!(sums.pieces as usize, members.len());
            prop_assert_eq!(sums.timed as usize, members.iter().filter(|&&at| pieces[at].1.is_some()).count());
            prop_assert_eq!(sums.device_ns, members.iter().map(|&at| length(at)).sum::<i64>());
            prop_assert!((sums.shares - sum(&share)).abs() < 1e-9);
            let saved = |at: usize| (work.busy[at] - least * share(at)).max(0.0);
            let saveable = if least.is_nan() { 0.0 } else { sum(&saved) };
            prop_assert!((sums.saveable_ns - saveable).abs() < 1e-6);
            let longest = members.iter().map(|&at| (length(at), at as u32)).min_by_key(|l| (-l.0, l.1));
            prop_assert_eq!(sums.longest, longest);
            let over = |at: &&usize| least > super::work::TOLERANCE * total(pieces[**at].0) as f64;
            let flagged = members.iter().filter(over).map(|&at| (length(at), at as u32)).min_by_key(|l| (-l.0, l.1));
            prop_assert_eq!(sums.flagged.map(|f| (f.0, f.1)), flagged);
        }
        prop_assert_eq!(seen, pieces.iter().filter(|p| p.0 != NONE).count());
        let groups: Vec<u32> = pairs.pairs().iter().map(|pair| pair.class).collect();
        let calls = pairs.calls(&work, &groups, 3);
        for (class, calls) in (0_u32..).zip(calls) {
            let ops: BTreeSet<u32> =
                pieces.iter().filter(|p| p.2 == class && p.0 != NONE).map(|p| p.0).collect();
            prop_assert_eq!(calls as usize, ops.len());
        }
    }
}

#[test]
fn rows_are_set_apart_by_their_class_and_last_mark() {
    let mut of = [0, 1, 0, 1, 1, 2];
    let apart = set_apart(&mut of, 3, [(0, 7), (2, 8), (3, 7), (2, 7), (4, 7), (9, 7)].into_iter());
    assert_eq!(of, [3, 1, 3, 5, 5, 2]);
    assert_eq!(apart, [(0, 7), (0, 8), (1, 7)]);
}
