//! Costing of calls and work that come in frames.

use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use hashbrown::HashMap;

use super::{Calls, Limits, Marks, Owned, Owner, Pairs, Traits, UNTIMED, Work};
use crate::call_tree::Forest;
use crate::frame::{Frame, NONE, Result, column, invalid, positions, records, table};
use crate::numbering::{Positions, classes_of, number_of};

/// Calls in classes of equal ones, of which those are found whose costs count for work.
#[derive(Debug)]
pub struct CallCosting {
    calls: Frame,
    positions: Positions,
    classes: Vec<u32>,
    first: Vec<u32>,
}

impl CallCosting {
    /// Of calls with `row`, `parent_row`, `forward_row` if there are any, and as `0`, `1` ... what classes
    /// agree in, as codes.
    pub fn new(calls: Frame) -> Result<Self> {
        let (classes, first) = classes_of(&calls)?;
        let positions = Positions::new(&calls.u32_array("row")?);
        Ok(Self { calls, positions, classes, first })
    }

    /// The position of the first call of each class that was not set apart, `first`.
    pub fn first(&self) -> Result<RecordBatch> {
        table([("first", positions(self.first.clone()))])
    }

    /// The rows of the calls whose class is `marked`, `row`.
    pub fn rows_where(&self, marks: &Frame) -> Result<RecordBatch> {
        let (rows, marked) = (self.calls.u32_array("row")?, marks.flags("marked")?);
        let is_marked = |class: u32| crate::frame::is_set(&marked, class as usize);
        let found = rows.iter().zip(&self.classes).filter(|&(_, &class)| is_marked(class));
        table([("row", positions(found.map(|(&row, _)| row).collect()))])
    }

    /// Makes classes of their own of the calls `row`, those of a class with equal `entry` together, and
    /// numbers them behind the others: of each new one the `class` that it is a part of, and its `entry`.
    /// The last entry of a call counts.
    pub fn set_apart(&mut self, entries: &Frame) -> Result<RecordBatch> {
        let (rows, entries) = (entries.u32_array("row")?, entries.u32_array("entry")?);
        let places = rows.iter().map(|&row| self.positions.of(row));
        let entries = places.zip(entries.iter().copied());
        let apart = set_apart(&mut self.classes, self.first.len() as u32, entries);
        let (of, entries): (Vec<u32>, Vec<u32>) = apart.into_iter().unzip();
        table([("class", positions(of)), ("entry", positions(entries))])
    }

    /// The calls that count for the work of `anchors` (`anchor`, rows of calls, null for none), or for what
    /// the host does if there is none, by the traits of classes.
    ///
    /// Three tables: `op` of each piece of work, an index into the second, null for none; the calls that
    /// count, with `row`, `kind` and `outer` (the one around it, an index, null for none); and their kinds:
    /// `class`, and `forward_class` (null where the cost is the call's own).
    pub fn owners(
        &self,
        traits: &Frame,
        anchors: Option<&Frame>,
        outermost: bool,
    ) -> Result<(RecordBatch, RecordBatch, RecordBatch)> {
        let (traits, rows) = (read_traits(traits)?, self.calls.u32_array("row")?);
        let place = |&row: &u32| if row == NONE { NONE } else { self.positions.of(row) };
        let places = |frame: &Frame, name| -> Result<Vec<u32>> {
            Ok(frame.u32_array(name)?.iter().map(place).collect())
        };
        let has_forwards = self.calls.has("forward_row");
        let forwards = if has_forwards { places(&self.calls, "forward_row")? } else { Vec::new() };
        let forest = Forest::new(places(&self.calls, "parent_row")?);
        let forest = forest.map_err(|_| invalid("the rows are each other's ancestors"))?;
        let calls = Calls { forest: &forest, forwards: &forwards, classes: &self.classes, traits: &traits };
        let Owned { calls, outer, of_work } = match anchors {
            Some(anchors) => calls.owned(&places(anchors, "anchor")?, outermost),
            None => calls.owned_on_host(),
        };
        let class_of = |call: u32| self.classes.get(call as usize).copied();
        let (mut numbers, mut first) = (HashMap::new(), Vec::new());
        let kind_of = |op: &Owner| {
            let (class, forward) = (class_of(op.call), class_of(op.forward));
            let kind = number_of(&mut numbers, (class, forward));
            if kind as usize == first.len() {
                first.push((class, forward));
            }
            kind
        };
        let kinds: Vec<u32> = calls.iter().map(kind_of).collect();
        let ops = table([
            ("row", crate::frame::rows_at(&rows, calls.iter().map(|op| op.call))),
            ("kind", column(kinds)),
            ("outer", positions(outer)),
        ])?;
        let of_kinds = records!(first, kind => class: kind.0, forward_class: kind.1)?;
        Ok((table([("op", positions(of_work))])?, ops, of_kinds))
    }
}

