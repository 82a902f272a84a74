//! The graph, and what it tells of itself.

use std::cmp::Reverse;

use arrow_array::types::UInt8Type;
use arrow_array::{BooleanArray, RecordBatch};
use hashbrown::HashMap;

use super::edges::{Edge, Finder, LAUNCH, Wait, settle};
use super::lanes::Lanes;
use super::order::{Run, order};
use crate::call_tree::Slices;
use crate::frame::{Frame, NONE, Result, column, invalid, is_set, positions, records, table};

/// What each event waited for, with the length of each wait.
#[derive(Debug)]
pub struct DependencyGraph {
    pub(super) lanes: Lanes,
    /// In order of their targets.
    pub(super) edges: Vec<Edge>,
    pub(super) runs: Vec<Run>,
    cut: usize,
    calls: usize,
    launches: Vec<u32>,
    /// The lanes that decide when a window ends: streams and the threads that launch on them, or else the thread
    /// with most events. Others, such as watchdogs, wait for something that does not hold up a step.
    pub(super) deciding: Vec<usize>,
}

impl DependencyGraph {
    /// Builds the graph of events of the host and of GPU operations.
    ///
    /// Columns: `host` has `row`, `track` (of the thread), `start_ns`, `dur_ns`, `is_operator` (whether it computes)
    /// and `class` (3 for a launch, 0 for that of the event around it, or for a launch of GPU work). `callers` has
    /// `event` (position in `host`) of autograd and `track`, which waits for it. `handed` has `event` and `call`, which
    /// handed the event to another thread and waits for it. `gpu` has `row`, `stream` (a number), `process`,
    /// `start_ns`, `dur_ns`, `launch` (position in `host`; null for none) and `is_copy`. `waits` has `call` and `until`
    /// (positions in `host`; see [`Wait`]), `process`, `on` and `stream` (numbers of streams) and `only_waits`.
    /// `events` has `call` (position in `host`) of calls that record an event or, as `is_wait` says, let a stream wait
    /// for one, without a record of which event and stream.
    pub fn new(
        host: &Frame,
        callers: &Frame,
        gpu: &Frame,
        waits: &Frame,
        events: &Frame,
        handed: &Frame,
    ) -> Result<Self> {
        let (calls, works) = (host.height(), gpu.height());
        let nodes = calls.checked_add(works).and_then(|events| events.checked_mul(2));
        nodes.filter(|&nodes| nodes < NONE as usize).ok_or_else(|| invalid("too many events"))?;
        let of_host = [host.i64_array("track")?, host.i64_array("start_ns")?, host.i64_array("dur_ns")?];
        let of_gpu = [gpu.i64_array("stream")?, gpu.i64_array("start_ns")?, gpu.i64_array("dur_ns")?];
        let rows = [host.u32_array("row")?, gpu.u32_array("row")?];
        let launches = gpu.u32_array("launch")?;
        check(&launches, calls)?;
        let mut classes = host.values::<UInt8Type>("class")?.to_vec();
        // Copies and memsets are launched, too.
        for &launch in launches.iter() {
            if let Some(class @ 0) = classes.get_mut(launch as usize) {
                *class = LAUNCH;
            }
        }
        let mut lanes = Lanes::new(
            Slices { groups: &of_host[0], starts: &of_host[1], lengths: &of_host[2], rows: &rows[0] },
            classes,
            Slices { groups: &of_gpu[0], starts: &of_gpu[1], lengths: &of_gpu[2], rows: &rows[1] },
        );
        let (of_autograd, tracks) = (callers.u32_array("event")?, callers.i64_array("track")?);
        let callers: HashMap<u32, i64> = of_autograd.iter().copied().zip(tracks.iter().copied()).collect();
        let copies = gpu.filled_array::<BooleanArray>("is_copy")?.values();
        let operators = host.flags("is_operator")?;
        let finder = Finder {
            lanes: &mut lanes,
            calls,
            launches: &launches,
            copies,
            processes: &gpu.u32_array("process")?,
            operators: &operators,
            edges: Vec::new(),
            delay: 0,
            gap: 0,
        };
        let (waits, events) = (waits_of(waits, calls)?, events_of(events, calls)?);
        let mut edges = finder.find(&waits, &events, &handed_of(handed, calls)?, &callers);
        edges.sort_by_key(|edge| edge.target);
        let (runs, cut) = order(&lanes, &mut edges);
        settle(&mut lanes, &mut edges);
        lanes.shrink();
        let deciding = deciding(&lanes, &edges);
        Ok(Self { lanes, edges, runs, cut, calls, launches: launches.to_vec(), deciding })
    }

