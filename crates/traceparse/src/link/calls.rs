//! The columns that GPU work, its launches and the steps decide.

use super::extents::Extents;
use super::gpu::{self, CopyKinds, Correlations, GpuLinks};
use super::launches::{self, ExternalIds};
use super::names::Activity;
use super::ranges::{self, Nesting};
use super::roles::Activities;
use super::steps::{self, StepSpan, Steps};
use super::{Find, NONE, rows, side_by_side};
use crate::breakdown::Parts;
use crate::options::ReadOptions;
use crate::schema::{Column, GpuOps, Launches, StepRow, Symbol, Table, Tables};
use crate::stats::Stats;

/// The columns, and the table of steps.
pub(super) struct CallColumns {
    launch_op_row: Column<u32>,
    gpu_launch_row: Column<u32>,
    gpu_op_row: Column<u32>,
    gpu_link: Column<Symbol>,
    is_communication: Column<bool>,
    sync_launch_row: Column<u32>,
    annotation_op_row: Column<u32>,
    op_step: Column<i32>,
    launch_step: Column<i32>,
    gpu_step: Column<i32>,
    memory_step: Column<i32>,
    range_step: Column<i32>,
    launch_range_row: Column<u32>,
    gpu_range_row: Column<u32>,
    range_depth: Column<u32>,
    range_parent_row: Column<u32>,
    op_activity: Column<Symbol>,
    range_activity: Column<Symbol>,
    launch_activity: Column<Symbol>,
    gpu_activity: Column<Symbol>,
    steps: Steps,
    spans: Vec<StepSpan>,
    parts: Vec<Parts>,
}

impl CallColumns {
    pub(super) fn find(find: Find<'_>, options: &ReadOptions, stats: &mut Stats) -> Self {
        let Find { trace, names, vocabulary, order, tree } = find;
        let tables = &trace.tables;
        let Tables { ops, launches, gpu_ops, memory, ranges, .. } = tables;
        let is_parallel = options.threads != Some(1);
        let mut id_stats = Stats::default();
        let (external_ids, (correlations, nesting, around)) = side_by_side(
            is_parallel,
            || ExternalIds::new(ops, launches, gpu_ops, &mut id_stats),
            || {
                let correlations = Correlations::new(tables, &trace.tracks, stats);
                let nesting = Nesting::find(tables, trace.tracks.len(), &trace.symbols);
                (
                    correlations,
                    nesting,
                    launches::enclosing_operators(launches, ops, order, names, &trace.tracks),
                )
            },
        );
        stats.merge(&id_stats);
        let launch_ops = launches::find_ops(launches, ops, around, &external_ids, stats);
        let mut gpu = gpu::link(gpu_ops, &correlations, &launch_ops, &external_ids, stats);
        let gpu_ranges = nesting.of_gpu_ops(&mut gpu);
        gpu::note_launches(launches, names, &gpu, &launch_ops, &nesting.launches, stats);
        let kinds = CopyKinds::new(&trace.symbols);
        let is_communication = gpu::communication(tables, names, &gpu.ops, kinds);
        let sync_launch_row = sync_launches(tables, &correlations);
        let annotation_op_row = annotation_ops(tables, &external_ids);
        // The indices are as large as a column each, and no longer needed.
        drop((correlations, external_ids));

        let steps = Steps::find(trace, names, options);
        let mut launch_steps = steps.of_calls(launches);
        let spans = delimit(&steps, gpu_ops, &gpu, &launch_steps, stats);
        place_straddling_calls(launches, &steps, &mut launch_steps);
        let gpu_step = (gpu.launches.iter().zip(gpu_ops.start_ns.values())).map(|(&launch, &start)| {
            if launch == NONE { steps::step_on_gpu(&spans, start) } else { launch_steps[launch as usize] }
        });
        let at = |tracks: &Column<u32>, starts: &Column<i64>| {
            let instants = tracks.values().iter().zip(starts.values());
            steps.numbers(instants.map(|(&track, &start)| steps.at(track, start)))
        };
        let [of_ops, of_ranges] = [&ops.name, &ranges.name].map(|column| {
            let activity = |index| names.activity(column, index, steps.is_mark(column.get(index as usize)));
            (0..column.len() as u32).map(activity).collect::<Vec<_>>()
        });
        let activities = Activities {
            tables,
            ops: &of_ops,
            ranges: &of_ranges,
            tree,
            range_parents: &nesting.parents,
            is_communication: &is_communication,
            kinds,
        };
        let (parts, [op_step, memory_step, range_step]) = side_by_side(
            is_parallel,
            || activities.breakdown(&spans, is_parallel),
            || {
                [
                    at(&ops.track, &ops.start_ns),
                    at(&memory.track, &memory.start_ns),
                    at(&ranges.track, &ranges.start_ns),
                ]
            },
        );
        let text = |activity: Activity| vocabulary.activity(activity);
        let column =
            |activities: Vec<Option<Activity>>| activities.into_iter().map(|a| a.map(text)).collect();
        let launch_activity =
            (0..launches.len() as u32).map(|call| names.call_activity(&launches.name, call).map(text));
        let gpu_activity = gpu_ops.kind.iter().zip(&is_communication).map(|(kind, &communicates)| {
            if communicates && !kinds.has(kind) { Some(text(Activity::Communication)) } else { kind }
        });
        Self {
            op_activity: column(of_ops),
            range_activity: column(of_ranges),
            launch_activity: launch_activity.collect(),
            gpu_activity: gpu_activity.collect(),
            op_step,
            memory_step,
            range_step,
            launch_range_row: rows(nesting.launches, &ranges.row),
            gpu_range_row: rows(gpu_ranges, &ranges.row),
            range_depth: ranges::depths(nesting.depths),
            range_parent_row: rows(nesting.parents, &ranges.row),
            gpu_step: steps.numbers(gpu_step),
            launch_step: steps.numbers(launch_steps.iter().copied()),
            launch_op_row: rows(launch_ops.ops, &ops.row),
            gpu_launch_row: rows(gpu.launches, &launches.row),
            gpu_op_row: rows(gpu.ops, &ops.row),
            gpu_link: Column::from_values(gpu.links.iter().map(|&link| vocabulary.link(link)).collect()),
            is_communication: Column::from_values(is_communication),
            sync_launch_row,
            annotation_op_row,
            parts,
            steps,
            spans,
        }
    }

