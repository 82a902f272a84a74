//! Events whose kind only their process tells: PyTorch before Kineto, and torch_npu for Ascend, write no categories.
//!
//! Both write operators as Kineto does, or without a category, so that everything stands among the ops until here.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use crate::schema::{
    Flows, GpuAnnotationRow, GpuOpRow, LaunchRow, SpanRow, Symbol, SymbolTable, SyncRow, Table, Tables,
};
use crate::tracks::{Ident, TrackTable};

/// The process of GPU work before Kineto; its threads are the GPUs.
const LEGACY: &str = "CUDA functions";
/// The process of the streams of an NPU.
const NPU: &str = "Ascend Hardware";
/// Processes of whole collectives, with a thread for each group, and of their parts, with one for each plane.
const COLLECTIVES: [&str; 2] = ["Communication", "HCCL"];
/// The process of the host library's calls.
const HOST_LIBRARY: &str = "CANN";
/// The process of what the exporter worked out.
const ANALYSIS: &str = "Overlap Analysis";
/// Parts of collectives, which run on streams of their own.
const PARTS: [&str; 8] = [
    "Memcpy",
    "Reduce_Inline",
    "Reduce_TBE",
    "RDMASend",
    "Notify_Wait",
    "Notify_Record",
    "Write_Notify",
    "Read",
];

/// What the events of a track are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// What its category says.
    AsRecorded,
    /// Ranges of operators on a GPU, of which the innermost are the work.
    RangesOfGpu(Option<i32>),
    /// Tasks of a stream of an NPU.
    Stream(Option<i32>, Option<i64>),
    /// Collectives of an NPU.
    Collectives(Option<i32>),
    /// Calls of the host library.
    Calls,
    /// No work.
    Spans,
}

/// Puts the events of such processes into the tables that they belong to.
///
/// `own` is what a process is called without the label of a rank; `elsewhere` gets the processes that have one.
pub(super) fn sort_out(
    tables: &mut Tables,
    tracks: &TrackTable,
    symbols: &mut SymbolTable,
    elsewhere: &mut HashMap<u32, Ident>,
    own: impl Fn(Ident) -> Ident,
) {
    let places = places(tables, tracks, symbols, &own);
    if places.iter().all(|&place| place == Place::AsRecorded) {
        return;
    }
    let task_types = task_types(tables, symbols);
    let [kernel, memcpy, slice] = ["kernel", "memcpy", "X"].map(|text| symbols.intern(text));
    let ops = std::mem::take(&mut tables.ops);
    let place = |index: usize| match ops.category.get(index) {
        None => places[ops.track.values()[index] as usize],
        Some(_) => Place::AsRecorded,
    };
    let extent = |index: usize| {
        let start = ops.start_ns.values()[index];
        (start, start.saturating_add(ops.dur_ns.get(index).unwrap_or(0)))
    };
    let around = around_others((0..ops.len()).filter_map(|index| match place(index) {
        Place::RangesOfGpu(_) => Some((ops.track.values()[index], extent(index), index)),
        _ => None,
    }));
    let labelled = |track: u32| Some(tracks.key(track).0).filter(|&pid| own(pid) != pid);
    let mut stays = vec![false; ops.len()];
    for (index, stays) in stays.iter_mut().enumerate() {
        let (row, name, track) = (ops.row.values()[index], ops.name.get(index), ops.track.values()[index]);
        let (start_ns, dur_ns) = (ops.start_ns.values()[index], ops.dur_ns.get(index));
        let text = name.map_or("", |name| symbols.text(name));
        let task = task_types.get(&row).map_or("", |&task| symbols.text(task));
        let work = GpuOpRow { row, kind: kernel, name, start_ns, dur_ns, ..Default::default() };
        let mut add_span = || {
            let span = SpanRow { row, kind: slice, name, track, start_ns, dur_ns, ..Default::default() };
            tables.spans.push(span);
        };
        if place(index) != Place::AsRecorded {
            elsewhere.extend(labelled(track).map(|pid| (row, pid)));
        }
        match place(index) {
            Place::AsRecorded => *stays = true,
            Place::RangesOfGpu(device) if around.contains(&index) => {
                let range = GpuAnnotationRow { row, name, device, start_ns, dur_ns, ..Default::default() };
                tables.gpu_annotations.push(range);
            }
            Place::Stream(..) if PARTS.contains(&text) => add_span(),
            Place::Stream(device, stream) if task.contains("WAIT") || task.contains("RECORD") => {
                let sync = SyncRow { row, name, device, stream, start_ns, dur_ns, ..Default::default() };
                tables.syncs.push(sync);
            }
            Place::Stream(device, stream) => {
                let is_copy = task.contains("DMA") || task.contains("MEMCPY");
                let kind = if is_copy { memcpy } else { kernel };
                tables.gpu_ops.push(GpuOpRow { kind, device, stream, ..work });
            }
            Place::RangesOfGpu(device) | Place::Collectives(device) => {
                tables.gpu_ops.push(GpuOpRow { device, ..work });
            }
            Place::Calls => {
                let call = LaunchRow { row, name, track, start_ns, dur_ns, ..Default::default() };
                tables.launches.push(call);
            }
            Place::Spans => add_span(),
        }
    }
    tables.ops = ops;
    tables.ops.keep_rows(&stays);
    tables.sort_rows();
    bind_arrows(tables, &places, symbols, labelled, elsewhere);
}

