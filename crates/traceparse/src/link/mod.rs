//! Links the rows of a trace: everything that follows from the recorded columns.
//!
//! Work goes by row indices of each table; they become `row` numbers when the columns are stored.

mod backward;
mod containment;
mod extents;
mod gpu;
mod ids;
mod launches;
mod modules;
mod names;
mod op_tree;
mod order;
mod phases;
mod python;
mod roles;
mod steps;
mod store;
mod threads;

#[cfg(test)]
mod tests;

use crate::breakdown::Parts;
use crate::options::ReadOptions;
use crate::schema::{Launches, Table, Tables};
use crate::stats::{Code, Stats};
use crate::trace::Trace;

use backward::OrderedOps;
use extents::Extents;
use gpu::{CopyKinds, Correlations, GpuLinks};
use launches::ExternalIds;
use names::Names;
use op_tree::OpTree;
use order::TrackOrder;
use phases::Phase;
use roles::Activities;
use steps::{StepSpan, Steps};

/// No row.
const NONE: u32 = u32::MAX;

/// Fills every derived column, and the tables that follow from others.
pub(crate) fn link(trace: &mut Trace, options: &ReadOptions) {
    let names = Names::new(&trace.symbols);
    let mut stats = Stats::default();
    let shared = &*trace;
    let (calls, callers, ops) = if options.threads == Some(1) {
        let callers = python::callers(&shared.tables.python, shared.tracks.len());
        let ops = OpLinks::find(shared, &names);
        (CallLinks::find(shared, &names, &ops, options, &mut stats), callers, ops)
    } else {
        // Python frames are half of a large trace and depend on nothing else.
        std::thread::scope(|scope| {
            let python = scope.spawn(|| python::callers(&shared.tables.python, shared.tracks.len()));
            let ops = OpLinks::find(shared, &names);
            let calls = CallLinks::find(shared, &names, &ops, options, &mut stats);
            let callers = python.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (calls, callers, ops)
        })
    };
    stats.note_many(Code::PartialOverlap, ops.tree.partial_overlaps, None);
    stats.note_many(Code::ParentCycle, callers.cycles, None);
    trace.stats.merge(&stats);
    store::store(trace, ops, calls, &callers);
}

/// What is found about ops, by index.
struct OpLinks {
    order: TrackOrder,
    tree: OpTree,
    phases: Vec<Phase>,
    forwards: Vec<u32>,
    /// Index of the module's call in `python`.
    modules: Vec<u32>,
}

impl OpLinks {
    fn find(trace: &Trace, names: &Names) -> Self {
        let Tables { ops, python, flows, .. } = &trace.tables;
        let tracks = &trace.tracks;
        let extents = Extents::new(&ops.start_ns, &ops.dur_ns);
        let order = TrackOrder::new(ops.track.values(), tracks.len(), extents, |_| true);
        let tree = OpTree::new(&order, extents);
        let all = OrderedOps { ops, order: &order, extents, tracks };
        let mut modules = modules::enclosing_modules(ops, &order, python, names, tracks.len());
        let forwards = backward::forward_ops(all, flows, &trace.symbols);
        let phases = phases::phases(all, &tree.parents, &modules, names);
        let frames = Extents::new(&python.start_ns, &python.dur_ns);
        phases::inherit_modules(all, &tree.parents, &forwards, frames, &mut modules);
        Self { order, tree, phases, forwards, modules }
    }
}

/// What is found about launches, GPU work and steps, by index.
struct CallLinks {
    launch_ops: Vec<u32>,
    launch_steps: Vec<u32>,
    gpu: GpuLinks,
    gpu_steps: Vec<u32>,
    is_communication: Vec<bool>,
    sync_launches: Vec<u32>,
    annotation_ops: Vec<u32>,
    steps: Steps,
    spans: Vec<StepSpan>,
    parts: Vec<Parts>,
}

impl CallLinks {
    fn find(trace: &Trace, names: &Names, found: &OpLinks, options: &ReadOptions, stats: &mut Stats) -> Self {
        let (tables, tracks) = (&trace.tables, trace.tracks.len());
        let Tables { ops, launches, gpu_ops, syncs, gpu_annotations, .. } = tables;
        let external_ids = ExternalIds::new(ops, launches, gpu_ops, stats);
        let launch_ops = launches::find_ops(launches, ops, &found.order, names, &external_ids, tracks, stats);
        let correlations = Correlations::new(launches, stats);
        let gpu = gpu::link(gpu_ops, &correlations, &launch_ops, &external_ids, stats);
        gpu::note_launches(launches, names, &gpu, &launch_ops, stats);
        let kinds = CopyKinds::new(&trace.symbols);
        let is_communication = gpu::communication(tables, names, &gpu.ops, kinds);
        let sync_launches = (0..syncs.len())
            .map(|i| {
                correlations.launch(syncs.correlation.get(i), syncs.start_ns.values()[i]).unwrap_or(NONE)
            })
            .collect();
        let annotation_ops = (0..gpu_annotations.len())
            .map(|i| {
                let (id, name) = (gpu_annotations.external_id.get(i), gpu_annotations.name.get(i));
                external_ids.annotation(id, name, gpu_annotations.start_ns.values()[i]).unwrap_or(NONE)
            })
            .collect();

        let steps = Steps::find(tables, &trace.symbols, names, options);
        let mut launch_steps = steps.of_calls(launches);
        let extents = Extents::new(&gpu_ops.start_ns, &gpu_ops.dur_ns);
        let work = (0..gpu_ops.len() as u32).map(|index| {
            let launch = gpu.launches[index as usize];
            let step = if launch == NONE { NONE } else { launch_steps[launch as usize] };
            (extents.start(index), extents.end(index), step)
        });
        let spans = steps.delimit(work, stats);
        place_straddling_calls(launches, &steps, &mut launch_steps);
        let gpu_steps = (0..gpu_ops.len())
            .map(|index| match gpu.launches[index] {
                NONE => steps::step_on_gpu(&spans, gpu_ops.start_ns.values()[index]),
                launch => launch_steps[launch as usize],
            })
            .collect();
        let activities = Activities {
            tables,
            names,
            steps: &steps,
            tree: &found.tree,
            is_communication: &is_communication,
            kinds,
        };
        let parts = activities.breakdown(&spans);
        Self {
            launch_ops: launch_ops.ops,
            launch_steps,
            gpu,
            gpu_steps,
            is_communication,
            sync_launches,
            annotation_ops,
            steps,
            spans,
            parts,
        }
    }
}

/// A call that reaches over the end of a step extends no step, and belongs to the one it begins in.
fn place_straddling_calls(launches: &Launches, steps: &Steps, launch_steps: &mut [u32]) {
    for (step, &start) in launch_steps.iter_mut().zip(launches.start_ns.values()) {
        if *step == NONE {
            *step = steps.at(start);
        }
    }
}