    /// Numbers of `nodes`, of `edges` of all kinds, and of those that were `cut`.
    pub fn size(&self) -> Result<RecordBatch> {
        let inside = self.lanes.times.len() - self.lanes.groups.len();
        let sizes = [(self.lanes.times.len(), inside + self.edges.len(), self.cut)];
        records!(sizes, size => nodes: size.0 as i64, edges: size.1 as i64, cut: size.2 as i64)
    }

    /// What each event of the host does, as the event around it if it does nothing of its own: `class`.
    pub fn classes(&self) -> Result<RecordBatch> {
        table([("class", column(self.lanes.classes.iter().copied()))])
    }

    /// The innermost or `outermost` `marked` event of the host around each event, or around its launch: `event`. A
    /// marked event lies in itself.
    pub fn enclosing(&self, marks: &Frame, outermost: bool) -> Result<RecordBatch> {
        let marks = marks.flags("marked")?;
        let mut found = vec![NONE; self.lanes.starts.len()];
        if marks.len() != found.len() {
            return Err(invalid("there is not one mark for each event"));
        }
        let own = |event: usize, around: Option<&u32>| match around.copied() {
            Some(around) if around != NONE && (outermost || !marks.value(event)) => around,
            _ if marks.value(event) => event as u32,
            _ => NONE,
        };
        for node in 0..self.lanes.firsts[self.lanes.threads] as usize {
            let event = self.lanes.events[node] as usize;
            if self.lanes.starts[event] as usize == node {
                found[event] = own(event, found.get(self.lanes.owners[node] as usize));
            }
        }
        for (event, &launch) in (self.calls..).zip(&self.launches) {
            found[event] = own(event, found.get(launch as usize));
        }
        table([("event", positions(found))])
    }

    /// Whether an event is one of the host.
    pub(super) fn is_call(&self, event: u32) -> bool {
        (event as usize) < self.calls
    }
}

/// See [`DependencyGraph::deciding`].
fn deciding(lanes: &Lanes, edges: &[Edge]) -> Vec<usize> {
    let launches = edges.iter().filter(|edge| edge.target >= lanes.firsts[lanes.threads]);
    let mut deciding: Vec<usize> = launches.map(|edge| lanes.lane_of(edge.source)).collect();
    deciding.extend(lanes.threads..lanes.groups.len());
    if deciding.is_empty() {
        deciding.extend((0..lanes.threads).max_by_key(|&lane| (lanes.lane(lane).len(), Reverse(lane))));
    }
    deciding.sort_unstable();
    deciding.dedup();
    deciding
}

fn waits_of(waits: &Frame, calls: usize) -> Result<Vec<Wait>> {
    let names = ["call", "process", "on", "until", "stream"];
    let columns = names.map(|name| waits.u32_array(name));
    let [call, process, on, until, stream] = columns;
    let (call, process, on, until, stream) = (call?, process?, on?, until?, stream?);
    check(&call, calls)?;
    check(&until, calls)?;
    let only_waits = waits.flags("only_waits")?;
    let wait = |at: usize| Wait {
        call: call[at],
        process: process[at],
        on: on[at],
        until: until[at],
        stream: stream[at],
        only_waits: is_set(&only_waits, at),
    };
    Ok((0..waits.height()).filter(|&at| call[at] != NONE).map(wait).collect())
}

fn events_of(events: &Frame, calls: usize) -> Result<Vec<(u32, bool)>> {
    let (call, is_wait) = (events.u32_array("call")?, events.flags("is_wait")?);
    check(&call, calls)?;
    let event = |at: usize| (call[at], is_set(&is_wait, at));
    Ok((0..events.height()).map(event).filter(|event| event.0 != NONE).collect())
}

fn handed_of(handed: &Frame, calls: usize) -> Result<Vec<(u32, u32)>> {
    let (event, call) = (handed.u32_array("event")?, handed.u32_array("call")?);
    check(&event, calls)?;
    check(&call, calls)?;
    let pairs = event.iter().copied().zip(call.iter().copied());
    Ok(pairs.filter(|&(event, call)| event != NONE && call != NONE).collect())
}

/// Refuses positions beyond the events of the host.
fn check(places: &[u32], calls: usize) -> Result<()> {
    let is_right = places.iter().all(|&at| at == NONE || (at as usize) < calls);
    is_right.then_some(()).ok_or_else(|| invalid("a position is not among the events of the host"))
}