/// Makes classes of their own of some rows, those of a class with equal marks together, and numbers them behind
/// the `count` others; gives the class that each is a part of, and the mark. Of a row that comes several times
/// the last mark counts.
pub(super) fn set_apart(
    of: &mut [u32],
    count: u32,
    rows: impl Iterator<Item = (u32, u32)>,
) -> Vec<(u32, u32)> {
    let mut apart: Vec<(u32, u32)> = Vec::new();
    let mut known = HashMap::new();
    for (row, mark) in rows {
        let Some(of) = of.get_mut(row as usize) else { continue };
        let part_of = of.checked_sub(count).and_then(|at| apart.get(at as usize));
        let key = (part_of.map_or(*of, |&(class, _)| class), mark);
        let number = number_of(&mut known, key);
        if number as usize == apart.len() {
            apart.push(key);
        }
        *of = count + number;
    }
    apart
}

fn read_traits(frame: &Frame) -> Result<Vec<Traits>> {
    let names = ["is_computed", "is_modelled", "is_wrapper", "tells_gradient", "is_product", "works"];
    let flags = names.iter().map(|name| frame.i64_array(name)).collect::<Result<Vec<_>>>()?;
    let is_set = |flag: usize, at: usize| flags[flag].get(at).is_some_and(|&flag| flag != 0);
    let flops = frame.i64_array("flops")?;
    let traits = flops.iter().enumerate().map(|(at, &flops)| Traits {
        is_computed: is_set(0, at),
        is_modelled: is_set(1, at),
        is_wrapper: is_set(2, at),
        tells_gradient: is_set(3, at),
        is_product: is_set(4, at),
        works: is_set(5, at),
        flops,
    });
    Ok(traits.collect())
}

/// GPU work with the calls that it counts for, divided into classes of equal pieces.
#[derive(Debug)]
pub struct WorkCosting {
    first: Vec<u32>,
    work: Arc<Work>,
}

impl WorkCosting {
    /// Of work with `op` (an index, null for none), `dur_ns`, `busy_ns` (its part in the time in which its
    /// GPU is busy), and as `0`, `1` ... what classes agree in, as codes.
    pub fn new(work: &Frame) -> Result<Self> {
        let (classes, first) = classes_of(work)?;
        let (ops, busy) = (work.u32_array("op")?, work.f64_array("busy_ns")?.to_vec());
        let durations = work.nullable_i64("dur_ns")?;
        let durations = match durations.null_count() {
            0 => durations.values().clone(),
            _ => durations.iter().map(|duration| duration.unwrap_or(UNTIMED)).collect(),
        };
        Ok(Self { first, work: Arc::new(Work { ops, durations, busy, classes }) })
    }

    /// The position of the first piece of each class, `first`.
    pub fn first(&self) -> Result<RecordBatch> {
        table([("first", column(self.first.iter().copied()))])
    }

