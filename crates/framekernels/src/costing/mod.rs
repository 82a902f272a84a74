//! Which call's cost GPU work counts for.
//!
//! What a cost is, is not known here: calls have classes, whose traits the caller gives. A call or a piece of
//! work is known by its position; there is [`NONE`] of them.

use arrow_array::RecordBatch;
use arrow_array::types::UInt8Type;

use crate::call_tree::Forest;
use crate::frame::{Frame, NONE, Result, column, invalid, positions, table};
use crate::numbering::Positions;

#[cfg(test)]
mod tests;

/// The calls that count for the work of `anchors` (`anchor`, rows of calls, null for none), or for what the
/// host does if there is none, by the traits of their classes.
///
/// Two tables: `op` of each piece of work, an index into the second, null for none; and the calls that count,
/// with their position `at`, that of the call of whose cost theirs is made, `forward`, and `outer`, the one
/// around it, as an index; both null for none.
///
/// Columns: of `calls`, `row`, `parent_row`, `class`, and `forward_row` if there are any; of `traits`, those
/// of [`Traits`].
pub fn cost_owners(
    calls: &Frame,
    traits: &Frame,
    anchors: Option<&Frame>,
    outermost: bool,
) -> Result<(RecordBatch, RecordBatch)> {
    let (traits, rows) = (Traits::read(traits)?, Positions::new(&calls.u32_array("row")?));
    let places = |frame: &Frame, name| -> Result<Vec<u32>> {
        let place = |&row: &u32| if row == NONE { NONE } else { rows.of(row) };
        Ok(frame.u32_array(name)?.iter().map(place).collect())
    };
    let forwards = if calls.has("forward_row") { places(calls, "forward_row")? } else { Vec::new() };
    let forest = Forest::new(places(calls, "parent_row")?);
    let forest = forest.map_err(|_| invalid("the rows are each other's ancestors"))?;
    let classes = calls.u32_array("class")?;
    let calls = Calls { forest: &forest, forwards: &forwards, classes: &classes, traits: &traits };
    let Owned { calls, outer, of_work } = match anchors {
        Some(anchors) => calls.owned(&places(anchors, "anchor")?, outermost),
        None => calls.owned_on_host(),
    };
    let (at, forward) = calls.into_iter().map(|owner| (owner.call, owner.forward)).unzip();
    let ops = [("at", positions(at)), ("forward", positions(forward)), ("outer", positions(outer))];
    Ok((table([("op", positions(of_work))])?, table(ops)?))
}

/// The work of each of `count` operators: `device_ns`, `kernels`, `tensor_core_ns` (of the pieces whose `cores`
/// are 2), the most `cores`, the `math` of the first longest piece that has any (not 0), and `needs_fewer` (a
/// piece does).
///
/// Columns: of `pieces`, `op`, `of_class` and `dur_ns`; of `marks`, a row per class, `cores`, `math` and
/// `needs_fewer`.
pub fn operator_work(pieces: &Frame, marks: &Frame, count: usize) -> Result<RecordBatch> {
    let (ops, classes) = (pieces.u32_array("op")?, pieces.u32_array("of_class")?);
    let (cores, maths) = (marks.values::<UInt8Type>("cores")?, marks.values::<UInt8Type>("math")?);
    let (lengths, fewer) = (pieces.i64_array("dur_ns")?, marks.flags("needs_fewer")?);
    let (mut device_ns, mut kernels, mut tensor_core_ns) = (vec![0; count], vec![0; count], vec![0; count]);
    let (mut most_cores, mut math, mut needs_fewer) = (vec![0; count], vec![0; count], vec![false; count]);
    let mut longest_ns = vec![-1; count];
    for (&op, (&class, &length)) in ops.iter().zip(classes.iter().zip(lengths.iter())) {
        let (op, class) = (op as usize, class as usize);
        device_ns[op] += length;
        kernels[op] += 1;
        tensor_core_ns[op] += if cores[class] == 2 { length } else { 0 };
        most_cores[op] = cores[class].max(most_cores[op]);
        needs_fewer[op] |= fewer.value(class);
        if maths[class] != 0 && length > longest_ns[op] {
            (math[op], longest_ns[op]) = (maths[class], length);
        }
    }
    table([
        ("device_ns", column::<i64>(device_ns)),
        ("kernels", column::<i64>(kernels)),
        ("tensor_core_ns", column::<i64>(tensor_core_ns)),
        ("cores", column::<u8>(most_cores)),
        ("math", column::<u8>(math)),
        ("needs_fewer", column::<bool>(needs_fewer)),
    ])
}

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

