//! The columns that GPU work, its launches and the steps decide.

use super::arrows;
use super::breakdown::{Activities, Breakdown};
use super::gpu::{self, CopyKinds, Correlations, GpuLinks};
use super::gpus::{Gpu, Gpus};
use super::launches::{self, ExternalIds};
use super::names::{Activity, Link};
use super::order::Extents;
use super::processes::Processes;
use super::ranges::Nesting;
use super::steps::{self, StepSpan, Steps};
use super::{Find, NONE, callers, external_order, rows, side_by_side};
use crate::options::ReadOptions;
use crate::schema::{Column, GpuStepRow, Launches, StepRow, Symbol, Table, Tables};
use crate::stats::Stats;

/// Finds the columns and the table of steps; returns what stores them.
pub(super) fn find(
    find: Find<'_>,
    options: &ReadOptions,
    stats: &mut Stats,
) -> impl FnOnce(&mut Tables) + use<> {
    let Find { trace, names, vocabulary, order, .. } = find;
    let tables = &trace.tables;
    let Tables { ops, launches, gpu_ops, ranges, .. } = tables;
    let processes = Processes::find(tables, &trace.tracks);
    let processes = processes.as_ref();
    let call_keys = processes.map(|processes| processes.launch_keys(launches));
    let call_ids = call_keys.as_ref().unwrap_or(&launches.correlation);
    let op_keys = processes.map(|processes| processes.op_keys(ops));
    let op_ids = op_keys.as_ref().unwrap_or(&ops.external_id);
    let mut id_stats = Stats::default();
    let (external_ids, (correlations, nesting, around)) = side_by_side(
        options.threads != Some(1),
        || ExternalIds::new(tables, op_ids, processes, &mut id_stats),
        || {
            let correlations = Correlations::new(launches, call_ids, processes, stats);
            let is_nested = options.wants("launches")
                || ["parent_row", "depth"].iter().any(|column| options.wants_column("ranges", column));
            let nesting = if is_nested {
                Nesting::find(tables, &trace.tracks, &trace.symbols)
            } else {
                Nesting::none(launches.len())
            };
            let around = launches::enclosing_operators(launches, ops, order, names, &trace.tracks);
            (correlations, nesting, around)
        },
    );
    stats.merge(&id_stats);
    let launch_ops = launches::find_ops(launches, ops, around, &external_ids, stats);
    let arrows = arrows::ops_of_work(find);
    let mut gpu = gpu::link(gpu_ops, &correlations, &launch_ops, &external_ids, processes, &arrows, stats);
    let kinds = CopyKinds::new(&trace.symbols);
    if !external_ids.are_untrusted() {
        external_order::link(find, kinds, &launch_ops, processes, &mut gpu, stats);
    }
    let gpu_ranges = nesting.of_gpu_ops(&mut gpu);
    let untimed = gpu::link_untimed(&tables.untimed_gpu_ops, &correlations, &launch_ops, processes, &arrows);
    let launched = gpu.launches.iter().chain(&untimed[0]);
    gpu::note_launches(tables, names, &gpu, launched, &launch_ops, &nesting.launches, stats);
    let is_communication = gpu::communication(tables, names, &gpu.ops, kinds);
    let sync_launch_row = sync_launches(tables, &correlations, processes);
    let annotation_op_row = annotation_ops(tables, &external_ids, processes);
    // The indices are as large as a column each, and no longer needed.
    drop((correlations, external_ids));
    drop((call_keys, op_keys));

    let store_steps = options
        .wants_activities()
        .then(|| find_steps(find, options, &gpu, &nesting, &is_communication, kinds, stats));
    let gpu_op_row = rows(gpu.ops, &ops.row);
    let [launch_range_row, gpu_range_row, range_parent_row] =
        [nesting.launches, gpu_ranges, nesting.parents].map(|found| rows(found, &ranges.row));
    let [untimed_launches, untimed_ops] = untimed;
    let untimed_launch_row = rows(untimed_launches, &launches.row);
    let untimed_op_row = rows(untimed_ops, &ops.row);
    let gpu_launch_row = rows(gpu.launches, &launches.row);
    let gpu_link = gpu.links.iter().map(|&link| vocabulary.link(link)).collect();
    move |tables| {
        if let Some(store) = store_steps {
            store(tables);
        }
        tables.launches.caller_track = callers::of_launches(tables, &launch_ops.ops);
        let Tables { ops, launches, gpu_ops, untimed_gpu_ops, syncs, gpu_annotations, ranges, .. } = tables;
        untimed_gpu_ops.launch_row = untimed_launch_row;
        untimed_gpu_ops.op_row = untimed_op_row;
        launches.op_row = rows(launch_ops.ops, &ops.row);
        launches.range_row = launch_range_row;
        gpu_ops.launch_row = gpu_launch_row;
        gpu_ops.op_row = gpu_op_row;
        gpu_ops.range_row = gpu_range_row;
        gpu_ops.link = Column::from_values(gpu_link);
        gpu_ops.is_communication = Column::from_values(is_communication);
        syncs.launch_row = sync_launch_row;
        gpu_annotations.op_row = annotation_op_row;
        ranges.parent_row = range_parent_row;
        // Null for what does not nest.
        ranges.depth = Column::from_sentinel(nesting.depths, NONE);
    }
}

