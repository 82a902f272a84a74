//! Which thread waits for the backward pass that a thread of autograd runs.
//!
//! Autograd runs the backward pass of a GPU on a thread of its own, while the thread that called `backward` waits.
//! Annotations, modules and Python lines of the backward pass are on the waiting thread.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use hashbrown::{HashMap, HashSet};

use super::backward::{OrderedOps, learn, learned};
use super::names::{Class, Names, Phase};
use super::order::Extents;
use super::{NONE, ranges};
use crate::schema::{Column, PythonFrames, Symbol, SymbolTable, Table, Tables};
use crate::tracks::{Ident, TrackTable};

/// Beginning of the names that PyTorch gives to the threads of autograd.
const AUTOGRAD_THREAD: &str = "pt_autograd_";
/// Maximum number of autograd threads between a node and the thread that called `backward`. A node that calls
/// `backward` itself, as activation checkpointing does, may pass work on to the thread of another device.
const MOST_HOPS: usize = 8;

/// The backward pass: its ops, and the outermost op of each node of the graph.
struct Backward<'a> {
    all: OrderedOps<'a>,
    phases: &'a [Phase],
    /// The outermost op around each op; [`NONE`] for ops outside of any node.
    roots_of: Vec<u32>,
    /// In the order of tracks and starts.
    roots: Vec<u32>,
}

/// Finds the track of the thread that called `backward`, for each op that another thread ran for it; [`NONE`] for
/// all other ops.
///
/// The caller of a node is the thread of its forward op. Without one it is the only thread of the process that is
/// inside a Python frame of the backward pass, else the caller of the nodes before and after on the same thread.
pub(super) fn of_ops(
    all: OrderedOps<'_>,
    parents: &[u32],
    phases: &[Phase],
    forwards: &[u32],
    python: &PythonFrames,
    names: &Names,
) -> Vec<u32> {
    let mut callers = vec![NONE; parents.len()];
    let backward = Backward::new(all, parents, phases, names);
    if backward.roots.is_empty() {
        return callers;
    }
    backward.by_forward(forwards, &mut callers);
    backward.by_number(&mut callers);
    backward.by_python(python, names, &mut callers);
    backward.by_neighbours(&mut callers);
    backward.follow(&mut callers);
    for (op, &root) in backward.roots_of.iter().enumerate().filter(|&(_, &root)| root != NONE) {
        callers[op] = callers[root as usize];
    }
    callers
}

impl<'a> Backward<'a> {
    fn new(all: OrderedOps<'a>, parents: &[u32], phases: &'a [Phase], names: &Names) -> Self {
        let mut found = Self { all, phases, roots_of: vec![NONE; parents.len()], roots: Vec::new() };
        // Parents come before their children in the order.
        for &op in all.order.indices().iter().filter(|&&op| phases[op as usize] == Phase::Backward) {
            let around = found.roots_of.get(parents[op as usize] as usize).copied().unwrap_or(NONE);
            // An annotation may be named as nodes are.
            if around != NONE {
                found.roots_of[op as usize] = around;
            } else if !names.is_annotation(all.ops, op) {
                found.roots_of[op as usize] = op;
                found.roots.push(op);
            }
        }
        found
    }

    fn process(&self, track: u32) -> Ident {
        self.all.tracks.key(track).0
    }

    /// Roots that have no caller yet.
    fn open(&self, callers: &[u32]) -> Vec<u32> {
        self.roots.iter().copied().filter(|&root| callers[root as usize] == NONE).collect()
    }

    /// Takes the track of the forward op of each root, or of the first op inside that has one.
    fn by_forward(&self, forwards: &[u32], callers: &mut [u32]) {
        for &op in self.all.order.indices() {
            let (root, forward) = (self.roots_of[op as usize], forwards[op as usize]);
            if root != NONE && forward != NONE && callers[root as usize] == NONE {
                let track = self.all.track(forward);
                let is_of_process = self.process(track) == self.process(self.all.track(op));
                callers[root as usize] = if is_of_process { track } else { NONE };
            }
        }
    }

