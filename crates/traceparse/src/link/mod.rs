//! Links the rows of a trace: everything that follows from the recorded columns.
//!
//! Work goes by row indices of each table; they become `row` numbers when columns are made. Three
//! threads share it, each with its own columns: GPU work and steps, ops, and Python frames. That of the
//! GPU work has the most to do, and shares again.

mod arrows;
mod backward;
mod breakdown;
mod callers;
mod calls;
mod captures;
mod communication;
mod doubts;
mod emitted;
mod external_order;
mod filter;
mod gpu;
mod gpus;
mod host_collectives;
mod host_steps;
mod ids;
mod kernel_names;
mod launches;
mod layerwise;
mod names;
mod nccl_calls;
mod ops;
mod order;
mod periods;
mod present;
mod processes;
mod python;
mod ranges;
mod recomputation;
mod serving;
mod steps;
mod threads;
mod untimed;

#[cfg(test)]
mod tests;

use crate::options::ReadOptions;
use crate::schema::{Column, Tables};
use crate::stats::Stats;
use crate::trace::Trace;

pub(crate) use captures::{has_replays, link_replays};
pub use communication::HOST_OPS as HOST_COLLECTIVES;
pub(crate) use doubts::{doubt, with_neighbours};
pub(crate) use emitted::with_sources;
pub(crate) use filter::{filter, with_filtered};
use names::{Names, Vocabulary};
use ops::OpTree;
use order::{Extents, TrackOrder};
pub(crate) use present::Present;
pub use serving::{Lengths, step_lengths};

/// Says what is wrong with the name of steps that a caller gives, if anything.
pub(crate) fn refuse_steps(name: &str) -> Option<String> {
    let error = regex_lite::Regex::new(host_steps::regular_expression(name)?).err()?;
    Some(format!("{name} is not a regular expression for steps: {error}"))
}

/// No row.
const NONE: u32 = u32::MAX;

/// Fills every derived column, and the tables that follow from others.
pub(crate) fn link(trace: &mut Trace, options: &ReadOptions) {
    kernel_names::demangle(&mut trace.tables, &mut trace.symbols);
    emitted::add_ops(trace, options);
    layerwise::add(&mut trace.tables, &mut trace.symbols, options);
    let names = Names::new(&trace.symbols);
    let vocabulary = Vocabulary::new(&mut trace.symbols);
    let mut stats = Stats::default();
    let (tree, store_calls, store_ops, store_callers) = {
        let trace = &*trace;
        let table = &trace.tables.ops;
        let extents = Extents::new(&table.start_ns, &table.dur_ns);
        let order = TrackOrder::new(table.track.values(), trace.tracks.len(), extents, |_| true);
        let tree = OpTree::new(&order, extents, &mut stats);
        let find = Find { trace, names: &names, vocabulary: &vocabulary, order: &order, tree: &tree };
        let is_parallel = options.threads != Some(1);
        let ((ops, callers), calls) = side_by_side(
            is_parallel,
            || side_by_side(is_parallel, || ops::find(find), || python::find(trace)),
            || calls::find(find, options, &mut stats),
        );
        (tree, calls, ops, callers)
    };
    let tables = &mut trace.tables;
    tree.store(&mut tables.ops);
    store_ops(tables);
    store_calls(tables);
    store_callers(tables, &mut stats);
    nccl_calls::describe(tables, &mut trace.symbols, &trace.tracks);
    clear_unfounded(tables, options);
    if options.wants("collectives") {
        host_collectives::describe(trace, &names);
    }
    // Last, when nothing is held beside the tables: these are the largest columns.
    threads::store_idents(&mut trace.tables, &trace.tracks, options);
    trace.tables.threads = threads::threads(&trace.tables.metadata, &trace.tracks, &trace.symbols);
    threads::add_used_devices(&mut trace.tables);
    callers::add_by_ranges(&mut trace.tables, &trace.tracks, &trace.symbols, &names);
    // Of a part of a trace nobody can say what is missing.
    if Tables::NAMES.iter().all(|table| options.wants(table)) {
        trace.stats.merge(&stats);
    }
}

/// What the finders of columns share.
#[derive(Clone, Copy)]
struct Find<'a> {
    trace: &'a Trace,
    names: &'a Names,
    vocabulary: &'a Vocabulary,
    order: &'a TrackOrder,
    tree: &'a OpTree,
}

/// Both results; the first comes from a thread of its own if `is_parallel`.
fn side_by_side<A: Send, B>(
    is_parallel: bool,
    first: impl FnOnce() -> A + Send,
    second: impl FnOnce() -> B,
) -> (A, B) {
    if !is_parallel {
        return (first(), second());
    }
    std::thread::scope(|scope| {
        let first = scope.spawn(first);
        let second = second();
        (first.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), second)
    })
}

/// Row numbers of indices, written where the indices stood; [`NONE`] becomes null.
fn rows(indices: Vec<u32>, rows: &Column<u32>) -> Column<u32> {
    let numbers = rows.values();
    // No row has the number NONE: a source has fewer events.
    let row = |index: u32| numbers.get(index as usize).copied().unwrap_or(NONE);
    Column::from_sentinel(indices.into_iter().map(row).collect(), NONE)
}

/// Clears what was derived from tables that were not read: no link found there is no link missing.
fn clear_unfounded(tables: &mut Tables, options: &ReadOptions) {
    if !options.wants_column("gpu_ops", "name") {
        tables.gpu_ops.is_communication = Column::default();
        tables.gpu_ops.activity = Column::default();
    }
    if !options.wants_column("ops", "name") {
        tables.ops.is_annotation = Column::default();
    }
    if !options.wants("ops") {
        // Ranges mark steps only where no op does.
        tables.ranges.activity = Column::default();
    }
    if !options.wants_steps() {
        tables.gpu_ops.link = Column::default();
    }
}
