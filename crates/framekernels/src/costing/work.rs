//! Sums of GPU work by kinds of calls and classes of work.

use arrow_buffer::ScalarBuffer;
use hashbrown::HashMap;

use crate::frame::NONE;
use crate::numbering::number_of;

/// The time of a piece of work is not known.
pub const UNTIMED: i64 = i64::MIN;

/// GPU work with the call that each piece counts for.
#[derive(Debug, Default)]
pub struct Work {
    /// The call, as an index into the calls that count, or none.
    pub ops: ScalarBuffer<u32>,
    /// How long each lasts, or [`UNTIMED`].
    pub durations: ScalarBuffer<i64>,
    /// The part of each in the time in which its GPU is busy.
    pub busy: Vec<f64>,
    /// Which pieces are alike in all that is asked of them.
    pub classes: Vec<u32>,
}

/// What the work of a class says of its operator.
#[derive(Debug, Clone, Copy, Default)]
pub struct Marks {
    /// Whether it used tensor cores: 2 yes, 1 unknown, 0 no.
    pub cores: u8,
    /// A number for the type in which it multiplies; 0 where that is not known.
    pub math: u8,
    /// Its algorithm needs fewer operations than are counted.
    pub needs_fewer: bool,
}

/// The sums of the work of a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OfOp {
    /// Time of its work, added.
    pub device_ns: i64,
    /// Of that, on tensor cores.
    pub tensor_core_ns: i64,
    /// Pieces of work.
    pub pieces: u32,
    /// The highest [`Marks::cores`] of its work.
    pub cores: u8,
    /// [`Marks::math`] of its longest work that has any.
    pub math: u8,
    /// Any of its work needs fewer operations.
    pub needs_fewer: bool,
}

/// A kind of calls together with a class of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pair {
    /// The kind of the calls, as given.
    pub kind: u32,
    /// The class of the work.
    pub class: u32,
    /// [`OfOp::cores`] of the calls.
    pub cores: u8,
    /// [`OfOp::math`] of the calls.
    pub math: u8,
}

/// What limits the work of a pair, if it had all the work of its call. Times are NaN where unknown.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The least time.
    pub least_ns: f64,
    /// The least time by the operations.
    pub compute_ns: f64,
    /// The least time by the bytes.
    pub memory_ns: f64,
    /// The least time by the bytes that the L2 cannot hold.
    pub through_ns: f64,
    /// The cost is an estimate.
    pub is_estimate: bool,
}

/// The sums of the work of a pair.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Figures {
    /// Pieces of work.
    pub pieces: u32,
    /// Of these, with a known time.
    pub timed: u32,
    /// Their time, added.
    pub device_ns: i64,
    /// Their shares in their calls' work, added.
    pub shares: f64,
    /// Their shares in their calls' time on tensor cores, added.
    pub tensor_core_ns: f64,
    /// What they take of the busy time beyond the least time, added.
    pub saveable_ns: f64,
    /// The longest, and its position.
    pub longest: Option<(i64, u32)>,
    /// The longest whose call seems to reach more than a peak, its position, and why.
    pub flagged: Option<(i64, u32, u8)>,
}

/// How far above a peak a figure may lie: clocks above the stated one, and rounding.
pub(super) const TOLERANCE: f64 = 1.05;
/// The coarsest unit of recorders.
const TICK_NS: i64 = 1_000;

/// Work by pairs of a kind of calls and a class of work.
#[derive(Debug)]
pub struct Pairs {
    ops: Vec<OfOp>,
    pairs: Vec<Pair>,
    /// The pair of each piece; none for work without a call.
    of_work: Vec<u32>,
}

impl Pairs {
    /// Pairs the work of calls, of which `kinds` has the kind, with its classes, of which `marks` are known.
    #[must_use]
    pub fn new(work: &Work, kinds: &[u32], marks: &[Marks]) -> Self {
        let ops = of_ops(work, kinds.len(), marks);
        let mut numbers = HashMap::new();
        let mut pairs: Vec<Pair> = Vec::new();
        let pair_of = |(&op, &class): (&u32, &u32)| {
            let known = ops.get(op as usize).zip(kinds.get(op as usize));
            let Some((of_op, &kind)) = known else { return NONE };
            let pair = Pair { kind, class, cores: of_op.cores, math: of_op.math };
            let number = number_of(&mut numbers, pair);
            if number as usize == pairs.len() {
                pairs.push(pair);
            }
            number
        };
        let of_work = work.ops.iter().zip(&work.classes).map(pair_of).collect();
        Self { ops, pairs, of_work }
    }

    /// Returns the sums of each call's work.
    #[must_use]
    pub fn ops(&self) -> &[OfOp] {
        &self.ops
    }

    /// The pairs.
    #[must_use]
    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    /// The pair of each piece of work; none for work without a call.
    #[must_use]
    pub fn of_work(&self) -> &[u32] {
        &self.of_work
    }

