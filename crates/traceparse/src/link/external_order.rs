//! The launches of GPU operations that have no usable correlation id.
//!
//! ROCm before July 2024 and other devices write external ids only, or one correlation id for everything.

use hashbrown::{HashMap, HashSet};

use super::gpu::{CopyKinds, GpuLinks, of_work};
use super::launches::LaunchOps;
use super::names::{Class, Link, Names};
use super::processes::Processes;
use super::{Find, NONE};
use crate::schema::{GpuOps, Launches, Symbol, Tables};
use crate::stats::{Code, Stats};

/// Process, external id and kind of GPU operations, and of the calls that start such. Kernels have no kind.
type Key = (Option<i64>, i64, Option<Symbol>);

/// Finds the launches of GPU operations whose correlation id leads to none.
///
/// The operations of one external id and kind belong in order of their starts to the calls with this id that start
/// this kind, if there are as many. A correlation id counts as none if operations of several external ids share it:
/// no call launches for several operators.
pub(super) fn link(
    find: Find<'_>,
    kinds: CopyKinds,
    launch_ops: &LaunchOps,
    processes: Option<&Processes>,
    gpu: &mut GpuLinks,
    stats: &mut Stats,
) {
    let Tables { gpu_ops, launches, .. } = &find.trace.tables;
    let has_id = |&op: &u32| gpu.launches[op as usize] == NONE && external_id(gpu_ops, op).is_some();
    let open: Vec<u32> = (0..gpu.launches.len() as u32).filter(has_id).collect();
    let shared = shared_correlations(&open, gpu_ops);
    let has_correlation = |op: u32| {
        let correlation = gpu_ops.correlation.get(op as usize).filter(|&id| id != 0);
        correlation.is_some_and(|id| !shared.contains(&id))
    };
    let mut groups: HashMap<Key, [Vec<u32>; 2]> = HashMap::new();
    for op in open.into_iter().filter(|&op| !has_correlation(op)) {
        let (pid, device) = (gpu_ops.pid.get(op as usize), gpu_ops.device.get(op as usize));
        let pid = processes.and_then(|found| of_work(Some(found), pid, device));
        if let Some((id, kind)) = external_id(gpu_ops, op).zip(kind_of_op(gpu_ops, op, kinds)) {
            groups.entry((pid, id, kind)).or_default()[0].push(op);
        }
    }
    if groups.is_empty() {
        return;
    }
    for call in 0..launches.start_ns.len() as u32 {
        let pid = processes.and_then(|found| found.of_track(launches.track.values()[call as usize]));
        let id = launches.external_id.get(call as usize);
        if let Some((id, kind)) = id.zip(kind_of_call(launches, call, find.names, kinds))
            && let Some([_, calls]) = groups.get_mut(&(pid, id, kind))
        {
            calls.push(call);
        }
    }
    for [mut ops, mut calls] in groups.into_values().filter(|[ops, calls]| ops.len() == calls.len()) {
        ops.sort_by_key(|&op| gpu_ops.start_ns.values()[op as usize]);
        calls.sort_by_key(|&call| launches.start_ns.values()[call as usize]);
        stats.note_many(Code::LaunchByExternalId, ops.len() as u64, None);
        for (op, launch) in ops.into_iter().zip(calls) {
            gpu.launches[op as usize] = launch;
            gpu.links[op as usize] = Link::ExternalIdOrder;
            if launch_ops.ops[launch as usize] != NONE {
                gpu.ops[op as usize] = launch_ops.ops[launch as usize];
            }
        }
    }
}

fn external_id(gpu_ops: &GpuOps, op: u32) -> Option<i64> {
    gpu_ops.external_id.get(op as usize).filter(|&id| id != 0)
}

/// Correlation ids that operations of several external ids share.
fn shared_correlations(open: &[u32], gpu_ops: &GpuOps) -> HashSet<i64> {
    let mut first = HashMap::new();
    let ids =
        open.iter().filter_map(|&op| gpu_ops.correlation.get(op as usize).zip(external_id(gpu_ops, op)));
    ids.filter(|&(correlation, id)| *first.entry(correlation).or_insert(id) != id)
        .map(|(correlation, _)| correlation)
        .collect()
}

fn kind_of_op(gpu_ops: &GpuOps, op: u32, kinds: CopyKinds) -> Option<Option<Symbol>> {
    let kind = gpu_ops.kind.get(op as usize);
    kind.is_some().then(|| kind.filter(|_| kinds.has(kind)))
}

fn kind_of_call(launches: &Launches, call: u32, names: &Names, kinds: CopyKinds) -> Option<Option<Symbol>> {
    let class = names.class(&launches.name, call);
    if class.is(Class::STARTS_COPY) {
        kinds.memcpy.map(Some)
    } else if class.is(Class::STARTS_MEMSET) {
        kinds.memset.map(Some)
    } else {
        // A replayed graph is many kernels of one call.
        (class.is(Class::KERNEL_LAUNCH) && !class.is(Class::GRAPH_LAUNCH)).then_some(None)
    }
}
