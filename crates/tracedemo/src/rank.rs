//! One rank of the job: its process and timeline, its steps in order, and the file that takes them.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;

use crate::gpu::GPUS;
use crate::job::{Faults, Rng, Schedule};
use crate::json::{FIRST_PYTHON_ID, PYTHON_ROOT};
use crate::library::Process;
use crate::model::BuiltModel;
use crate::options::DemoOptions;
use crate::timeline::{Records, Start, Timeline, Variation};
use crate::truth::Truth;

/// From the job's start to the first step of the job's schedule.
const FIRST_STEP_AFTER_NS: i64 = 700_000;
/// Number of the first step that is profiled.
pub(crate) const FIRST_STEP: u64 = 10;

/// The process of a rank.
pub(crate) fn process(options: &DemoOptions) -> Process {
    let mut rng = Rng::new(options.seed, 0x9d);
    // Workers of a host are started one after the other.
    let pid = 20_000 + rng.below(30_000) as i64 + i64::from(options.rank % GPUS) * 71;
    Process { pid, device: i64::from(options.rank % GPUS), rank: options.rank }
}

/// The timeline of a rank in a job that begins at `job_start_ns`.
pub(crate) fn timeline<'m>(options: &DemoOptions, model: &'m BuiltModel, job_start_ns: i64) -> Timeline<'m> {
    let start = start(options, model, job_start_ns);
    Timeline::new(&model.library, variation(options), schedule(options, model, job_start_ns), start)
}

/// The speed, delays and faults of a rank.
fn variation(options: &DemoOptions) -> Variation {
    let DemoOptions { seed, rank, .. } = *options;
    let faults = Faults::of(seed, options.ranks);
    let slower = Rng::new(seed, 0x510 + u64::from(rank)).below(24) as i64
        + faults.map_or(0, |faults| faults.slower(rank));
    let link_factor = faults.map_or(1, |faults| faults.link_factor(rank));
    Variation { seed, rank, slower, is_late: true, link_factor, faults }
}

fn start(options: &DemoOptions, model: &BuiltModel, job_start_ns: i64) -> Start {
    let mut rng = Rng::new(options.seed, 0x57a7 + u64::from(options.rank));
    Start {
        now_ns: job_start_ns + rng.below(150_000) as i64,
        allocated: [0, model.allocated_bytes],
        reserved: model.reserved_bytes,
        python_id: FIRST_PYTHON_ID,
        python_root: PYTHON_ROOT,
    }
}

/// Learns the job's schedule from ranks that no other disturbs; none for a single rank.
///
/// Of a job with faults these are one whose GPU is slow, and one whose links are: what they reach last, the
/// job reaches last.
fn schedule(options: &DemoOptions, model: &BuiltModel, job_start_ns: i64) -> Option<Schedule> {
    if options.ranks == 1 {
        return None;
    }
    let faults = Faults::of(options.seed, options.ranks);
    let slow = [(Faults::SLOWER, 1), (0, Faults::LINK_FACTOR)];
    let played: &[(i64, i64)] = if faults.is_some() { &slow } else { &[(0, 1)] };
    let mut ends_ns = Vec::new();
    let mut period_ns = 0;
    for &(slower, link_factor) in played {
        let (seed, slower) = (options.seed, 12 + slower);
        let rank = Variation { seed, rank: u32::MAX, slower, is_late: false, link_factor, faults };
        let start = Start { now_ns: 0, ..start(options, model, job_start_ns) };
        let mut timeline = Timeline::new(&model.library, rank, None, start);
        timeline.play(&model.prologue, FIRST_STEP);
        for step in FIRST_STEP..FIRST_STEP + 4 {
            let start_ns = timeline.now_ns();
            timeline.play(model.plan(step), step);
            period_ns = period_ns.max(timeline.now_ns() - start_ns);
            ends_ns.resize(timeline.collective_ends_ns().len(), 0);
            for (latest, &end_ns) in ends_ns.iter_mut().zip(timeline.collective_ends_ns()) {
                *latest = (end_ns - start_ns).max(*latest);
            }
        }
    }
    let first_step_ns = job_start_ns + FIRST_STEP_AFTER_NS;
    Some(Schedule::new(options.seed, options.ranks, faults, first_step_ns, period_ns, &ends_ns))
}

/// Plays the steps, and what comes before the first and after the last; `write` takes the records of each
/// and returns the bytes so far.
///
/// Ends after `options.steps`, or with the step in which `size_bytes` are reached. `progress` is called with
/// the bytes after each step; false stops.
pub(crate) fn play_steps(
    options: &DemoOptions,
    size_bytes: u64,
    model: &BuiltModel,
    timeline: &mut Timeline<'_>,
    progress: &mut dyn FnMut(u64) -> bool,
    mut write: impl FnMut(&Records) -> io::Result<u64>,
) -> io::Result<()> {
    for &work in &model.leftovers {
        timeline.leftover(work);
    }
    timeline.play(&model.prologue, FIRST_STEP);
    for step in FIRST_STEP.. {
        timeline.play(model.plan(step), step);
        let written = write(&timeline.take_records())?;
        timeline.ledger.settle(timeline.now_ns());
        if !progress(written) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "stopped by the caller"));
        }
        if options.steps.map_or(written >= size_bytes, |wanted| step + 1 - FIRST_STEP >= wanted) {
            break;
        }
    }
    timeline.play(&model.epilogue, FIRST_STEP);
    write(&timeline.take_records())?;
    Ok(())
}

/// Ends the timeline of a rank and returns what is true of it.
pub(crate) fn finish(options: &DemoOptions, model: &BuiltModel, timeline: Timeline<'_>) -> Truth {
    Truth {
        seed: options.seed,
        rank: options.rank,
        ranks: options.ranks,
        layers: options.layer_count(),
        ..timeline.ledger.into_truth(&model.library.names)
    }
}

/// Refuses options that make no trace.
pub(crate) fn check(options: &DemoOptions) -> io::Result<()> {
    options.check().map_err(|message| io::Error::new(io::ErrorKind::InvalidInput, message))
}

/// Lets `write` make a file under a name that ends in `.tmp` and gives it its own when it is complete.
pub(crate) fn write_complete<T>(path: &Path, write: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let mut partial = OsString::from(path);
    partial.push(".tmp");
    let partial = Path::new(&partial);
    if partial.exists() {
        fs::remove_file(partial)?;
    }
    let written = write(partial).and_then(|written| fs::rename(partial, path).map(|()| written));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(partial);
    }
    written
}
