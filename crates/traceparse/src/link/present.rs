//! Which processes and GPUs a trace has events of: a filter by one that it has not would silently leave nothing.

use std::collections::BTreeSet;

use crate::error::{Error, ErrorKind, Result};
use crate::options::Filter;
use crate::schema::{Column, Tables};
use crate::trace::Trace;

/// Most numbers that a message lists.
const NUMBERS_LISTED: usize = 8;

/// Processes and GPUs that events are of.
#[derive(Default)]
pub(crate) struct Present {
    pids: BTreeSet<i64>,
    devices: BTreeSet<i32>,
}

impl Present {
    /// Those of the tables that were read.
    pub(crate) fn of(trace: &Trace) -> Self {
        let Tables { ops, launches, gpu_ops, python, ranges, syncs, memory, .. } = &trace.tables;
        let Tables { gpu_annotations, instants, spans, .. } = &trace.tables;
        // Flows, counters and metadata are of GPUs as well, whose numbers stand where others have a process.
        let mut is_used = vec![false; trace.tracks.len()];
        let mut use_all = |tracks: &Column<u32>| {
            for &track in tracks.values() {
                is_used[track as usize] = true;
            }
        };
        for tracks in [&ops.track, &launches.track, &python.track, &ranges.track] {
            use_all(tracks);
        }
        for tracks in [&memory.track, &instants.track, &spans.track] {
            use_all(tracks);
        }
        let of_hosts = (0..).zip(is_used).filter(|&(_, is_used)| is_used);
        let mut pids: BTreeSet<i64> =
            of_hosts.filter_map(|(track, _)| trace.tracks.key(track).0.int()).collect();
        pids.extend(gpu_ops.pid.iter().chain(syncs.pid.iter()).flatten());
        let mut devices = BTreeSet::new();
        for used in [&gpu_ops.device, &syncs.device, &memory.device_id, &gpu_annotations.device] {
            devices.extend(used.iter().flatten().filter(|&device| device >= 0));
        }
        Self { pids, devices }
    }

    /// Whether there is all that a filter names.
    pub(crate) fn has_all(&self, filter: &Filter) -> bool {
        self.refuse_others(filter).is_ok()
    }

    /// Refuses a filter by a process or a GPU that is not there.
    pub(crate) fn refuse_others(&self, filter: &Filter) -> Result<()> {
        if let Some(pid) = filter.processes.iter().find(|pid| !self.pids.contains(pid)) {
            return Err(unknown("process", pid, &self.pids));
        }
        match filter.devices.iter().find(|device| !self.devices.contains(device)) {
            Some(device) => Err(unknown("GPU", device, &self.devices)),
            None => Ok(()),
        }
    }
}

fn unknown<T: std::fmt::Display>(what: &str, given: &T, known: &BTreeSet<T>) -> Error {
    let listed: Vec<_> = known.iter().take(NUMBERS_LISTED).map(T::to_string).collect();
    let more = if known.len() > NUMBERS_LISTED { " and others" } else { "" };
    let known = if listed.is_empty() { "none".to_owned() } else { listed.join(", ") + more };
    Error::new(
        ErrorKind::InvalidArgument,
        format!("no event belongs to the {what} {given}; there are {known}"),
    )
}
