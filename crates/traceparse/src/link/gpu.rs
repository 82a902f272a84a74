//! From GPU work to its launch and its op.

use hashbrown::HashMap;

use super::NONE;
use super::ids::IdIndex;
use super::launches::{Claim, ExternalIds, LaunchOps};
use super::names::{Class, Link, Names};
use super::processes::Processes;
use crate::schema::{Column, GpuOps, Launches, Symbol, SymbolTable, Table, Tables, UntimedGpuOps};
use crate::stats::{Code, Stats};

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
    /// The launches whose ids are `ids`: those of `processes` if they may collide.
    pub(super) fn new(
        launches: &'a Launches,
        ids: &'a Column<i64>,
        processes: Option<&'a Processes>,
        stats: &mut Stats,
    ) -> Self {
        let index = IdIndex::new(ids, launches.start_ns.values());
        stats.note_many(Code::DuplicateCorrelation, index.repeats(), None);
        Self { index, processes }
    }

    /// The launch of work of process `pid` that starts at `start`.
    pub(super) fn launch(&self, correlation: Option<i64>, pid: Option<i64>, start: i64) -> Option<u32> {
        let id = correlation.filter(|&id| id != 0)?;
        let Some(processes) = self.processes else { return self.index.find(id, start) };
        processes.candidates(pid, id).find_map(|key| self.index.find(key, start))
    }
}

/// The process of work, as far as it is known.
#[inline]
pub(super) fn of_work(processes: Option<&Processes>, pid: Option<i64>, device: Option<i32>) -> Option<i64> {
    processes.map_or(pid, |processes| processes.of_work(pid, device))
}

/// Links every piece of GPU work; `arrows` are the ops from which one leads to it, by the `row` of its end. All
/// work of one graph launch shares that launch and its op.
pub(super) fn link(
    gpu_ops: &GpuOps,
    correlations: &Correlations<'_>,
    launch_ops: &LaunchOps,
    external_ids: &ExternalIds<'_>,
    processes: Option<&Processes>,
    arrows: &HashMap<u32, u32>,
    stats: &mut Stats,
) -> GpuLinks {
    let rows = gpu_ops.len();
    let mut found =
        GpuLinks { launches: vec![NONE; rows], ops: vec![NONE; rows], links: Vec::with_capacity(rows) };
    let mut unconfirmed = 0;
    for (index, &start) in gpu_ops.start_ns.values().iter().enumerate() {
        let correlation = gpu_ops.correlation.get(index).filter(|&id| id != 0);
        let pid = of_work(processes, gpu_ops.pid.get(index), gpu_ops.device.get(index));
        let launch = correlations.launch(correlation, pid, start);
        found.launches[index] = launch.unwrap_or(NONE);
        if let Some(launch) = launch.map(|l| l as usize).filter(|&l| launch_ops.ops[l] != NONE) {
            found.ops[index] = launch_ops.ops[launch];
            found.links.push(if launch_ops.by_id[launch] { Link::ExternalId } else { Link::Containment });
            continue;
        }
        // Nothing encloses GPU work on a thread, so an id that repeats the correlation stays unconfirmed.
        let claim = external_ids.claim(gpu_ops.external_id.get(index), correlation, pid, start, |_| false);
        unconfirmed += u64::from(matches!(claim, Claim::Unconfirmed));
        found.links.push(match claim {
            Claim::Op(op) => {
                found.ops[index] = op;
                Link::GpuExternalId
            }
            _ if let Some(&op) = gpu_ops.arrow_row.get(index).and_then(|row| arrows.get(&row)) => {
                found.ops[index] = op;
                Link::Arrow
            }
            _ if launch.is_some() => Link::NoOp,
            _ if correlation.is_some() => Link::NoLaunch,
            _ => Link::NoCorrelation,
        });
    }
    stats.note_many(Code::UnconfirmedExternalId, unconfirmed, None);
    found
}

/// The launch and the op of work whose time is not known; of launches with one id the last. `arrows` are as for
/// [`link`].
pub(super) fn link_untimed(
    works: &UntimedGpuOps,
    correlations: &Correlations<'_>,
    launch_ops: &LaunchOps,
    processes: Option<&Processes>,
    arrows: &HashMap<u32, u32>,
) -> [Vec<u32>; 2] {
    let launch = |index| {
        let pid = of_work(processes, works.pid.get(index), works.device.get(index));
        correlations.launch(works.correlation.get(index), pid, i64::MAX).unwrap_or(NONE)
    };
    let launches: Vec<u32> = (0..works.len()).map(launch).collect();
    let op = |(index, &launch): (usize, &u32)| {
        let by_arrow = || arrows.get(&works.arrow_row.get(index)?).copied();
        launch_ops.ops.get(launch as usize).copied().or_else(by_arrow).unwrap_or(NONE)
    };
    let ops = launches.iter().enumerate().map(op).collect();
    [launches, ops]
}

/// Counts launches whose work or op is missing, and work whose launch is; `launched` are those that have work.
pub(super) fn note_launches<'l>(
    Tables { launches, gpu_ops, .. }: &Tables,
    names: &Names,
    found: &GpuLinks,
    launched: impl Iterator<Item = &'l u32>,
    launch_ops: &LaunchOps,
    launch_ranges: &[u32],
    stats: &mut Stats,
) {
    let mut has_work = vec![false; launches.len()];
    for &launch in launched.filter(|&&launch| launch != NONE) {
        has_work[launch as usize] = true;
    }
    let count = |keep: &dyn Fn(u32) -> bool| (0..launches.len() as u32).filter(|&l| keep(l)).count() as u64;
    let idle = count(&|l| !has_work[l as usize] && names.is(&launches.name, l, Class::KERNEL_LAUNCH));
    let has_place = |l: usize| launch_ops.ops[l] != NONE || launch_ranges[l] != NONE;
    let orphans = count(&|l| has_work[l as usize] && !has_place(l as usize));
    let is_outside = |(launch, id): (&u32, Option<i64>)| *launch == NONE && id.is_some_and(|id| id != 0);
    let outside =
        found.launches.iter().zip(gpu_ops.correlation.iter()).filter(|&pair| is_outside(pair)).count();
    stats.note_many(Code::LaunchOutsideTrace, outside as u64, None);
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

/// Which GPU work is communication: by its name or category, by recorded collective arguments, or
/// because a collective's op launched the kernel directly.
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
                || names.is(&gpu_ops.category, index, Class::COMMUNICATION_KERNEL)
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
