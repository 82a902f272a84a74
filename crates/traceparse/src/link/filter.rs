//! Leaves out events that the caller does not ask for, before anything is linked.
//!
//! An event that reaches into the time asked for stays as it is: it is not cut at the border. What is linked then is
//! what a recording of these events alone would have.

use std::collections::{BTreeMap, BTreeSet};

use super::NONE;
use super::gpu::{Correlations, of_work};
use super::names::{Class, Names};
use super::processes::Processes;
use crate::error::{Error, ErrorKind, Result};
use crate::nvtx_text;
use crate::options::{Filter, ReadOptions};
use crate::schema::{Column, Table, Tables};
use crate::stats::{Code, Stats};
use crate::trace::Trace;
use crate::tracks::TrackTable;

/// What to read for what is wanted: a filter looks at more than the caller.
pub(crate) fn with_filtered(options: &ReadOptions) -> ReadOptions {
    let mut widened = options.clone();
    let filter = &options.filter;
    if filter.nvtx.is_none() && filter.processes.is_empty() && filter.devices.is_empty() {
        return widened;
    }
    widened.add("gpu_ops", &["start_ns", "dur_ns", "device", "pid", "correlation"]);
    widened.add("launches", &["start_ns", "dur_ns", "track", "correlation"]);
    if options.wants("syncs") {
        widened.add("syncs", &["start_ns", "dur_ns", "device", "pid", "correlation"]);
    }
    if options.wants("counters") {
        widened.add("counters", &["start_ns", "dur_ns", "device"]);
    }
    if options.wants("memory") {
        widened.add("memory", &["start_ns", "track", "device_id"]);
    }
    if filter.nvtx.is_some() {
        widened.add(
            "ranges",
            &["name", "domain", "kind", "track", "start_ns", "dur_ns", "op_id", "sequence", "sizes"],
        );
        widened.add("ops", &["name", "category", "track", "start_ns", "dur_ns"]);
        // The range may enclose no such call, and counts among those of its name.
        widened.only_launching = false;
    }
    widened
}

/// Leaves out what the filter of `options` does not ask for.
pub(crate) fn filter(trace: &mut Trace, options: &ReadOptions) -> Result<()> {
    let filter = &options.filter;
    if filter.is_empty() {
        return Ok(());
    }
    let range = filter.nvtx.as_deref().map(|text| find_range(trace, text)).transpose()?;
    let is_of_time_alone = range.is_none() && filter.processes.is_empty() && filter.devices.is_empty();
    let work = if is_of_time_alone { Work::default() } else { Work::find(&trace.tables, &trace.tracks) };
    let kept = Kept { filter, range, tracks: &trace.tracks };
    let calls = kept.calls(&trace.tables, &work);
    let gpu_ops = kept.gpu_ops(&trace.tables, &work);
    let syncs = kept.syncs(&trace.tables, &work);
    let annotations = kept.annotations(&trace.tables, &work);
    let samples = kept.counters(&trace.tables, &gpu_ops);
    let Tables { ops, python, ranges, memory, counters, instants, flows, spans, .. } = &mut trace.tables;
    let mut left_out = 0;
    macro_rules! keep_on_host {
        ($($table:ident [$dur:expr]),*) => {
            $( let flags = kept.on_host(&$table.track, &$table.start_ns, $dur);
               left_out += $table.keep_rows(&flags); )*
        };
    }
    let mut memory_flags = kept.on_host(&memory.track, &memory.start_ns, None);
    for (flag, device) in memory_flags.iter_mut().zip(memory.device_id.iter()) {
        *flag &= kept.is_on(device.filter(|&device| device >= 0), true);
    }
    left_out += memory.keep_rows(&memory_flags) + counters.keep_rows(&samples);
    keep_on_host!(
        ops[Some(&ops.dur_ns)],
        python[Some(&python.dur_ns)],
        ranges[Some(&ranges.dur_ns)],
        instants[None],
        flows[None],
        spans[Some(&spans.dur_ns)]
    );
    let Tables { launches, gpu_ops: works, syncs: waits, gpu_annotations, .. } = &mut trace.tables;
    left_out += launches.keep_rows(&calls) + works.keep_rows(&gpu_ops);
    left_out += waits.keep_rows(&syncs) + gpu_annotations.keep_rows(&annotations);
    // Nobody can say whether what has no time is in what was asked for.
    left_out += std::mem::take(&mut trace.tables.untimed_gpu_ops).len();
    left_out += std::mem::take(&mut trace.tables.untimed_events).len();
    keep_details(&mut trace.tables);
    trace.stats.note_many(Code::Filtered, left_out as u64, None);
    Ok(())
}

