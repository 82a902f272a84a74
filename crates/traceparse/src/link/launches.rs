//! From launches to the ops that made them.

use super::NONE;
use super::ids::IdIndex;
use super::names::{Class, Names};
use super::order::{Extents, TrackOrder, innermost_containers};
use super::processes::Processes;
use crate::schema::{Column, Launches, Ops, Symbol, Table, Tables};
use crate::stats::{Code, Stats};
use crate::tracks::TrackTable;

/// Fewer equal ids than this prove nothing about a file.
const LEGACY_EVIDENCE: u64 = 20;

/// External ids of ops, and how far those on launches and GPU work can be trusted.
///
/// From 2022 to 2024 recorders overwrote the external ids of launches and GPU work with their own
/// correlation ids, which meet ops' ids by accident; later ones did so for unlinked calls only.
pub(super) struct ExternalIds<'a> {
    ops: &'a Ops,
    extents: Extents<'a>,
    index: IdIndex<'a>,
    processes: Option<&'a Processes>,
    legacy: bool,
}

/// What an external id says.
pub(super) enum Claim {
    /// This op.
    Op(u32),
    /// Nothing that can be used.
    Nothing,
    /// It repeats the correlation id, and no op of that id encloses the event.
    Unconfirmed,
}

impl<'a> ExternalIds<'a> {
    /// The ids of `ops` are `ids`: those of `processes` if they may collide.
    pub(super) fn new(
        Tables { ops, launches, gpu_ops, .. }: &'a Tables,
        ids: &'a Column<i64>,
        processes: Option<&'a Processes>,
        stats: &mut Stats,
    ) -> Self {
        let extents = Extents::new(&ops.start_ns, &ops.dur_ns);
        let index = IdIndex::new(ids, extents.starts());
        stats.note_many(Code::DuplicateExternalId, index.repeats(), None);
        let of_launches = launches.external_id.iter().zip(launches.correlation.iter());
        let pairs = of_launches.chain(gpu_ops.external_id.iter().zip(gpu_ops.correlation.iter()));
        let (mut equal, mut total) = (0, 0);
        for (id, correlation) in pairs.filter_map(|(id, correlation)| id.zip(correlation)) {
            equal += u64::from(id == correlation);
            total += 1;
        }
        let legacy = equal >= LEGACY_EVIDENCE && 100 * equal >= 99 * total;
        if legacy {
            stats.note_many(Code::LegacyExternalId, equal, None);
        }
        Self { ops, extents, index, processes, legacy }
    }

    /// Whether the ids of launches and GPU work are correlation ids.
    pub(super) fn are_untrusted(&self) -> bool {
        self.legacy
    }

    /// The op of a process with an external id.
    fn find(&self, id: i64, pid: Option<i64>, start: i64) -> Option<u32> {
        let key = self.processes.map_or(Some(id), |processes| processes.key(pid, id))?;
        self.index.find(key, start)
    }

    /// What the external id of an event of process `pid` at `start` says; `encloses` tells whether an op
    /// encloses it.
    pub(super) fn claim(
        &self,
        external_id: Option<i64>,
        correlation: Option<i64>,
        pid: Option<i64>,
        start: i64,
        encloses: impl Fn(u32) -> bool,
    ) -> Claim {
        let Some(id) = external_id.filter(|&id| id != 0 && !self.legacy) else { return Claim::Nothing };
        let op = self.find(id, pid, start);
        if correlation == Some(id) && !op.is_some_and(encloses) {
            return Claim::Unconfirmed;
        }
        op.map_or(Claim::Nothing, Claim::Op)
    }

    /// The op of a GPU annotation: the ids have one source, the names prove it.
    pub(super) fn annotation(
        &self,
        external_id: Option<i64>,
        name: Option<Symbol>,
        pid: Option<i64>,
        start: i64,
    ) -> Option<u32> {
        let op = self.find(external_id?, pid, start)?;
        (self.ops.name.get(op as usize) == name).then_some(op)
    }
}

/// The op of each launch.
pub(super) struct LaunchOps {
    /// Index of the op; [`NONE`] if there is none.
    pub(super) ops: Vec<u32>,
    /// Whether the op was found by the external id and not by its time.
    pub(super) by_id: Vec<bool>,
}

/// Finds the op of every launch: by external id, else the innermost operator `around` it.
pub(super) fn find_ops(
    launches: &Launches,
    ops: &Ops,
    around: Vec<u32>,
    external_ids: &ExternalIds<'_>,
    stats: &mut Stats,
) -> LaunchOps {
    let extents = Extents::new(&launches.start_ns, &launches.dur_ns);
    let mut found = around;
    let mut by_id = vec![false; launches.len()];
    let mut unconfirmed = 0;
    for launch in 0..launches.len() as u32 {
        let index = launch as usize;
        let id = launches.external_id.get(index);
        let by_time = found[index];
        if by_time != NONE
            && id.is_some()
            && ops.external_id.get(by_time as usize) == id
            && !external_ids.legacy
        {
            by_id[index] = true;
            continue;
        }
        let encloses = |op: u32| {
            ops.track.values()[op as usize] == launches.track.values()[index]
                && external_ids.extents.start(op) <= extents.start(launch)
                && external_ids.extents.end(op) >= extents.end(launch)
        };
        let pid = external_ids.processes.and_then(|found| found.of_track(launches.track.values()[index]));
        match external_ids.claim(id, launches.correlation.get(index), pid, extents.start(launch), encloses) {
            Claim::Op(op) => {
                found[index] = op;
                by_id[index] = true;
            }
            Claim::Unconfirmed => unconfirmed += 1,
            Claim::Nothing => {}
        }
    }
    stats.note_many(Code::UnconfirmedExternalId, unconfirmed, None);
    LaunchOps { ops: found, by_id }
}

/// The innermost operator that encloses each launch on its thread, by index; [`NONE`] if there is none.
///
/// Annotations group operators and make no calls themselves, so they are no candidates.
pub(super) fn enclosing_operators(
    launches: &Launches,
    ops: &Ops,
    op_order: &TrackOrder,
    names: &Names,
    tracks: &TrackTable,
) -> Vec<u32> {
    let op_extents = Extents::new(&ops.start_ns, &ops.dur_ns);
    let extents = Extents::new(&launches.start_ns, &launches.dur_ns);
    let order = TrackOrder::new(launches.track.values(), tracks.len(), extents, |_| true);
    let is_operator = |index| {
        !names.is(&ops.category, index, Class::ANNOTATION_CATEGORY)
            && !names.is(&ops.name, index, Class::STEP)
    };
    let extent = |launch| (extents.start(launch), extents.end(launch));
    innermost_containers(op_order, op_extents, is_operator, &order, extent, launches.len())
}