    /// Takes the only track of the process with the same sequence number in the forward pass, where the recorder
    /// names no forward thread, as `emit_nvtx` does not.
    fn by_number(&self, callers: &mut [u32]) {
        let key = |op: u32| Some((self.process(self.all.track(op)), self.all.sequence(op)?));
        let mut open = self.open(callers);
        open.retain(|&root| self.all.forward_thread(root).is_none() && key(root).is_some());
        if open.is_empty() {
            return;
        }
        let mut tracks = HashMap::new();
        let is_before = |op: &&u32| self.phases[**op as usize] != Phase::Backward;
        for &op in self.all.order.indices().iter().filter(is_before) {
            if let Some(key) = key(op) {
                learn(&mut tracks, key, self.all.track(op));
            }
        }
        for root in open {
            callers[root as usize] = key(root).and_then(|key| learned(&tracks, key)).unwrap_or(NONE);
        }
    }

    /// Takes the only thread of the process that is inside a call of the backward pass when a root starts.
    fn by_python(&self, python: &PythonFrames, names: &Names, callers: &mut [u32]) {
        let is_of = |frame: u32, class| names.is(&python.name, frame, class);
        let any = Class::RUNS_BACKWARD.or(Class::CALLS_BACKWARD);
        let mut frames: Vec<u32> = (0..python.len() as u32).filter(|&frame| is_of(frame, any)).collect();
        if frames.is_empty() {
            return;
        }
        let extents = Extents::new(&python.start_ns, &python.dur_ns);
        frames.sort_by_key(|&frame| extents.start(frame));
        let mut open = self.open(callers);
        open.sort_by_key(|&root| self.all.extents.start(root));
        let mut frames = frames.into_iter().peekable();
        let mut processes: HashMap<Ident, [OpenFrames; 2]> = HashMap::new();
        for root in open {
            let (start, own) = (self.all.extents.start(root), self.all.track(root));
            while let Some(frame) = frames.next_if(|&frame| extents.start(frame) <= start) {
                let track = python.track.values()[frame as usize];
                let [runs, calls] = processes.entry(self.process(track)).or_default();
                let frames = if is_of(frame, Class::RUNS_BACKWARD) { runs } else { calls };
                frames.enter(track, extents.end(frame));
            }
            let Some(kinds) = processes.get_mut(&self.process(own)) else { continue };
            kinds.iter_mut().for_each(|frames| frames.leave(start));
            // The frame of the engine itself counts before those that are only named after what it does.
            let frames = kinds.iter().find(|frames| !frames.tracks.is_empty());
            callers[root as usize] = frames.and_then(|frames| frames.caller(own)).unwrap_or(NONE);
        }
    }

    /// Takes the caller of the roots before and after on the same thread, if these agree. Nodes that accumulate
    /// gradients have neither a number nor a forward op.
    fn by_neighbours(&self, callers: &mut [u32]) {
        let of_one_track = |a: &u32, b: &u32| self.all.track(*a) == self.all.track(*b);
        for roots in self.roots.chunk_by(of_one_track) {
            let mut after = vec![NONE; roots.len()];
            let mut known = NONE;
            for (after, &root) in after.iter_mut().zip(roots).rev() {
                known = if callers[root as usize] == NONE { known } else { callers[root as usize] };
                *after = known;
            }
            let mut before = NONE;
            for (&root, after) in roots.iter().zip(after) {
                if callers[root as usize] != NONE {
                    before = callers[root as usize];
                } else if before == NONE || after == NONE || before == after {
                    callers[root as usize] = if before == NONE { after } else { before };
                }
            }
        }
    }

    /// Goes on to the caller of the node that a calling thread runs itself, and drops callers that are the thread
    /// of the op.
    fn follow(&self, callers: &mut [u32]) {
        let found: Vec<u32> = self.roots.iter().map(|&root| self.outermost(root, callers)).collect();
        for (&root, caller) in self.roots.iter().zip(found) {
            callers[root as usize] = caller;
        }
    }

    fn outermost(&self, root: u32, callers: &[u32]) -> u32 {
        let (own, start) = (self.all.track(root), self.all.extents.start(root));
        let mut caller = callers[root as usize];
        for _ in 0..MOST_HOPS {
            if caller == NONE || caller == own {
                return NONE;
            }
            let first = self.roots.partition_point(|&other| self.all.track(other) < caller);
            let until = self.roots.partition_point(|&other| {
                (self.all.track(other), self.all.extents.start(other)) <= (caller, start)
            });
            let running = self.roots.get(first..until).and_then(<[u32]>::last).copied();
            let Some(running) = running.filter(|&other| self.all.extents.end(other) > start) else {
                return caller;
            };
            if callers[running as usize] == NONE || callers[running as usize] == caller {
                return caller;
            }
            caller = callers[running as usize];
        }
        NONE
    }
}