/// Finds the steps, what each row belongs to and what it does; returns what stores them.
fn find_steps(
    find: Find<'_>,
    options: &ReadOptions,
    gpu: &GpuLinks,
    nesting: &Nesting,
    is_communication: &[bool],
    kinds: CopyKinds,
    stats: &mut Stats,
) -> impl FnOnce(&mut Tables) + use<> {
    let Find { trace, names, vocabulary, .. } = find;
    let Tables { ops, launches, gpu_ops, ranges, .. } = &trace.tables;
    let steps = Steps::find(trace, names, &gpu.launches, options);
    let [of_ops, of_ranges] = [&ops.name, &ranges.name].map(|column| {
        let activity = |index| names.activity(column, index, steps.is_mark(column.get(index as usize)));
        (0..column.len() as u32).map(activity).collect::<Vec<_>>()
    });
    let store_places = options.wants_steps().then(|| {
        let activities = Activities {
            tables: &trace.tables,
            ops: (&of_ops, &find.tree.parents),
            ranges: (&of_ranges, &nesting.parents),
            is_communication,
            kinds,
        };
        place(find, options, gpu, steps, &activities, stats)
    });
    let text = |activity: Activity| vocabulary.activity(activity);
    let [op_activity, range_activity]: [Column<Symbol>; 2] =
        [of_ops, of_ranges].map(|found| found.into_iter().map(|activity| activity.map(text)).collect());
    let calls = 0..launches.len() as u32;
    let launch_activity = calls.map(|call| names.call_activity(&launches.name, call).map(text)).collect();
    let gpu_activity = gpu_ops.kind.iter().zip(is_communication).map(|(kind, &communicates)| {
        if communicates && !kinds.has(kind) { Some(text(Activity::Communication)) } else { kind }
    });
    let gpu_activity = gpu_activity.collect();
    move |tables| {
        if let Some(store) = store_places {
            store(tables);
        }
        tables.ops.activity = op_activity;
        tables.ranges.activity = range_activity;
        tables.launches.activity = launch_activity;
        tables.gpu_ops.activity = gpu_activity;
    }
}

/// Finds the extents of the steps, their parts, and the step of each row; returns what stores them.
fn place(
    find: Find<'_>,
    options: &ReadOptions,
    gpu: &GpuLinks,
    steps: Steps,
    activities: &Activities<'_>,
    stats: &mut Stats,
) -> impl FnOnce(&mut Tables) + use<> {
    let Find { trace, vocabulary, .. } = find;
    let Tables { ops, launches, gpu_ops, memory, ranges, .. } = &trace.tables;
    let is_parallel = options.threads != Some(1);
    let mut launch_steps = steps.of_calls(launches);
    let extents = Extents::new(&gpu_ops.start_ns, &gpu_ops.dur_ns);
    // Of work that only an arrow leads to, the step in which that begins.
    let step_of_arrow = |index: u32| match (gpu.links[index as usize], gpu.ops[index as usize] as usize) {
        (Link::Arrow, op) => steps.at(ops.track.values()[op], ops.start_ns.values()[op]),
        _ => NONE,
    };
    let work = (0..gpu_ops.len() as u32).zip(&gpu.launches).map(|(index, &launch)| {
        let step = launch_steps.get(launch as usize).copied().unwrap_or_else(|| step_of_arrow(index));
        (extents.start(index), extents.end(index), step)
    });
    let spans = steps.delimit(work, stats);
    place_straddling_calls(launches, &steps, &mut launch_steps);
    let gpu_step = (0..gpu_ops.len() as u32).zip(&gpu.launches).map(|(index, &launch)| {
        let known = launch_steps.get(launch as usize).copied();
        known
            .or_else(|| Some(step_of_arrow(index)).filter(|&step| step != NONE))
            .unwrap_or_else(|| steps::step_on_gpu(&spans, extents.start(index)))
    });
    let gpu_step = steps.numbers(gpu_step);
    let launch_step = steps.numbers(launch_steps.iter().copied());
    let at = |tracks: &Column<u32>, starts: &Column<i64>| {
        let instants = tracks.values().iter().zip(starts.values());
        steps.numbers(instants.map(|(&track, &start)| steps.at(track, start)))
    };
    let tracked =
        [(&ops.track, &ops.start_ns), (&memory.track, &memory.start_ns), (&ranges.track, &ranges.start_ns)];
    let gpus = Gpus::find(&trace.tables, &trace.tracks, &gpu.launches);
    let (parts, [op_step, memory_step, range_step]) = side_by_side(
        is_parallel,
        || activities.breakdown(&spans, &gpus, &trace.tracks, is_parallel),
        || tracked.map(|(tracks, starts)| at(tracks, starts)),
    );
    let phases: Vec<_> =
        steps.hosts.iter().map(|host| host.serving.work.map(|work| vocabulary.serving(work))).collect();
    move |tables| {
        store_steps(&steps, &spans, &phases, &gpus.gpus, &parts, tables);
        tables.ops.step = op_step;
        tables.ranges.step = range_step;
        tables.launches.step = launch_step;
        tables.gpu_ops.step = gpu_step;
        tables.memory.step = memory_step;
    }
}

