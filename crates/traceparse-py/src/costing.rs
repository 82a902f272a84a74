//! Which calls' costs GPU work counts for.

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, UInt8Array, UInt32Array};
use arrow_schema::ArrowError;
use framekernels::call_tree::{Classes, Forest, NONE, Positions, set_apart};
use framekernels::costing::{Calls, Figures, Limits, Marks, Owned, Owner, Pairs, Traits, UNTIMED, Work};
use framekernels::numbering::WordNumbering;
use pyo3::prelude::*;

use crate::answer::{answer, answer_watched};
use crate::call_tree::divide;
use crate::frame::{Frame, Outcome};
use crate::table::{ArrowTable, links, table};

/// Calls in classes of equal ones, of which those are found whose costs count for work.
#[pyclass(module = "kernelscope._traceparse")]
pub(crate) struct CallCosting {
    calls: Frame,
    positions: Positions,
    classes: Vec<u32>,
    first: Vec<u32>,
}

#[pymethods]
impl CallCosting {
    /// Of calls with `row`, `parent_row`, `forward_row` if there are any, and as `0`, `1` ... what classes
    /// agree in, as codes.
    #[new]
    fn new(py: Python<'_>, calls: Frame) -> PyResult<Self> {
        answer(py, || {
            let mut classes = Classes::new(calls.height() as u32);
            divide_all(&mut classes, &calls)?;
            let (classes, first) = classes.into_parts();
            let positions = Positions::new(&calls.links("row", NONE)?);
            Ok(Self { calls, positions, classes, first })
        })
    }

    /// The position of the first call of each class that was not set apart, `first`.
    fn first(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        answer(py, || table(vec![("first", links(self.first.clone()))]))
    }

    /// The rows of the calls whose class is `marked`, `row`.
    fn rows_where(&self, py: Python<'_>, marks: Frame) -> PyResult<ArrowTable> {
        answer(py, || {
            let (rows, marked) = (self.calls.links("row", NONE)?, marks.flags("marked")?);
            let is_marked = |class: u32| marked.get(class as usize) == Some(&true);
            let found = rows.iter().zip(&self.classes).filter(|&(_, &class)| is_marked(class));
            table(vec![("row", links(found.map(|(&row, _)| row).collect()))])
        })
    }

    /// Makes classes of their own of the calls `row`, those of a class with equal `entry` together, and
    /// numbers them behind the others: of each new one the `class` that it is a part of, and its `entry`.
    /// The last entry of a call counts.
    fn set_apart(&mut self, py: Python<'_>, entries: Frame) -> PyResult<ArrowTable> {
        answer(py, || {
            let (rows, entries) = (entries.links("row", NONE)?, entries.links("entry", NONE)?);
            let places = rows.iter().map(|&row| self.positions.of(row));
            let apart =
                set_apart(&mut self.classes, self.first.len() as u32, places.zip(entries.iter().copied()));
            let (of, entries): (Vec<u32>, Vec<u32>) = apart.into_iter().unzip();
            table(vec![("class", links(of)), ("entry", links(entries))])
        })
    }

    /// The calls that count for the work of `anchors` (`anchor`, rows of calls, null for none), or for what
    /// the host does if there is none, by the traits of classes.
    ///
    /// Three tables: `op` of each piece of work, an index into the second, null for none; the calls that
    /// count, with `row`, `kind` and `outer` (the one around it, an index, null for none); and their kinds:
    /// `class`, and `forward_class` (null where the cost is the call's own).
    #[pyo3(signature = (traits, anchors, *, outermost))]
    fn owners(
        &self,
        py: Python<'_>,
        traits: Frame,
        anchors: Option<Frame>,
        outermost: bool,
    ) -> PyResult<(ArrowTable, ArrowTable, ArrowTable)> {
        answer(py, || owners(self, &traits, anchors.as_ref(), outermost))
    }
}