/// Leaves out what says more of events that are gone.
fn keep_details(tables: &mut Tables) {
    let mut is_there = vec![false; tables.next_row() as usize];
    tables.mark_rows(&mut |row: u32| is_there[row as usize] = true);
    let stays = |row: &u32| is_there.get(*row as usize) == Some(&true);
    let flags: Vec<bool> = tables.extra_args.row.values().iter().map(stays).collect();
    tables.extra_args.keep_rows(&flags);
    let flags: Vec<bool> = tables.collectives.row.values().iter().map(stays).collect();
    tables.collectives.keep_rows(&flags);
}

/// An NVTX range that events must lie in.
#[derive(Clone, Copy)]
struct Range {
    from: i64,
    to: i64,
    /// The thread that pushed it.
    track: u32,
    /// Whether it concerns all threads of the process: it was started, not pushed.
    of_process: bool,
}

/// The launch of each piece of GPU work and of each synchronisation, and the process that it ran for.
#[derive(Default)]
struct Work {
    launches: Vec<u32>,
    pids: Vec<Option<i64>>,
    sync_launches: Vec<u32>,
    /// The processes whose ids may collide.
    processes: Option<Processes>,
    /// The process that made all calls, if one did.
    only: Option<i64>,
}

impl Work {
    fn find(tables: &Tables, tracks: &TrackTable) -> Self {
        let Tables { launches, gpu_ops, syncs, .. } = tables;
        let processes = Processes::find(tables, tracks);
        let keys = processes.as_ref().map(|processes| processes.launch_keys(launches));
        let ids = keys.as_ref().unwrap_or(&launches.correlation);
        let correlations = Correlations::new(launches, ids, processes.as_ref(), &mut Stats::default());
        let pid_of = |track: u32| tracks.key(track).0.int();
        let callers: BTreeSet<_> = launches.track.values().iter().map(|&track| pid_of(track)).collect();
        let only = if callers.len() == 1 { callers.first().copied().flatten() } else { None };
        let mut work = Self { only, ..Self::default() };
        for (index, &start) in gpu_ops.start_ns.values().iter().enumerate() {
            let pid = of_work(processes.as_ref(), gpu_ops.pid.get(index), gpu_ops.device.get(index));
            let launch = correlations.launch(gpu_ops.correlation.get(index), pid, start);
            work.launches.push(launch.unwrap_or(NONE));
            let caller = launch.and_then(|launch| pid_of(launches.track.values()[launch as usize]));
            work.pids.push(gpu_ops.pid.get(index).or(caller).or(pid).or(only));
        }
        for (index, &start) in syncs.start_ns.values().iter().enumerate() {
            let pid = of_work(processes.as_ref(), syncs.pid.get(index), syncs.device.get(index));
            let launch = correlations.launch(syncs.correlation.get(index), pid, start);
            work.sync_launches.push(launch.unwrap_or(NONE));
        }
        drop(correlations);
        Self { processes, ..work }
    }

    fn launch(launches: &[u32], index: usize) -> u32 {
        launches.get(index).copied().unwrap_or(NONE)
    }

    /// The process of what names a GPU alone.
    fn pid_of_device(&self, device: Option<i32>) -> Option<i64> {
        of_work(self.processes.as_ref(), None, device).or(self.only)
    }
}

/// What the filter keeps.
struct Kept<'a> {
    filter: &'a Filter,
    range: Option<Range>,
    tracks: &'a TrackTable,
}