/// The threads that are inside frames of one kind.
#[derive(Default)]
struct OpenFrames {
    ends: BinaryHeap<Reverse<(i64, u32)>>,
    /// Number of open frames of each track.
    tracks: BTreeMap<u32, usize>,
}

impl OpenFrames {
    fn enter(&mut self, track: u32, end: i64) {
        self.ends.push(Reverse((end, track)));
        *self.tracks.entry(track).or_default() += 1;
    }

    /// Closes the frames that end by `at`.
    fn leave(&mut self, at: i64) {
        while let Some(&Reverse((end, track))) = self.ends.peek()
            && end <= at
        {
            self.ends.pop();
            let count = self.tracks.entry(track).or_default();
            *count -= 1;
            if *count == 0 {
                self.tracks.remove(&track);
            }
        }
    }

    /// The track itself if it is inside a frame, else the only track that is.
    fn caller(&self, own: u32) -> Option<u32> {
        if self.tracks.contains_key(&own) {
            return Some(own);
        }
        let mut tracks = self.tracks.keys();
        tracks.next().copied().filter(|_| tracks.next().is_none())
    }
}

/// Takes the caller of each launch: that of the op on its thread that made it. `launch_ops` are indices of ops.
pub(super) fn of_launches(Tables { ops, launches, .. }: &Tables, launch_ops: &[u32]) -> Column<u32> {
    if ops.caller_track.is_all_null() {
        return Column::from_sentinel(vec![NONE; launch_ops.len()], NONE);
    }
    let of_op = |(&op, track): (&u32, &u32)| {
        let caller = ops.caller_track.get(op as usize)?;
        (ops.track.values()[op as usize] == *track).then_some(caller)
    };
    let callers = launch_ops.iter().zip(launches.track.values()).map(|pair| of_op(pair).unwrap_or(NONE));
    Column::from_sentinel(callers.collect(), NONE)
}

/// Finds further callers of launches on threads that are named as those of autograd: the only other thread of the
/// process that launches kernels and has a push/pop range around the launch.
pub(super) fn add_by_ranges(tables: &mut Tables, tracks: &TrackTable, symbols: &SymbolTable, names: &Names) {
    let Tables { launches, ranges, threads, .. } = &*tables;
    let is_autograd =
        |name: Option<Symbol>| name.is_some_and(|name| symbols.text(name).starts_with(AUTOGRAD_THREAD));
    let of_autograd: HashSet<u32> = (threads.track.values().iter().zip(threads.thread_name.iter()))
        .filter(|&(_, name)| is_autograd(name))
        .map(|(&track, _)| track)
        .collect();
    if of_autograd.is_empty() || ranges.is_empty() {
        return;
    }
    let track = |call: u32| launches.track.values()[call as usize];
    // A thread that only loads data starts copies, but no kernels.
    let launching: HashSet<u32> = (0..launches.len() as u32)
        .filter(|&call| names.is(&launches.name, call, Class::KERNEL_LAUNCH))
        .map(track)
        .filter(|track| !of_autograd.contains(track))
        .collect();
    let mut callers: Vec<u32> = launches.caller_track.iter().map(|caller| caller.unwrap_or(NONE)).collect();
    let is_open = |&call: &u32| callers[call as usize] == NONE && of_autograd.contains(&track(call));
    let open = (0..launches.len() as u32).filter(is_open).collect();
    let around = (0..ranges.len() as u32)
        .filter(|&range| ranges.depth.get(range as usize) == Some(0))
        .filter(|&range| launching.contains(&ranges.track.values()[range as usize]))
        .collect();
    ranges::enclosing_in_process(tables, tracks, around, open, |call, enclosing| {
        let mut waiting = enclosing.map(|range| ranges.track.values()[range as usize]);
        let first = waiting.next();
        if waiting.all(|track| Some(track) == first) {
            callers[call as usize] = first.unwrap_or(NONE);
        }
    });
    tables.launches.caller_track = Column::from_sentinel(callers, NONE);
}