/// Notes which arrows lead to which work: where they end, one piece begins. Where several do, none is sure.
fn bind_arrows(
    tables: &mut Tables,
    places: &[Place],
    symbols: &SymbolTable,
    labelled: impl Fn(u32) -> Option<Ident>,
    elsewhere: &HashMap<u32, Ident>,
) {
    let Tables { gpu_ops, flows, .. } = tables;
    let mut ends: HashMap<_, _> = HashMap::new();
    for flow in flows.ends(symbols, Flows::TO_WORK, "f") {
        let track = flows.track.values()[flow];
        let place = match places[track as usize] {
            Place::Stream(device, stream) => (labelled(track), device, stream),
            Place::RangesOfGpu(device) | Place::Collectives(device) => (labelled(track), device, None),
            Place::AsRecorded | Place::Calls | Place::Spans => continue,
        };
        ends.insert((place, flows.start_ns.values()[flow]), flows.row.values()[flow]);
    }
    if ends.is_empty() {
        return;
    }
    let place = |work: usize| {
        let process = elsewhere.get(&gpu_ops.row.values()[work]).copied();
        ((process, gpu_ops.device.get(work), gpu_ops.stream.get(work)), gpu_ops.start_ns.values()[work])
    };
    let mut works: HashMap<_, u32> = HashMap::new();
    for work in 0..gpu_ops.len() {
        *works.entry(place(work)).or_default() += 1;
    }
    let arrow = |work| ends.get(&place(work)).filter(|_| works[&place(work)] == 1).copied();
    gpu_ops.arrow_row = (0..gpu_ops.len()).map(arrow).collect();
}

/// What the events of each track are.
fn places(
    tables: &Tables,
    tracks: &TrackTable,
    symbols: &SymbolTable,
    own: impl Fn(Ident) -> Ident,
) -> Vec<Place> {
    let metadata = &tables.metadata;
    let named = |kind: &str| {
        let kind = symbols.find(kind);
        let rows = (0..metadata.len()).filter(move |&row| kind.is_some() && metadata.name.get(row) == kind);
        rows.filter_map(|row| Some((metadata.track.values()[row], symbols.text(metadata.value.get(row)?))))
    };
    let of_pids: HashMap<_, _> =
        named("process_name").map(|(track, name)| (tracks.key(track).0, name)).collect();
    let of_tracks: HashMap<_, _> = named("thread_name").collect();
    let is_npu = of_pids.values().any(|&name| name == NPU);
    let place = |track: u32| {
        let (recorded, tid) = tracks.key(track);
        let pid = own(recorded);
        if pid.text().is_some_and(|text| symbols.text(text) == LEGACY) {
            return Place::RangesOfGpu(tid.int().and_then(|device| i32::try_from(device).ok()));
        }
        let Some(&process) = of_pids.get(&recorded).filter(|_| is_npu) else { return Place::AsRecorded };
        // The number of the process, of how it is sorted, and of the device.
        let device = pid.int().map(|pid| if pid < 1 << 10 { 0 } else { (pid & 31) as i32 });
        let thread = of_tracks.get(&track).copied().unwrap_or_default();
        match process {
            NPU => Place::Stream(device, tid.int()),
            HOST_LIBRARY => Place::Calls,
            ANALYSIS => Place::Spans,
            name if COLLECTIVES.contains(&name) && thread.starts_with("Group") => Place::Collectives(device),
            name if COLLECTIVES.contains(&name) => Place::Spans,
            _ => Place::AsRecorded,
        }
    };
    (0..tracks.len() as u32).map(place).collect()
}

/// The recorded type of the tasks of NPUs, by row.
fn task_types(tables: &Tables, symbols: &SymbolTable) -> HashMap<u32, Symbol> {
    let extra = &tables.extra_args;
    let Some(key) = symbols.find("Task Type") else { return HashMap::new() };
    let rows = extra.row.values().iter().zip(extra.key.values()).zip(extra.value.values());
    rows.filter(|((_, found), _)| **found == key).map(|((&row, _), &value)| (row, value)).collect()
}

/// Which ranges (of a track, from start to end, with a number) contain a whole other one of their track; of equal
/// ones all but the last do.
fn around_others(ranges: impl Iterator<Item = (u32, (i64, i64), usize)>) -> HashSet<usize> {
    // Time cannot count twice by a range without any.
    let mut ranges: Vec<_> = ranges.filter(|(_, (start, end), _)| end > start).collect();
    ranges.sort_by_key(|&(track, (start, end), number)| (track, start, Reverse(end), number));
    let mut around = HashSet::new();
    for on_track in ranges.chunk_by(|a, b| a.0 == b.0) {
        // When the first of those that begin later, or at once and behind this one, ends.
        let mut first_end = i64::MAX;
        for &(_, (_, end), number) in on_track.iter().rev() {
            if first_end <= end {
                around.insert(number);
            }
            first_end = first_end.min(end);
        }
    }
    around
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_around_others_are_found() {
        let ranges = [(0, 10), (1, 4), (2, 3), (5, 12), (20, 30), (20, 30), (40, 50), (50, 50), (45, 45)];
        let numbered = ranges.into_iter().enumerate().map(|(number, extent)| (0, extent, number));
        assert_eq!(around_others(numbered), HashSet::from([0, 1, 4]));
        let apart = [(0, (0, 10), 0), (1, (1, 4), 1)];
        assert!(around_others(apart.into_iter()).is_empty());
    }
}
