//! The GPUs of a trace, each as a process uses it, and the part of the host that each has to itself.

use std::collections::{BTreeMap, BTreeSet};

use super::NONE;
use crate::schema::{Table, Tables};
use crate::tracks::TrackTable;

/// A GPU as a process uses it. Two processes may call two GPUs by one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Gpu {
    /// Null where no work says which GPU it ran on.
    pub(super) device: Option<i32>,
    /// Null where the source does not say whose work it is.
    pub(super) pid: Option<i64>,
}

/// The GPUs that have work, in order, and the work of each.
pub(super) struct Gpus {
    pub(super) gpus: Vec<Gpu>,
    /// Index into `gpus` of each piece of GPU work; [`NONE`] where it is not known.
    of_work: Vec<u32>,
    /// Per GPU, the processes that launched work on others and none on this one.
    others: Vec<BTreeSet<i64>>,
}

impl Gpus {
    /// The GPUs of `tables`; `launches` has the launch of each piece of work.
    pub(super) fn find(tables: &Tables, tracks: &TrackTable, launches: &[u32]) -> Self {
        let work = &tables.gpu_ops;
        // A negative number stands for no GPU.
        let device = |index: usize| work.device.get(index).filter(|&device| device >= 0);
        let named = |index: usize| device(index).zip(work.pid.get(index));
        let processes: BTreeSet<(i32, i64)> = (0..work.len()).filter_map(named).collect();
        let gpu = |index: usize| {
            let device = device(index)?;
            let first = || processes.range((device, i64::MIN)..=(device, i64::MAX)).next().map(|p| p.1);
            Some(Gpu { device: Some(device), pid: work.pid.get(index).or_else(first) })
        };
        let found: BTreeSet<Gpu> = (0..work.len()).filter_map(gpu).collect();
        let mut gpus: Vec<Gpu> = found.into_iter().collect();
        if gpus.is_empty() && !work.is_empty() {
            gpus.push(Gpu::default());
        }
        let places: BTreeMap<Gpu, u32> = gpus.iter().copied().zip(0..).collect();
        let place = |index| gpu(index).and_then(|gpu| places.get(&gpu)).copied().unwrap_or(NONE);
        let of_work: Vec<u32> =
            if gpus.len() < 2 { vec![0; work.len()] } else { (0..work.len()).map(place).collect() };
        let mut users: Vec<BTreeSet<i64>> = vec![BTreeSet::new(); gpus.len()];
        for (index, (&gpu, &launch)) in of_work.iter().zip(launches).enumerate() {
            let of_launch = || tracks.key(*tables.launches.track.values().get(launch as usize)?).0.int();
            if let Some((users, pid)) =
                users.get_mut(gpu as usize).zip(work.pid.get(index).or_else(of_launch))
            {
                users.insert(pid);
            }
        }
        let all: BTreeSet<i64> = users.iter().flatten().copied().collect();
        let others = |own: &BTreeSet<i64>| {
            if own.is_empty() { BTreeSet::new() } else { all.difference(own).copied().collect() }
        };
        let others = users.iter().map(others).collect();
        Self { gpus, of_work, others }
    }

    /// Whether the work of index `work` runs on a GPU.
    #[inline]
    pub(super) fn runs_on(&self, gpu: usize, work: u32) -> bool {
        self.of_work[work as usize] as usize == gpu
    }

    /// For each track, whether the host works there for a GPU: not in a process that has GPUs of its own.
    pub(super) fn host_tracks(&self, gpu: usize, tracks: &TrackTable) -> Vec<bool> {
        let others = &self.others[gpu];
        let is_own = |track| tracks.key(track).0.int().is_none_or(|pid| !others.contains(&pid));
        (0..tracks.len() as u32).map(is_own).collect()
    }
}