fn owners(
    costing: &CallCosting,
    traits: &Frame,
    anchors: Option<&Frame>,
    outermost: bool,
) -> Outcome<(ArrowTable, ArrowTable, ArrowTable)> {
    let CallCosting { calls, positions, classes, .. } = costing;
    let traits = read_traits(traits)?;
    let rows = calls.links("row", NONE)?;
    let place = |row: u32| if row == NONE { NONE } else { positions.of(row) };
    let parents = calls.map_links("parent_row", NONE, place)?;
    let forwards =
        if calls.has("forward_row") { calls.map_links("forward_row", NONE, place)? } else { Vec::new() };
    let anchors = anchors.map(|frame| frame.map_links("anchor", NONE, place)).transpose()?;
    let forest = Forest::new(parents)
        .map_err(|_| ArrowError::InvalidArgumentError("the rows are each other's ancestors".into()))?;
    let calls = Calls { forest: &forest, forwards: &forwards, classes, traits: &traits };
    let owned = match anchors {
        Some(anchors) => calls.owned(&anchors, outermost),
        None => calls.owned_on_host(),
    };
    let Owned { calls, outer, of_work } = owned;
    let class_of = |call: u32| classes.get(call as usize).copied();
    let row_of = |call: u32| rows.get(call as usize).copied().unwrap_or(NONE);
    let (mut numbers, mut first) = (WordNumbering::new(calls.len()), Vec::new());
    let kind_of = |op: &Owner| {
        let (class, forward) = (class_of(op.call), class_of(op.forward));
        let code = |class: Option<u32>| u64::from(class.unwrap_or(NONE));
        let kind = numbers.number(code(class) << u32::BITS | code(forward));
        if kind as usize == first.len() {
            first.push((class, forward));
        }
        kind
    };
    let kinds: Vec<u32> = calls.iter().map(kind_of).collect();
    let of_kinds = table(vec![
        ("class", Arc::new(first.iter().map(|kind| kind.0).collect::<UInt32Array>())),
        ("forward_class", Arc::new(first.iter().map(|kind| kind.1).collect::<UInt32Array>())),
    ])?;
    let ops = table(vec![
        ("row", links(calls.iter().map(|op| row_of(op.call)).collect())),
        ("kind", Arc::new(UInt32Array::from(kinds))),
        ("outer", links(outer)),
    ])?;
    Ok((table(vec![("op", links(of_work))])?, ops, of_kinds))
}

fn read_traits(frame: &Frame) -> Outcome<Vec<Traits>> {
    let flags = |name: &str| frame.numbers(name);
    let (computed, modelled, wrapper) = (flags("is_computed")?, flags("is_modelled")?, flags("is_wrapper")?);
    let (gradient, product, works) = (flags("tells_gradient")?, flags("is_product")?, flags("works")?);
    let flops = frame.numbers("flops")?;
    let is_set = |flags: &[i64], at: usize| flags.get(at).is_some_and(|&flag| flag != 0);
    let traits = flops.iter().enumerate().map(|(at, &flops)| Traits {
        is_computed: is_set(&computed, at),
        is_modelled: is_set(&modelled, at),
        is_wrapper: is_set(&wrapper, at),
        tells_gradient: is_set(&gradient, at),
        is_product: is_set(&product, at),
        works: is_set(&works, at),
        flops,
    });
    Ok(traits.collect())
}

/// GPU work with the calls that it counts for, divided into classes of equal pieces.
#[pyclass(frozen, module = "kernelscope._traceparse")]
pub(crate) struct WorkCosting {
    first: UInt32Array,
    work: Arc<Work>,
}