    /// The share of each piece of work in its call's; 0 for work without a call.
    pub fn shares(&self, work: &Work) -> impl Iterator<Item = f64> {
        let shared = work.ops.iter().zip(&work.durations);
        shared.map(|(&op, &duration)| self.ops.get(op as usize).map_or(0.0, |op| share(op, duration)))
    }

    /// Returns the figures of the work of each pair, if `limits` limit it.
    #[must_use]
    pub fn figures(&self, work: &Work, limits: &[Limits]) -> Vec<Figures> {
        let mut found = vec![Figures::default(); self.pairs.len()];
        let pieces =
            self.of_work.iter().zip(work.ops.iter()).zip(work.durations.iter().zip(&work.busy)).zip(0_u32..);
        for (((&pair, &op), (&duration, &busy)), at) in pieces {
            let (Some(sums), Some(limits)) = (found.get_mut(pair as usize), limits.get(pair as usize)) else {
                continue;
            };
            let Some(op) = self.ops.get(op as usize) else { continue };
            let (share, length) = (share(op, duration), length(duration));
            sums.pieces += 1;
            sums.timed += u32::from(duration != UNTIMED);
            sums.device_ns += length;
            sums.shares += share;
            sums.tensor_core_ns += op.tensor_core_ns as f64 * share;
            if sums.longest.is_none_or(|(longest, _)| length > longest) {
                sums.longest = Some((length, at));
            }
            if limits.least_ns.is_nan() {
                continue;
            }
            sums.saveable_ns += (busy - limits.least_ns * share).max(0.0);
            let reason = reason(limits, op);
            if reason > 0 && sums.flagged.is_none_or(|(longest, _, _)| length > longest) {
                sums.flagged = Some((length, at, reason));
            }
        }
        found
    }

    /// In how many calls the work of each of `count` groups is; `groups` has the group of each pair.
    #[must_use]
    pub fn calls(&self, work: &Work, groups: &[u32], count: usize) -> Vec<u32> {
        let mut calls = vec![0_u32; count];
        let mut count_in = |group: u32| {
            if let Some(calls) = calls.get_mut(group as usize) {
                *calls += 1;
            }
        };
        let mut several: Vec<(u32, u32)> = Vec::new();
        for (&pair, &op) in self.of_work.iter().zip(work.ops.iter()) {
            let (Some(&group), Some(of_op)) = (groups.get(pair as usize), self.ops.get(op as usize)) else {
                continue;
            };
            if of_op.pieces == 1 {
                count_in(group);
            } else {
                several.push((op, group));
            }
        }
        several.sort_unstable();
        several.dedup();
        several.iter().for_each(|&(_, group)| count_in(group));
        calls
    }
}

fn of_ops(work: &Work, count: usize, marks: &[Marks]) -> Vec<OfOp> {
    let mut ops = vec![OfOp::default(); count];
    let mut longest = vec![0_i64; count];
    for ((&op, &duration), &class) in work.ops.iter().zip(work.durations.iter()).zip(&work.classes) {
        let at = op as usize;
        let (Some(op), Some(longest)) = (ops.get_mut(at), longest.get_mut(at)) else { continue };
        let marks = marks.get(class as usize).copied().unwrap_or_default();
        let length = length(duration);
        op.device_ns += length;
        op.tensor_core_ns += if marks.cores == 2 { length } else { 0 };
        op.pieces += 1;
        op.cores = op.cores.max(marks.cores);
        op.needs_fewer |= marks.needs_fewer;
        if marks.math > 0 && (op.math == 0 || length > *longest) {
            (op.math, *longest) = (marks.math, length);
        }
    }
    ops
}

fn length(duration: i64) -> i64 {
    if duration == UNTIMED { 0 } else { duration }
}

/// In proportion to the time, or equal where that is 0.
fn share(op: &OfOp, duration: i64) -> f64 {
    if op.device_ns > 0 { length(duration) as f64 / op.device_ns as f64 } else { 1.0 / f64::from(op.pieces) }
}

/// Why a call seems to reach more than [`TOLERANCE`] of a peak: the first of the reasons that explains it,
/// which are numbered from 1; 0 if it does not.
fn reason(limits: &Limits, op: &OfOp) -> u8 {
    let duration = op.device_ns as f64;
    // What is not known is not more.
    let over_compute = limits.compute_ns > TOLERANCE * duration;
    let over_memory = limits.memory_ns > TOLERANCE * duration;
    if !over_compute && !over_memory {
        return 0;
    }
    let ticks = TICK_NS as f64 * f64::from(op.pieces);
    let needed = limits.compute_ns.max(limits.memory_ns);
    if over_memory && !over_compute && limits.through_ns <= TOLERANCE * duration {
        1
    } else if over_compute && op.needs_fewer {
        2
    } else if op.device_ns % TICK_NS == 0 && needed <= TOLERANCE * (duration + ticks) {
        3
    } else if limits.is_estimate {
        4
    } else {
        5
    }
}
