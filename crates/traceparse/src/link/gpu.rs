//! From GPU work to its launch and its op.

use hashbrown::HashMap;
use std::collections::BTreeSet;

use super::NONE;
use super::ids::IdIndex;
use super::launches::{Claim, ExternalIds, LaunchOps};
use super::names::{Class, Link, Names};
use crate::schema::{Column, GpuOps, Launches, Symbol, SymbolTable, Table, Tables};
use crate::stats::{Code, Stats};
use crate::tracks::TrackTable;

/// Launch, op and link of every piece of GPU work, by index.
pub(super) struct GpuLinks {
    pub(super) launches: Vec<u32>,
    pub(super) ops: Vec<u32>,
    pub(super) links: Vec<Link>,
}

/// Launches by correlation id. CUPTI and ROCm count from 1: 0 is no id.
pub(super) struct Correlations<'a> {
    index: IdIndex<'a>,
    processes: Option<&'a Processes>,
}

impl<'a> Correlations<'a> {
    pub(super) fn new(launches: &'a Launches, processes: Option<&'a Processes>, stats: &mut Stats) -> Self {
        let ids = processes.map_or(&launches.correlation, |processes| &processes.keys);
        let index = IdIndex::new(ids, launches.start_ns.values());
        stats.note_many(Code::DuplicateCorrelation, index.repeats(), None);
        Self { index, processes }
    }

    /// The launch of work of process `pid` that starts at `start`.
    pub(super) fn launch(&self, correlation: Option<i64>, pid: Option<i64>, start: i64) -> Option<u32> {
        let id = correlation.filter(|&id| id != 0)?;
        let key = self.processes.map_or(Some(id), |processes| processes.key(pid, id))?;
        self.index.find(key, start)
    }
}

/// Keeps apart the ids of processes, each of which counts for itself.
pub(super) struct Processes {
    /// What comes before the ids of a process: a multiple of `stride`.
    bases: HashMap<Option<i64>, i64>,
    /// Above every id.
    stride: i64,
    /// The ids of all launches in one sequence.
    keys: Column<i64>,
}

impl Processes {
    /// The processes of the launches, if the GPU work says which it belongs to.
    pub(super) fn find(tables: &Tables, tracks: &TrackTable) -> Option<Self> {
        let Tables { launches, gpu_ops, syncs, .. } = tables;
        if gpu_ops.pid.is_all_null() && syncs.pid.is_all_null() {
            return None;
        }
        let stride = launches.correlation.iter().flatten().max().unwrap_or(0).max(0).saturating_add(1);
        let pids: Vec<_> = (0..tracks.len() as u32).map(|track| tracks.key(track).0.int()).collect();
        let bases = pids.iter().copied().collect::<BTreeSet<_>>().into_iter().zip(0_i64..);
        let bases = bases.map(|(pid, n)| (pid, n.saturating_mul(stride))).collect();
        let mut processes = Self { bases, stride, keys: Column::default() };
        let calls = launches.track.values().iter().zip(launches.correlation.iter());
        let key = |(&track, id): (&u32, Option<i64>)| processes.key(*pids.get(track as usize)?, id?);
        processes.keys = calls.map(key).collect();
        Some(processes)
    }

    /// The id in one sequence for all processes.
    #[inline]
    fn key(&self, pid: Option<i64>, id: i64) -> Option<i64> {
        let base = *self.bases.get(&pid)?;
        if (0..self.stride).contains(&id) { base.checked_add(id) } else { None }
    }
}