#[pymethods]
impl WorkCosting {
    /// Of work with `op` (an index, null for none), `dur_ns`, `busy_ns` (its part in the time in which its GPU
    /// is busy), and as `0`, `1` ... what classes agree in, as codes.
    #[new]
    fn new(py: Python<'_>, work: Frame) -> PyResult<Self> {
        answer(py, || {
            let mut classes = Classes::new(work.height() as u32);
            divide_all(&mut classes, &work)?;
            let busy = work.fractions("busy_ns")?;
            let mut durations = work.kept_numbers("dur_ns")?.values().clone();
            if let Some(known) = work.known("dur_ns")? {
                let of = |(&duration, &is_known): (&i64, &bool)| if is_known { duration } else { UNTIMED };
                durations = durations.iter().zip(&known).map(of).collect();
            }
            let ops = work.kept_links("op", NONE)?.values().clone();
            let (classes, first) = classes.into_parts();
            let work = Work { ops, durations, busy, classes };
            Ok(Self { first: UInt32Array::from(first), work: Arc::new(work) })
        })
    }

    /// The position of the first piece of each class, `first`.
    fn first(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        answer(py, || table(vec![("first", Arc::new(self.first.clone()))]))
    }

    /// Pairs the work of calls of kinds (`kind` of each) with its classes, which have `cores`, `math` and
    /// `needs_fewer`; see `framekernels::costing::Marks`.
    fn pair(&self, py: Python<'_>, kinds: Frame, marks: Frame) -> PyResult<WorkPairs> {
        let work = Arc::clone(&self.work);
        answer_watched(py, move || {
            let pairs = paired(&work, kinds, marks)?;
            Ok(WorkPairs { work, pairs: Arc::new(pairs) })
        })
    }
}

fn paired(work: &Work, kinds: Frame, marks: Frame) -> Outcome<Pairs> {
    let (cores, math, fewer) =
        (marks.numbers("cores")?, marks.numbers("math")?, marks.numbers("needs_fewer")?);
    let marks: Vec<Marks> = cores
        .iter()
        .zip(math.iter())
        .zip(fewer.iter())
        .map(|((&cores, &math), &fewer)| Marks {
            cores: cores as u8,
            math: math as u8,
            needs_fewer: fewer != 0,
        })
        .collect();
    Ok(Pairs::new(work, &kinds.links("kind", NONE)?, &marks))
}

/// GPU work by pairs of a kind of calls and a class of work.
#[pyclass(frozen, module = "kernelscope._traceparse")]
pub(crate) struct WorkPairs {
    work: Arc<Work>,
    pairs: Arc<Pairs>,
}

#[pymethods]
impl WorkPairs {
    /// The pairs: `kind`, `class`, and the calls' `cores` and `math`.
    fn pairs(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        let pairs = self.pairs.pairs();
        answer(py, || {
            table(vec![
                ("kind", Arc::new(pairs.iter().map(|p| Some(p.kind)).collect::<UInt32Array>())),
                ("class", Arc::new(pairs.iter().map(|p| Some(p.class)).collect::<UInt32Array>())),
                ("cores", Arc::new(pairs.iter().map(|p| Some(p.cores)).collect::<UInt8Array>())),
                ("math", Arc::new(pairs.iter().map(|p| Some(p.math)).collect::<UInt8Array>())),
            ])
        })
    }

    /// What each call's work comes to: `device_ns`, `kernels`, `cores`, `math`, `tensor_core_ns`.
    fn ops(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        let ops = self.pairs.ops();
        answer(py, || {
            table(vec![
                ("device_ns", Arc::new(ops.iter().map(|op| Some(op.device_ns)).collect::<Int64Array>())),
                (
                    "kernels",
                    Arc::new(ops.iter().map(|op| Some(i64::from(op.pieces))).collect::<Int64Array>()),
                ),
                ("cores", Arc::new(ops.iter().map(|op| Some(op.cores)).collect::<UInt8Array>())),
                ("math", Arc::new(ops.iter().map(|op| Some(op.math)).collect::<UInt8Array>())),
                (
                    "tensor_core_ns",
                    Arc::new(ops.iter().map(|op| Some(op.tensor_core_ns)).collect::<Int64Array>()),
                ),
            ])
        })
    }

