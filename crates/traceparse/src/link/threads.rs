//! What is known of tracks and devices.

use hashbrown::HashMap;
use std::collections::BTreeSet;

use crate::options::ReadOptions;
use crate::schema::{Column, DeviceRow, MetadataEvents, Symbol, SymbolTable, Tables, ThreadRow, Threads};
use crate::tracks::{Ident, TrackTable};

/// Process and thread ids of tracks.
struct Idents {
    pids: Vec<Option<i64>>,
    tids: Vec<Option<i64>>,
}

impl Idents {
    fn new(tracks: &TrackTable) -> Self {
        let keys = || (0..tracks.len() as u32).map(|track| tracks.key(track));
        Self { pids: keys().map(|key| key.0.int()).collect(), tids: keys().map(|key| key.1.int()).collect() }
    }
}

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
    let idents = Idents::new(tracks);
    let wants = |table, column| options.wants(table) && options.wants_column(table, column);
    macro_rules! store {
        ($($table:ident),*) => { $(
            let table = &mut tables.$table;
            if wants(stringify!($table), "pid") {
                table.pid = column(&idents.pids, &table.track);
            }
            if wants(stringify!($table), "tid") {
                table.tid = column(&idents.tids, &table.track);
            }
        )* };
    }
    store!(ops, launches, python, ranges, memory, counters, instants, flows, spans, metadata);
}

/// What metadata events say of a process or thread; the last of each kind counts.
#[derive(Default)]
struct Labels {
    process_names: HashMap<Ident, Symbol>,
    process_labels: HashMap<Ident, Symbol>,
    thread_names: HashMap<u32, Symbol>,
    sort_indices: HashMap<u32, i64>,
}

impl Labels {
    fn new(metadata: &MetadataEvents, tracks: &TrackTable, symbols: &SymbolTable) -> Self {
        let mut labels = Self::default();
        let [process_name, process_labels, thread_name, sort_index] =
            ["process_name", "process_labels", "thread_name", "thread_sort_index"]
                .map(|text| symbols.find(text));
        for (index, &track) in metadata.track.values().iter().enumerate() {
            let Some(value) = metadata.value.get(index) else { continue };
            let pid = tracks.key(track).0;
            match metadata.name.get(index) {
                None => {}
                name if name == process_name => drop(labels.process_names.insert(pid, value)),
                name if name == process_labels => drop(labels.process_labels.insert(pid, value)),
                name if name == thread_name => drop(labels.thread_names.insert(track, value)),
                name if name == sort_index => {
                    if let Ok(position) = symbols.text(value).trim().parse() {
                        labels.sort_indices.insert(track, position);
                    }
                }
                _ => {}
            }
        }
        labels
    }
}

/// The table `threads`: one row per track.
pub(super) fn threads(metadata: &MetadataEvents, tracks: &TrackTable, symbols: &SymbolTable) -> Threads {
    let labels = Labels::new(metadata, tracks, symbols);
    let mut table = Threads::default();
    for track in 0..tracks.len() as u32 {
        let (pid, tid) = tracks.key(track);
        table.push(ThreadRow {
            track,
            pid: pid.int(),
            tid: tid.int(),
            pid_text: pid.text(),
            tid_text: tid.text(),
            process_name: labels.process_names.get(&pid).copied(),
            process_label: labels.process_labels.get(&pid).copied(),
            thread_name: labels.thread_names.get(&track).copied(),
            sort_index: labels.sort_indices.get(&track).copied(),
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