/// Fills the tables of steps: of all GPUs as one, and of each.
fn store_steps(
    steps: &Steps,
    spans: &[StepSpan],
    phases: &[Option<Symbol>],
    gpus: &[Gpu],
    found: &Breakdown,
    tables: &mut Tables,
) {
    for (at, ((host, span), parts)) in steps.hosts.iter().zip(spans).zip(&found.anywhere).enumerate() {
        let total_ns = span.end.saturating_sub(span.start);
        let &[kernel_ns, memcpy_ns, memset_ns, communication_ns, ..] = parts;
        let &[.., runtime_ns, dataloader_ns, cpu_exec_ns, other_ns] = parts;
        tables.steps.push(StepRow {
            step: host.number,
            name: host.name,
            row: host.row,
            start_ns: span.start,
            total_ns,
            host_start_ns: host.start,
            host_dur_ns: host.end.saturating_sub(host.start),
            is_partial: span.is_partial,
            phase: phases[at],
            requests: host.serving.requests,
            tokens: host.serving.tokens,
            key_tokens: host.serving.key_tokens,
            confidence: steps.confidence,
            kernel_ns,
            memcpy_ns,
            memset_ns,
            communication_ns,
            runtime_ns,
            dataloader_ns,
            cpu_exec_ns,
            other_ns,
        });
        for (gpu, of_steps) in gpus.iter().zip(&found.on_gpus) {
            let [kernel_ns, memcpy_ns, memset_ns, communication_ns, ..] = of_steps[at];
            let [.., runtime_ns, dataloader_ns, cpu_exec_ns, other_ns] = of_steps[at];
            tables.gpu_steps.push(GpuStepRow {
                step: host.number,
                name: host.name,
                device: gpu.device,
                pid: gpu.pid,
                start_ns: span.start,
                total_ns,
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
fn sync_launches(
    tables: &Tables,
    correlations: &Correlations<'_>,
    processes: Option<&Processes>,
) -> Column<u32> {
    let Tables { syncs, launches, .. } = tables;
    let calls = syncs.start_ns.values().iter().enumerate().map(|(index, &start)| {
        let pid = gpu::of_work(processes, syncs.pid.get(index), syncs.device.get(index));
        let launch = correlations.launch(syncs.correlation.get(index), pid, start)?;
        launches.row.get(launch as usize)
    });
    calls.collect()
}

/// The annotations that GPU annotations image.
fn annotation_ops(
    tables: &Tables,
    external_ids: &ExternalIds<'_>,
    processes: Option<&Processes>,
) -> Column<u32> {
    let Tables { gpu_annotations, ops, .. } = tables;
    let annotations = gpu_annotations.start_ns.values().iter().enumerate().map(|(index, &start)| {
        let (id, name) = (gpu_annotations.external_id.get(index), gpu_annotations.name.get(index));
        let pid = gpu::of_work(processes, None, gpu_annotations.device.get(index));
        ops.row.get(external_ids.annotation(id, name, pid, start)? as usize)
    });
    annotations.collect()
}