    /// Pairs the work of calls of kinds (`kind` of each) with its classes, which have `cores`, `math` and
    /// `needs_fewer`; see [`Marks`].
    pub fn pair(&self, kinds: &Frame, marks: &Frame) -> Result<WorkPairs> {
        let (cores, math) = (marks.i64_array("cores")?, marks.i64_array("math")?);
        let fewer = marks.i64_array("needs_fewer")?;
        let marks = cores.iter().zip(math.iter()).zip(fewer.iter()).map(|((&cores, &math), &fewer)| Marks {
            cores: cores as u8,
            math: math as u8,
            needs_fewer: fewer != 0,
        });
        let pairs = Pairs::new(&self.work, &kinds.u32_array("kind")?, &marks.collect::<Vec<_>>());
        Ok(WorkPairs { work: Arc::clone(&self.work), pairs })
    }
}

/// GPU work by pairs of a kind of calls and a class of work.
#[derive(Debug)]
pub struct WorkPairs {
    work: Arc<Work>,
    pairs: Pairs,
}

impl WorkPairs {
    /// The pairs: `kind`, `class`, and the calls' `cores` and `math`.
    pub fn pairs(&self) -> Result<RecordBatch> {
        let pairs = self.pairs.pairs();
        records!(pairs, pair => kind: pair.kind, class: pair.class, cores: pair.cores, math: pair.math)
    }

    /// The work of each call: `device_ns`, `kernels`, `cores`, `math`, `tensor_core_ns`.
    pub fn ops(&self) -> Result<RecordBatch> {
        let ops = self.pairs.ops();
        records!(ops, op =>
            device_ns: op.device_ns,
            kernels: i64::from(op.pieces),
            cores: op.cores,
            math: op.math,
            tensor_core_ns: op.tensor_core_ns,
        )
    }

    /// For each piece of work its `pair`, null for work without a call, and its `share` in its call's work.
    pub fn shares(&self) -> Result<RecordBatch> {
        let pairs = positions(self.pairs.of_work().to_vec());
        table([("pair", pairs), ("share", column(self.pairs.shares(&self.work)))])
    }

    /// The work of each pair, by what limits it: `least_ns`, `compute_ns`, `memory_ns` and `through_ns` (null
    /// or NaN where unknown) and `is_estimate`. The columns are those of [`Figures`](super::Figures).
    pub fn figures(&self, limits: &Frame) -> Result<RecordBatch> {
        let (least, compute) = (limits.f64_array("least_ns")?, limits.f64_array("compute_ns")?);
        let (memory, through) = (limits.f64_array("memory_ns")?, limits.f64_array("through_ns")?);
        let estimates = limits.i64_array("is_estimate")?;
        let limits = estimates.iter().enumerate().map(|(pair, &is_estimate)| Limits {
            least_ns: least[pair],
            compute_ns: compute[pair],
            memory_ns: memory[pair],
            through_ns: through[pair],
            is_estimate: is_estimate != 0,
        });
        let figures = self.pairs.figures(&self.work, &limits.collect::<Vec<_>>());
        records!(figures, of =>
            pieces: i64::from(of.pieces),
            is_timed: of.timed > 0,
            device_ns: of.device_ns,
            shares: of.shares,
            tensor_core_ns: of.tensor_core_ns,
            saveable_ns: of.saveable_ns,
            longest_ns: of.longest.map(|longest| longest.0),
            longest_at: of.longest.map(|longest| i64::from(longest.1)),
            flagged_ns: of.flagged.map(|flagged| flagged.0),
            flagged_at: of.flagged.map(|flagged| i64::from(flagged.1)),
            reason: of.flagged.map(|flagged| flagged.2),
        )
    }

    /// In how many calls the work of each of `count` groups is, `calls`: `group` has that of each pair.
    pub fn calls(&self, groups: &Frame, count: usize) -> Result<RecordBatch> {
        let calls = self.pairs.calls(&self.work, &groups.u32_array("group")?, count);
        table([("calls", column(calls.into_iter().map(i64::from)))])
    }
}
