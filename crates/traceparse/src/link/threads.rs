//! What is known of tracks and devices.

use hashbrown::HashMap;
use std::collections::BTreeSet;

use crate::options::ReadOptions;
use crate::schema::{Column, DeviceRow, MetadataEvents, Symbol, SymbolTable, Tables, ThreadRow, Threads};
use crate::tracks::{Ident, TrackTable};

fn column(idents: &[Option<i64>], tracks: &Column<u32>) -> Column<i64> {
    let tracks = tracks.values();
    let ident = |&track: &u32| idents[track as usize];
    // Tracks without numbers are those of profiler spans: few tables have any.
    if tracks.iter().all(|track| ident(track).is_some()) {
        return Column::from_values(tracks.iter().map(|track| ident(track).unwrap_or_default()).collect());
    }
    tracks.iter().map(ident).collect()
}

/// Fills the columns `pid` and `tid` of every table that has tracks, where they are wanted.
pub(super) fn store_idents(tables: &mut Tables, tracks: &TrackTable, options: &ReadOptions) {
    let keys = || (0..tracks.len() as u32).map(|track| tracks.key(track));
    let pids: Vec<_> = keys().map(|key| key.0.int()).collect();
    let tids: Vec<_> = keys().map(|key| key.1.int()).collect();
    let wants = |table, column| options.wants(table) && options.wants_column(table, column);
    macro_rules! store {
        ($($table:ident),*) => { $(
            let table = &mut tables.$table;
            if wants(stringify!($table), "pid") {
                table.pid = column(&pids, &table.track);
            }
            if wants(stringify!($table), "tid") {
                table.tid = column(&tids, &table.track);
            }
        )* };
    }
    store!(launches, python, ranges, memory, counters, instants, flows, spans, metadata, untimed_events);
    let Tables { ops, ranges, .. } = tables;
    let is_shared = ops.track.shares_with(&ranges.track);
    for (name, idents, stored, of_ranges) in
        [("pid", &pids, &mut ops.pid, &mut ranges.pid), ("tid", &tids, &mut ops.tid, &mut ranges.tid)]
    {
        if wants("ops", name) {
            let is_same = is_shared && !of_ranges.is_empty();
            *stored = if is_same { of_ranges.share() } else { column(idents, &ops.track) };
        }
    }
}

/// The table `threads`: one row per track, with what metadata events say of it; the last of each kind counts.
pub(super) fn threads(metadata: &MetadataEvents, tracks: &TrackTable, symbols: &SymbolTable) -> Threads {
    let mut of_processes: HashMap<(Symbol, Ident), Symbol> = HashMap::new();
    let mut of_threads: HashMap<(Symbol, u32), Symbol> = HashMap::new();
    for (index, &track) in metadata.track.values().iter().enumerate() {
        if let Some((name, value)) = metadata.name.get(index).zip(metadata.value.get(index)) {
            of_processes.insert((name, tracks.key(track).0), value);
            of_threads.insert((name, track), value);
        }
    }
    let [process_name, process_label, thread_name, sort_index] =
        ["process_name", "process_labels", "thread_name", "thread_sort_index"].map(|kind| symbols.find(kind));
    let mut table = Threads::default();
    for track in 0..tracks.len() as u32 {
        let (pid, tid) = tracks.key(track);
        let of_process = |kind: Option<Symbol>| of_processes.get(&(kind?, pid)).copied();
        let of_thread = |kind: Option<Symbol>| of_threads.get(&(kind?, track)).copied();
        table.push(ThreadRow {
            track,
            pid: pid.int(),
            tid: tid.int(),
            pid_text: pid.text(),
            tid_text: tid.text(),
            process_name: of_process(process_name),
            process_label: of_process(process_label),
            thread_name: of_thread(thread_name),
            sort_index: of_thread(sort_index).and_then(|text| symbols.text(text).trim().parse().ok()),
        });
    }
    table
}

/// Adds a row for each device that events use and the file does not describe.
pub(super) fn add_used_devices(tables: &mut Tables) {
    let Tables { gpu_ops, gpu_annotations, syncs, devices, .. } = tables;
    let mut used: BTreeSet<i32> = BTreeSet::new();
    for column in [&gpu_ops.device, &gpu_annotations.device, &syncs.device] {
        let mut last = None;
        for device in column.iter().flatten().filter(|&device| device >= 0) {
            // Neighbours share a device as a rule.
            if last.replace(device) != Some(device) {
                used.insert(device);
            }
        }
    }
    let described: BTreeSet<i32> = devices.device.values().iter().copied().collect();
    for &device in used.difference(&described) {
        devices.push(DeviceRow { device, ..Default::default() });
    }
}