impl Kept<'_> {
    fn pid(&self, track: u32) -> Option<i64> {
        self.tracks.key(track).0.int()
    }

    /// Whether an event lies in the time asked for, or reaches into it.
    fn is_in_time(&self, start: i64, dur: Option<i64>) -> bool {
        let end = start.saturating_add(dur.unwrap_or(0).max(0));
        let (from, to) = self.filter.time;
        from.is_none_or(|from| end >= from) && to.is_none_or(|to| start <= to)
    }

    fn is_of(&self, pid: Option<i64>) -> bool {
        let pids = &self.filter.processes;
        pids.is_empty() || pid.map_or(self.filter.of_no_process, |pid| pids.contains(&pid))
    }

    /// Whether a GPU is asked for; of what names none, `otherwise`.
    fn is_on(&self, device: Option<i32>, otherwise: bool) -> bool {
        let devices = &self.filter.devices;
        devices.is_empty() || device.map_or(otherwise, |device| devices.contains(&device))
    }

    /// Whether an event of a thread lies in the NVTX range asked for, or reaches into it.
    fn is_in_range(&self, track: u32, start: i64, dur: Option<i64>) -> bool {
        let Some(range) = self.range else { return true };
        let end = start.saturating_add(dur.unwrap_or(0).max(0));
        let is_its = track == range.track || range.of_process && self.pid(track) == self.pid(range.track);
        is_its && start <= range.to && end >= range.from
    }

    fn on_host(&self, tracks: &Column<u32>, starts: &Column<i64>, durs: Option<&Column<i64>>) -> Vec<bool> {
        let extents = tracks.values().iter().zip(starts.values()).enumerate();
        let stays = |(index, (&track, &start)): (usize, (&u32, &i64))| {
            let dur = durs.and_then(|durs| durs.get(index));
            self.is_in_time(start, dur) && self.is_of(self.pid(track)) && self.is_in_range(track, start, dur)
        };
        extents.map(stays).collect()
    }

    /// The counters that stay; samples of a GPU where work that stays ran on it.
    fn counters(&self, tables: &Tables, stays: &[bool]) -> Vec<bool> {
        let Tables { counters, gpu_ops, .. } = tables;
        let mut flags = self.on_host(&counters.track, &counters.start_ns, Some(&counters.dur_ns));
        // From the start of the first to the end of the last work of each GPU.
        let mut used: BTreeMap<i32, (i64, i64)> = BTreeMap::new();
        for (index, device) in gpu_ops.device.iter().enumerate().filter(|&(index, _)| stays[index]) {
            let (Some(device), start) = (device, gpu_ops.start_ns.values()[index]) else { continue };
            let end = start.saturating_add(gpu_ops.dur_ns.get(index).unwrap_or(0).max(0));
            let (first, last) = used.entry(device).or_insert((start, end));
            (*first, *last) = (start.min(*first), end.max(*last));
        }
        let samples = counters.device.iter().zip(counters.start_ns.values());
        for (flag, (device, &at)) in flags.iter_mut().zip(samples) {
            let Some(device) = device else { continue };
            let is_its = self.is_of(None) || used.contains_key(&device);
            let is_at_work = || used.get(&device).is_some_and(|&(first, last)| (first..=last).contains(&at));
            *flag = self.is_in_time(at, None)
                && self.is_on(Some(device), true)
                && is_its
                && (self.range.is_none() || is_at_work());
        }
        flags
    }

    /// The calls that stay; one whose work all ran on other GPUs goes with it.
    fn calls(&self, tables: &Tables, work: &Work) -> Vec<bool> {
        let Tables { launches, gpu_ops, .. } = tables;
        let mut flags = self.on_host(&launches.track, &launches.start_ns, Some(&launches.dur_ns));
        if self.filter.devices.is_empty() {
            return flags;
        }
        let (mut elsewhere, mut here) = (vec![false; launches.len()], vec![false; launches.len()]);
        for (index, &launch) in work.launches.iter().enumerate().filter(|&(_, &launch)| launch != NONE) {
            let is_here = self.is_on(gpu_ops.device.get(index), true);
            (if is_here { &mut here } else { &mut elsewhere })[launch as usize] = true;
        }
        for (flag, (elsewhere, here)) in flags.iter_mut().zip(elsewhere.into_iter().zip(here)) {
            *flag &= here || !elsewhere;
        }
        flags
    }

    /// Whether work of a call stays, as far as the NVTX range says.
    fn is_launched_in_range(&self, tables: &Tables, launch: u32) -> bool {
        if self.range.is_none() {
            return true;
        }
        let (at, launches) = (launch as usize, &tables.launches);
        launch != NONE
            && self.is_in_range(
                launches.track.values()[at],
                launches.start_ns.values()[at],
                launches.dur_ns.get(at),
            )
    }

    fn gpu_ops(&self, tables: &Tables, work: &Work) -> Vec<bool> {
        let gpu_ops = &tables.gpu_ops;
        let stays = |(index, &start): (usize, &i64)| {
            self.is_in_time(start, gpu_ops.dur_ns.get(index))
                && self.is_of(work.pids.get(index).copied().flatten())
                && self.is_on(gpu_ops.device.get(index), false)
                && self.is_launched_in_range(tables, Work::launch(&work.launches, index))
        };
        gpu_ops.start_ns.values().iter().enumerate().map(stays).collect()
    }

    fn syncs(&self, tables: &Tables, work: &Work) -> Vec<bool> {
        let syncs = &tables.syncs;
        let stays = |(index, &start): (usize, &i64)| {
            let launch = Work::launch(&work.sync_launches, index);
            let caller =
                tables.launches.track.values().get(launch as usize).and_then(|&track| self.pid(track));
            let pid = syncs.pid.get(index).or(caller).or_else(|| work.pid_of_device(syncs.device.get(index)));
            self.is_in_time(start, syncs.dur_ns.get(index))
                && self.is_of(pid)
                && self.is_on(syncs.device.get(index), true)
                && self.is_launched_in_range(tables, launch)
        };
        syncs.start_ns.values().iter().enumerate().map(stays).collect()
    }

    /// Annotations on GPUs; of an NVTX range those that repeat an annotation of the host in it.
    fn annotations(&self, tables: &Tables, work: &Work) -> Vec<bool> {
        let Tables { gpu_annotations, ops, .. } = tables;
        let in_range = self.range.map(|_| {
            let flags = self.on_host(&ops.track, &ops.start_ns, Some(&ops.dur_ns));
            let ids = ops.external_id.iter().zip(flags).filter(|(_, stays)| *stays);
            ids.filter_map(|(id, _)| id).collect::<BTreeSet<i64>>()
        });
        let stays = |(index, &start): (usize, &i64)| {
            let device = gpu_annotations.device.get(index);
            let id = gpu_annotations.external_id.get(index);
            self.is_in_time(start, gpu_annotations.dur_ns.get(index))
                && self.is_of(work.pid_of_device(device))
                && self.is_on(device, false)
                && in_range.as_ref().is_none_or(|ids| id.is_some_and(|id| ids.contains(&id)))
        };
        gpu_annotations.start_ns.values().iter().enumerate().map(stays).collect()
    }
}

