//! Keeps apart the ids of processes, each of which counts for itself.

use hashbrown::{HashMap, HashSet};
use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::ids::IdIndex;
use crate::schema::{Column, Launches, Ops, Tables};
use crate::tracks::TrackTable;

/// The processes of a trace whose ids may collide.
pub(super) struct Processes {
    /// What comes before the ids of a process: a multiple of `stride`.
    bases: HashMap<Option<i64>, i64>,
    /// Above every id.
    stride: i64,
    /// The process that uses each GPU, where the source does not say whose work is whose.
    of_devices: HashMap<i32, i64>,
    /// Where it does not, every process: more than one may use a GPU.
    users: Vec<Option<i64>>,
    /// Process of each track.
    pids: Vec<Option<i64>>,
}

impl Processes {
    /// The processes, if the source says whose GPU work is whose, or if ids of several collide.
    pub(super) fn find(tables: &Tables, tracks: &TrackTable) -> Option<Self> {
        let Tables { ops, launches, gpu_ops, syncs, .. } = tables;
        let pids: Vec<_> = (0..tracks.len() as u32).map(|track| tracks.key(track).0.int()).collect();
        let is_recorded = !(gpu_ops.pid.is_all_null() && syncs.pid.is_all_null());
        if !is_recorded && !collide(launches, &pids) {
            return None;
        }
        let ids = launches.correlation.iter().chain(ops.external_id.iter()).flatten();
        let stride = ids.max().unwrap_or(0).max(0).saturating_add(1);
        let bases = pids.iter().copied().collect::<BTreeSet<_>>().into_iter().zip(0_i64..);
        let bases = bases.map(|(pid, n)| (pid, n.saturating_mul(stride))).collect();
        let mut processes = Self { bases, stride, of_devices: HashMap::new(), users: Vec::new(), pids };
        if !is_recorded {
            processes.of_devices = processes.devices(tables);
            processes.users = processes.bases.keys().copied().collect();
            processes.users.sort_unstable();
        }
        Some(processes)
    }

    /// The id in one sequence for all processes.
    #[inline]
    pub(super) fn key(&self, pid: Option<i64>, id: i64) -> Option<i64> {
        let base = *self.bases.get(&pid)?;
        if (0..self.stride).contains(&id) { base.checked_add(id) } else { None }
    }

    /// The process whose work ran on a GPU: as recorded, else the one that uses the GPU.
    #[inline]
    pub(super) fn of_work(&self, pid: Option<i64>, device: Option<i32>) -> Option<i64> {
        pid.or_else(|| self.of_devices.get(&device?).copied())
    }

    /// The keys that an id of work of process `pid` may have, the likeliest first.
    #[inline]
    pub(super) fn candidates(&self, pid: Option<i64>, id: i64) -> impl Iterator<Item = i64> {
        let others = self.users.iter().copied().filter(move |&other| other != pid);
        std::iter::once(pid).chain(others).filter_map(move |pid| self.key(pid, id))
    }

    /// The correlation ids of launches in one sequence.
    pub(super) fn launch_keys(&self, launches: &Launches) -> Column<i64> {
        self.keys(&launches.track, &launches.correlation)
    }

    /// The external ids of ops in one sequence.
    pub(super) fn op_keys(&self, ops: &Ops) -> Column<i64> {
        self.keys(&ops.track, &ops.external_id)
    }

    fn keys(&self, tracks: &Column<u32>, ids: &Column<i64>) -> Column<i64> {
        let of_track = |&track: &u32| self.pids.get(track as usize).copied();
        tracks.values().iter().zip(ids.iter()).map(|(track, id)| self.key(of_track(track)?, id?)).collect()
    }

    /// The process that a track belongs to.
    #[inline]
    pub(super) fn of_track(&self, track: u32) -> Option<i64> {
        self.pids.get(track as usize).copied().flatten()
    }

    /// The process that uses each GPU: whose launches explain most of its work, none of which can run before
    /// its launch. Of several that explain as much it is the one whose launches precede the work most evenly:
    /// the clocks of ranks and how late one is change how long before, but not how much that varies.
    ///
    /// A process takes a second GPU only when no other is left for it.
    fn devices(&self, tables: &Tables) -> HashMap<i32, i64> {
        let Tables { launches, gpu_ops, .. } = tables;
        let keys = self.launch_keys(launches);
        let index = IdIndex::new(&keys, launches.start_ns.values());
        let users: BTreeSet<i64> =
            launches.track.values().iter().filter_map(|&track| self.of_track(track)).collect();
        let mut found: HashMap<(i32, i64), Explained> = HashMap::new();
        for (at, &start) in gpu_ops.start_ns.values().iter().enumerate() {
            let ids = gpu_ops.device.get(at).zip(gpu_ops.correlation.get(at).filter(|&id| id != 0));
            let Some((device, id)) = ids else { continue };
            for &pid in &users {
                let explained = found.entry((device, pid)).or_default();
                let Some(key) = self.key(Some(pid), id) else { continue };
                let launched =
                    index.find(key, start).map(|launch| launches.start_ns.values()[launch as usize]);
                if let Some(launched) = launched.filter(|&launched| launched <= start) {
                    explained.add(start.saturating_sub(launched));
                }
            }
        }
        let mut pairs: Vec<_> = found.into_iter().filter(|(_, explained)| explained.works > 0).collect();
        pairs.sort_by_key(|&(pair, explained)| {
            (Reverse(explained.works), explained.spread(), explained.delay_ns, pair)
        });
        let mut of_devices = HashMap::new();
        let mut taken = HashSet::new();
        for &((device, pid), _) in &pairs {
            if !of_devices.contains_key(&device) && taken.insert(pid) {
                of_devices.insert(device, pid);
            }
        }
        for ((device, pid), _) in pairs {
            of_devices.entry(device).or_insert(pid);
        }
        of_devices
    }
}

/// How much of the work of a GPU the launches of a process explain.
#[derive(Default, Clone, Copy)]
struct Explained {
    works: i128,
    /// From the launches to the work, in all, and the squares of that.
    delay_ns: i128,
    squares: i128,
}

impl Explained {
    fn add(&mut self, delay_ns: i64) {
        // A day and more is the same as any longer time: squares have to fit.
        let delay = i128::from(delay_ns.clamp(0, 1 << 47));
        self.works += 1;
        self.delay_ns += delay;
        self.squares += delay * delay;
    }

    /// The variance of the delays, times the square of how many there are.
    fn spread(self) -> i128 {
        self.works * self.squares - self.delay_ns * self.delay_ns
    }
}

/// Whether two processes gave launches the same correlation id.
fn collide(launches: &Launches, pids: &[Option<i64>]) -> bool {
    let of_track = |track: u32| pids.get(track as usize).copied().flatten();
    let mut tracks = launches.track.values().iter();
    let first = tracks.next().map(|&track| of_track(track));
    if tracks.all(|&track| Some(of_track(track)) == first) {
        return false;
    }
    let mut users: HashMap<i64, Option<i64>> = HashMap::new();
    let calls = launches.track.values().iter().zip(launches.correlation.iter());
    calls.into_iter().any(|(&track, id)| {
        let pid = of_track(track);
        id.filter(|&id| id != 0).is_some_and(|id| *users.entry(id).or_insert(pid) != pid)
    })
}