    /// For each piece of work its `pair`, null for work without a call, and its `share` in its call's work.
    fn shares(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        let shares = self.pairs.shares(&self.work);
        answer(py, || {
            table(vec![
                ("pair", links(self.pairs.of_work().to_vec())),
                ("share", Arc::new(shares.map(Some).collect::<Float64Array>())),
            ])
        })
    }

    /// What the work of each pair comes to, by what limits it: `least_ns`, `compute_ns`, `memory_ns` and
    /// `through_ns` (null or NaN where unknown) and `is_estimate`; see `framekernels::costing::Figures`.
    fn figures(&self, py: Python<'_>, limits: Frame) -> PyResult<ArrowTable> {
        let (work, pairs) = (Arc::clone(&self.work), Arc::clone(&self.pairs));
        answer_watched(py, move || {
            let limits = read_limits(limits)?;
            figures_table(&pairs.figures(&work, &limits))
        })
    }

    /// In how many calls the work of each of `count` groups is: `group` has that of each pair.
    fn calls(&self, py: Python<'_>, groups: Frame, count: usize) -> PyResult<ArrowTable> {
        answer(py, || {
            let groups = groups.links("group", NONE)?;
            let calls = self.pairs.calls(&self.work, &groups, count);
            table(vec![(
                "calls",
                Arc::new(calls.into_iter().map(|c| Some(i64::from(c))).collect::<Int64Array>()),
            )])
        })
    }
}

fn read_limits(frame: Frame) -> Outcome<Vec<Limits>> {
    let (least, compute) = (frame.fractions("least_ns")?, frame.fractions("compute_ns")?);
    let (memory, through) = (frame.fractions("memory_ns")?, frame.fractions("through_ns")?);
    let estimates = frame.numbers("is_estimate")?;
    let at = |values: &[f64], pair: usize| values.get(pair).copied().unwrap_or(f64::NAN);
    let limits = estimates.iter().enumerate().map(|(pair, &is_estimate)| Limits {
        least_ns: at(&least, pair),
        compute_ns: at(&compute, pair),
        memory_ns: at(&memory, pair),
        through_ns: at(&through, pair),
        is_estimate: is_estimate != 0,
    });
    Ok(limits.collect())
}

fn figures_table(figures: &[Figures]) -> Outcome<ArrowTable> {
    let numbers = |of: fn(&Figures) -> Option<i64>| -> ArrayRef {
        Arc::new(figures.iter().map(of).collect::<Int64Array>())
    };
    let fractions = |of: fn(&Figures) -> f64| -> ArrayRef {
        Arc::new(figures.iter().map(|f| Some(of(f))).collect::<Float64Array>())
    };
    table(vec![
        ("pieces", numbers(|f| Some(i64::from(f.pieces)))),
        ("is_timed", Arc::new(figures.iter().map(|f| Some(f.timed > 0)).collect::<BooleanArray>())),
        ("device_ns", numbers(|f| Some(f.device_ns))),
        ("shares", fractions(|f| f.shares)),
        ("tensor_core_ns", fractions(|f| f.tensor_core_ns)),
        ("saveable_ns", fractions(|f| f.saveable_ns)),
        ("longest_ns", numbers(|f| f.longest.map(|l| l.0))),
        ("longest_at", numbers(|f| f.longest.map(|l| i64::from(l.1)))),
        ("flagged_ns", numbers(|f| f.flagged.map(|l| l.0))),
        ("flagged_at", numbers(|f| f.flagged.map(|l| i64::from(l.1)))),
        ("reason", Arc::new(figures.iter().map(|f| f.flagged.map(|l| l.2)).collect::<UInt8Array>())),
    ])
}

/// Divides classes by the columns `0`, `1` ... of a frame.
fn divide_all(classes: &mut Classes, frame: &Frame) -> Outcome<()> {
    for name in (0..).map(|number: usize| number.to_string()).take_while(|name| frame.has(name)) {
        divide(classes, frame, &name)?;
    }
    Ok(())
}