impl Traits {
    fn read(frame: &Frame) -> Result<Vec<Self>> {
        let (computed, modelled) = (frame.flags("is_computed")?, frame.flags("is_modelled")?);
        let (wrapper, gradient) = (frame.flags("is_wrapper")?, frame.flags("tells_gradient")?);
        let (product, works) = (frame.flags("is_product")?, frame.flags("works")?);
        let flops = frame.i64_array("flops")?;
        let traits = flops.iter().enumerate().map(|(at, &flops)| Self {
            is_computed: computed.value(at),
            is_modelled: modelled.value(at),
            is_wrapper: wrapper.value(at),
            tells_gradient: gradient.value(at),
            is_product: product.value(at),
            works: works.value(at),
            flops,
        });
        Ok(traits.collect())
    }
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
        // Room for what is found of every call, one thing after the other.
        let mut found: Vec<u32> = Vec::new();
        let owners = self.owners(anchors, outermost, &mut found);
        let mut is_owner = vec![false; self.forest.len()];
        for owner in &owners {
            if let Some(mark) = is_owner.get_mut(owner.call as usize) {
                *mark = true;
            }
        }
        let counted = self.forest.number(|call| is_owner.get(call) == Some(&true), &mut found);
        let mut calls: Vec<Owner> = counted.into_iter().map(|call| Owner { call, forward: NONE }).collect();
        for owner in &owners {
            if let Some(call) = calls.get_mut(at(&found, owner.call) as usize) {
                call.forward = owner.forward;
            }
        }
        let of_work = owners.iter().map(|owner| at(&found, owner.call)).collect();
        let parents = self.forest.parents();
        let outer = calls.iter().map(|owner| at(&found, at(parents, owner.call))).collect();
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
        self.forest.with_inner(&mut inside);
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

    fn owners(&self, anchors: &[u32], outermost: bool, found: &mut Vec<u32>) -> Vec<Owner> {
        let is_computed = |call: usize| self.has(call, |traits| traits.is_computed);
        self.forest.find_nearest(is_computed, found);
        if outermost {
            let (own, parents) = (std::mem::take(found), self.forest.parents());
            let is_outer = |call: usize| at(&own, at(parents, call as u32)) == NONE;
            self.forest.find_nearest(|call| is_computed(call) && is_outer(call), found);
        }
        let own = |&anchor: &u32| Owner { call: at(found, anchor), forward: NONE };
        let mut owners: Vec<Owner> = anchors.iter().map(own).collect();
        // Work below no call with a cost, by position, with the call that launched it.
        let below_none = owners.iter().zip(anchors).zip(0_u32..);
        let below_none = below_none.filter(|&((owner, &anchor), _)| owner.call == NONE && anchor != NONE);
        let open: Vec<(u32, u32)> = below_none.map(|((_, &anchor), place)| (place, anchor)).collect();
        if open.is_empty() {
            return owners;
        }
        self.forest.find_nearest(|call| self.has(call, |traits| traits.is_modelled), found);
        let known: Vec<u32> = open.iter().map(|&(_, anchor)| at(found, anchor)).collect();
        let by_forward = if outermost { Vec::new() } else { self.owners_by_forward(&open, &known, found) };
        for ((at, &(place, anchor)), &known) in open.iter().enumerate().zip(&known) {
            let Some(owner) = owners.get_mut(place as usize) else { continue };
            *owner = match by_forward.get(at) {
                Some(owner) if owner.forward != NONE => *owner,
                _ => Owner { call: if known == NONE { anchor } else { known }, forward: NONE },
            };
        }
        owners
    }

    /// For each piece of work below no call with a cost, the gradient around it and the call that tells its
    /// cost; `known` has the innermost call with a model around each.
    fn owners_by_forward(&self, open: &[(u32, u32)], known: &[u32], found: &mut Vec<u32>) -> Vec<Owner> {
        if self.forwards.iter().all(|&forward| forward == NONE) {
            return Vec::new();
        }
        self.forest.find_nearest(|call| at(self.forwards, call as u32) != NONE, found);
        let of_piece = |(&(_, anchor), &known): (&(u32, u32), &u32)| {
            // What a node calls may say that its work is of another kind, such as a copy.
            let asks = known == NONE || self.has(known as usize, |traits| traits.is_product);
            let call = if asks { at(found, anchor) } else { NONE };
            Owner { call, forward: at(self.forwards, call) }
        };
        let mut owners: Vec<Owner> = open.iter().zip(known).map(of_piece).collect();
        if owners.iter().all(|owner| owner.forward == NONE) {
            return Vec::new();
        }
        self.find_costliest(&mut owners, found);
        owners
    }

    /// Replaces the forward calls by themselves or the costliest inside each that tells the gradient's cost.
    fn find_costliest(&self, asked: &mut [Owner], found: &mut Vec<u32>) {
        let mut is_asked = vec![false; self.forest.len()];
        for owner in asked.iter() {
            if let Some(mark) = is_asked.get_mut(owner.forward as usize) {
                *mark = true;
            }
        }
        let forwards = self.forest.number(|call| is_asked.get(call) == Some(&true), found);
        let mut best = vec![NONE; forwards.len()];
        let traits_of = |call: u32| self.traits.get(at(self.classes, call) as usize);
        for (call, &forward) in (0_u32..).zip(found.iter()) {
            let Some(costliest) = best.get_mut(forward as usize) else { continue };
            let Some(traits) = traits_of(call).filter(|traits| traits.tells_gradient) else { continue };
            let costs = |other: u32| traits_of(other).map_or(i64::MIN, |traits| traits.flops);
            if *costliest == NONE || traits.flops > costs(*costliest) {
                *costliest = call;
            }
        }
        // The nearest forward call to one of them is itself.
        asked.iter_mut().for_each(|owner| owner.forward = at(&best, at(found, owner.forward)));
    }
}

/// The value at a position; none at none.
#[inline]
fn at(values: &[u32], position: u32) -> u32 {
    values.get(position as usize).copied().unwrap_or(NONE)
}