/// Links every piece of GPU work. All work of one graph launch shares that launch and its op.
pub(super) fn link(
    gpu_ops: &GpuOps,
    correlations: &Correlations<'_>,
    launch_ops: &LaunchOps,
    external_ids: &ExternalIds<'_>,
    stats: &mut Stats,
) -> GpuLinks {
    let rows = gpu_ops.len();
    let mut found =
        GpuLinks { launches: vec![NONE; rows], ops: vec![NONE; rows], links: Vec::with_capacity(rows) };
    let (mut outside, mut unconfirmed) = (0, 0);
    for (index, &start) in gpu_ops.start_ns.values().iter().enumerate() {
        let correlation = gpu_ops.correlation.get(index).filter(|&id| id != 0);
        let launch = correlations.launch(correlation, gpu_ops.pid.get(index), start);
        found.launches[index] = launch.unwrap_or(NONE);
        outside += u64::from(launch.is_none() && correlation.is_some());
        if let Some(launch) = launch.map(|l| l as usize).filter(|&l| launch_ops.ops[l] != NONE) {
            found.ops[index] = launch_ops.ops[launch];
            found.links.push(if launch_ops.by_id[launch] { Link::ExternalId } else { Link::Containment });
            continue;
        }
        // Nothing encloses GPU work on a thread, so an id that repeats the correlation stays unconfirmed.
        let claim = external_ids.claim(gpu_ops.external_id.get(index), correlation, start, |_| false);
        unconfirmed += u64::from(matches!(claim, Claim::Unconfirmed));
        found.links.push(match claim {
            Claim::Op(op) => {
                found.ops[index] = op;
                Link::GpuExternalId
            }
            _ if launch.is_some() => Link::NoOp,
            _ if correlation.is_some() => Link::NoLaunch,
            _ => Link::NoCorrelation,
        });
    }
    stats.note_many(Code::LaunchOutsideTrace, outside, None);
    stats.note_many(Code::UnconfirmedExternalId, unconfirmed, None);
    found
}

/// Counts launches whose work or op is missing.
pub(super) fn note_launches(
    launches: &Launches,
    names: &Names,
    gpu: &GpuLinks,
    launch_ops: &LaunchOps,
    launch_ranges: &[u32],
    stats: &mut Stats,
) {
    let mut has_work = vec![false; launches.len()];
    for &launch in gpu.launches.iter().filter(|&&launch| launch != NONE) {
        has_work[launch as usize] = true;
    }
    let count = |keep: &dyn Fn(u32) -> bool| (0..launches.len() as u32).filter(|&l| keep(l)).count() as u64;
    let idle = count(&|l| !has_work[l as usize] && names.is(&launches.name, l, Class::KERNEL_LAUNCH));
    let has_place = |l: usize| launch_ops.ops[l] != NONE || launch_ranges[l] != NONE;
    let orphans = count(&|l| has_work[l as usize] && !has_place(l as usize));
    stats.note_many(Code::LaunchWithoutGpuWork, idle, None);
    stats.note_many(Code::NoOpForLaunch, orphans, None);
}

/// The kinds of GPU work that are no computation.
#[derive(Clone, Copy)]
pub(super) struct CopyKinds {
    pub(super) memcpy: Option<Symbol>,
    pub(super) memset: Option<Symbol>,
}

impl CopyKinds {
    pub(super) fn new(symbols: &SymbolTable) -> Self {
        Self { memcpy: symbols.find("memcpy"), memset: symbols.find("memset") }
    }

    /// Whether work of a kind is a copy or a memset.
    pub(super) fn has(self, kind: Option<Symbol>) -> bool {
        kind.is_some() && (kind == self.memcpy || kind == self.memset)
    }
}

/// Which GPU work is communication: by its name, by recorded collective arguments, or because a
/// collective's op launched the kernel directly.
pub(super) fn communication(
    tables: &Tables,
    names: &Names,
    op_indices: &[u32],
    kinds: CopyKinds,
) -> Vec<bool> {
    let Tables { gpu_ops, ops, collectives, .. } = tables;
    let mut is_communication: Vec<bool> = (0..gpu_ops.len() as u32)
        .zip(op_indices)
        .map(|(index, &op)| {
            names.is(&gpu_ops.name, index, Class::COMMUNICATION_KERNEL)
                || (op != NONE
                    && names.is(&ops.name, op, Class::COMMUNICATION_OP)
                    && !kinds.has(gpu_ops.kind.get(index as usize)))
        })
        .collect();
    let gpu_rows = gpu_ops.row.values();
    for row in collectives.row.values() {
        // Rows are unique over all tables: one that is not here belongs to an op.
        if let Ok(index) = gpu_rows.binary_search(row) {
            is_communication[index] = true;
        }
    }
    is_communication
}