    pub(super) fn store(self, tables: &mut Tables) {
        self.store_steps(tables);
        let Tables { ops, launches, gpu_ops, syncs, gpu_annotations, memory, ranges, .. } = tables;
        ops.activity = self.op_activity;
        ranges.activity = self.range_activity;
        launches.activity = self.launch_activity;
        gpu_ops.activity = self.gpu_activity;
        ops.step = self.op_step;
        memory.step = self.memory_step;
        ranges.step = self.range_step;
        ranges.depth = self.range_depth;
        ranges.parent_row = self.range_parent_row;
        launches.range_row = self.launch_range_row;
        gpu_ops.range_row = self.gpu_range_row;
        launches.step = self.launch_step;
        launches.op_row = self.launch_op_row;
        gpu_ops.step = self.gpu_step;
        gpu_ops.launch_row = self.gpu_launch_row;
        gpu_ops.op_row = self.gpu_op_row;
        gpu_ops.link = self.gpu_link;
        gpu_ops.is_communication = self.is_communication;
        syncs.launch_row = self.sync_launch_row;
        gpu_annotations.op_row = self.annotation_op_row;
    }

    fn store_steps(&self, tables: &mut Tables) {
        for ((host, span), parts) in self.steps.hosts.iter().zip(&self.spans).zip(&self.parts) {
            let &[kernel_ns, memcpy_ns, memset_ns, communication_ns, ..] = parts;
            let &[.., runtime_ns, dataloader_ns, cpu_exec_ns, other_ns] = parts;
            tables.steps.push(StepRow {
                step: host.number,
                name: host.name,
                row: host.row,
                start_ns: span.start,
                total_ns: span.end.saturating_sub(span.start),
                host_start_ns: host.start,
                host_dur_ns: host.end.saturating_sub(host.start),
                is_partial: span.is_partial,
                kernel_ns,
                memcpy_ns,
                memset_ns,
                communication_ns,
                runtime_ns,
                dataloader_ns,
                cpu_exec_ns,
                other_ns,
            });
        }
    }
}

/// Extends the steps by the GPU work that calls inside them launched.
fn delimit(
    steps: &Steps,
    gpu_ops: &GpuOps,
    gpu: &GpuLinks,
    launch_steps: &[u32],
    stats: &mut Stats,
) -> Vec<StepSpan> {
    let extents = Extents::new(&gpu_ops.start_ns, &gpu_ops.dur_ns);
    let work = (0..gpu_ops.len() as u32).map(|index| {
        let launch = gpu.launches[index as usize];
        let step = if launch == NONE { NONE } else { launch_steps[launch as usize] };
        (extents.start(index), extents.end(index), step)
    });
    steps.delimit(work, stats)
}

/// A call that reaches over the end of a step extends no step, and belongs to the one it begins in.
fn place_straddling_calls(launches: &Launches, steps: &Steps, launch_steps: &mut [u32]) {
    let instants = launches.track.values().iter().zip(launches.start_ns.values());
    for (step, (&track, &start)) in launch_steps.iter_mut().zip(instants) {
        if *step == NONE {
            *step = steps.at(track, start);
        }
    }
}

/// The calls that synchronisations have their correlation ids from.
fn sync_launches(tables: &Tables, correlations: &Correlations<'_>) -> Column<u32> {
    let Tables { syncs, launches, .. } = tables;
    let calls = syncs.start_ns.values().iter().enumerate().map(|(index, &start)| {
        let launch = correlations.launch(syncs.correlation.get(index), syncs.pid.get(index), start)?;
        launches.row.get(launch as usize)
    });
    calls.collect()
}

/// The annotations that GPU annotations image.
fn annotation_ops(tables: &Tables, external_ids: &ExternalIds<'_>) -> Column<u32> {
    let Tables { gpu_annotations, ops, .. } = tables;
    let annotations = gpu_annotations.start_ns.values().iter().enumerate().map(|(index, &start)| {
        let (id, name) = (gpu_annotations.external_id.get(index), gpu_annotations.name.get(index));
        ops.row.get(external_ids.annotation(id, name, start)? as usize)
    });
    annotations.collect()
}