/// The parts of a text such as `range@domain/2`.
struct Wanted {
    text: String,
    domain: Option<String>,
    index: usize,
}

impl Wanted {
    /// Takes a text apart. A backslash in front of `@` and `/` takes their meaning away; a `/` without a number behind
    /// it has none.
    fn parse(text: &str) -> Self {
        let (text, index) = match split_last(text, '/') {
            Some((front, digits))
                if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) =>
            {
                (front, digits.parse().unwrap_or(usize::MAX))
            }
            _ => (text, 0),
        };
        let (text, domain) = match split_last(text, '@') {
            Some((front, domain)) if !front.is_empty() => (front, Some(plain(domain))),
            _ => (text, None),
        };
        Self { text: plain(text), domain: domain.filter(|domain| domain != "default"), index }
    }
}

/// Both sides of the last `separator` that no backslash stands before.
fn split_last(text: &str, separator: char) -> Option<(&str, &str)> {
    let is_bare = |&(at, _): &(usize, &str)| !text[..at].ends_with('\\');
    let (at, found) = text.rmatch_indices(separator).find(is_bare)?;
    Some((&text[..at], &text[at + found.len()..]))
}

fn plain(text: &str) -> String {
    text.replace("\\@", "@").replace("\\/", "/")
}

/// The range that a text names: of several the one that starts as the `index`-th.
fn find_range(trace: &Trace, text: &str) -> Result<Range> {
    let wanted = Wanted::parse(text);
    let Trace { tables: Tables { ranges, ops, .. }, symbols, .. } = trace;
    let parts = nvtx_text::parse(wanted.text.as_bytes());
    let name = std::str::from_utf8(parts.name).ok().and_then(|name| symbols.find(name));
    let sizes = parts.sizes.and_then(|sizes| std::str::from_utf8(sizes).ok());
    let named = |index: &usize| {
        name.is_some()
            && ranges.name.get(*index) == name
            && (parts.op_id.is_none() || ranges.op_id.get(*index) == parts.op_id)
            && (parts.sequence.is_none() || ranges.sequence.get(*index) == parts.sequence)
            && (sizes.is_none() || ranges.sizes.get(*index).map(|found| symbols.text(found)) == sizes)
            && ranges.dur_ns.get(*index).is_some()
    };
    let domain_of = |index: usize| ranges.domain.get(index).map(|domain| symbols.text(domain));
    let mut domains = BTreeSet::new();
    let mut found = Vec::new();
    for index in (0..ranges.len()).filter(named) {
        if domain_of(index) != wanted.domain.as_deref() {
            domains.insert(domain_of(index).unwrap_or("default"));
            continue;
        }
        let of_process = Some(ranges.kind.values()[index]) == symbols.find("start_end");
        let from = ranges.start_ns.values()[index];
        let to = from.saturating_add(ranges.dur_ns.get(index).unwrap_or(0));
        found.push(Range { from, to, track: ranges.track.values()[index], of_process });
    }
    let names = Names::new(symbols);
    let is_one = |index: &usize| {
        let at = *index as u32;
        name.is_some()
            && wanted.domain.is_none()
            && ops.name.get(*index) == name
            && (names.is(&ops.category, at, Class::ANNOTATION_CATEGORY)
                || names.is(&ops.name, at, Class::STEP))
    };
    for index in (0..ops.len()).filter(is_one) {
        let from = ops.start_ns.values()[index];
        let to = from.saturating_add(ops.dur_ns.get(index).unwrap_or(0));
        found.push(Range { from, to, track: ops.track.values()[index], of_process: false });
    }
    found.sort_by_key(|range| (range.from, range.to));
    found.get(wanted.index).copied().ok_or_else(|| {
        let known = domains.into_iter().collect::<Vec<_>>().join(", ");
        let message = match (found.len(), known.as_str()) {
            (0, "") => format!("no NVTX range or annotation has the name {text:?}"),
            (0, known) => {
                format!("the ranges with the name {text:?} are in the domains {known}: write RANGE@DOMAIN")
            }
            (count, _) => {
                format!("there are {count} ranges with the name {:?}, numbered from 0", wanted.text)
            }
        };
        Error::new(ErrorKind::InvalidArgument, message)
    })
}

#[cfg(test)]
mod tests {
    use super::Wanted;

    #[test]
    fn texts_of_ranges_are_taken_apart() {
        let parts = |text| {
            let Wanted { text, domain, index } = Wanted::parse(text);
            (text, domain.unwrap_or_default(), index)
        };
        let whole = |text: &str| (text.to_owned(), String::new(), 0);
        assert_eq!(parts("step"), whole("step"));
        assert_eq!(parts("step/2"), ("step".to_owned(), String::new(), 2));
        assert_eq!(parts("all reduce@NCCL/1"), ("all reduce".to_owned(), "NCCL".to_owned(), 1));
        assert_eq!(parts("step@default"), whole("step"));
        assert_eq!(parts("model/layer"), whole("model/layer"));
        assert_eq!(parts(r"user\@host\/2"), whole("user@host/2"));
        assert_eq!(parts("@x"), whole("@x"));
    }
}
