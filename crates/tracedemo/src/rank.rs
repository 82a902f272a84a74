//! One rank of the job: its process and timeline, its steps in order, and the file that takes them.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;

use crate::gpu::GPUS;
use crate::job::{Faults, Job, Rng, Schedule};
use crate::library::Process;
use crate::model::BuiltModel;
use crate::options::DemoOptions;
use crate::timeline::{Timeline, Variation};
use crate::truth::Truth;

/// From the job's start to the first step of the job's schedule.
const FIRST_STEP_AFTER_NS: i64 = 700_000;
/// Number of the first step that is profiled.
pub(crate) const FIRST_STEP: u64 = 10;

/// The process of a rank.
pub(crate) fn process(options: &DemoOptions) -> Process {
    let DemoOptions { seed, rank, ranks, .. } = *options;
    let device = i64::from(rank % GPUS);
    // Workers of a host are started one after the other.
    let pid = 20_000 + Rng::new(seed, 0x9d).below(30_000) as i64 + device * 71;
    Process { pid, device, rank, ranks }
}

/// The timeline of a rank in a job that begins at `job_start_ns`.
pub(crate) fn timeline<'m>(options: &DemoOptions, model: &'m BuiltModel, job_start_ns: i64) -> Timeline<'m> {
    let DemoOptions { seed, rank, ranks, .. } = *options;
    let job = Job::of(options);
    let slower = Rng::new(seed, 0x510 + u64::from(rank)).below(24) as i64 + job.slower(rank);
    let variation = Variation { job, rank, slower, is_late: true, link_factor: job.link_factor(rank) };
    // With a cause, the ranks meet when they really would: see `Cohort`.
    let has_schedule = ranks > 1 && options.cause.is_none();
    let schedule = has_schedule.then(|| schedule(job, model, job_start_ns + FIRST_STEP_AFTER_NS));
    let delay_ns = Rng::new(seed, 0x57a7 + u64::from(rank)).below(150_000) as i64;
    Timeline::new(model, variation, schedule, (job_start_ns, delay_ns))
}

/// Learns the job's schedule from ranks that no other disturbs.
///
/// Of a job with faults these are one whose GPU is slow, and one whose links are: what they reach last, the
/// job reaches last.
fn schedule(job: Job, model: &BuiltModel, first_step_ns: i64) -> Schedule {
    let slow_rank = |faults: Faults| faults.slow_rank.map_or(0, |_| Faults::SLOWER);
    let slow_host = |faults: Faults| faults.slow_host.map_or(1, |_| Faults::LINK_FACTOR);
    let played = [(job.faults.map_or(0, slow_rank), 1), (0, job.faults.map_or(1, slow_host))];
    let mut ends_ns = Vec::new();
    let mut period_ns = 0;
    for (slower, link_factor) in played {
        let rank = Variation { job, rank: u32::MAX, slower: 12 + slower, is_late: false, link_factor };
        let mut timeline = Timeline::new(model, rank, None, (0, 0));
        timeline.play(&model.prologue, FIRST_STEP);
        for step in FIRST_STEP..FIRST_STEP + 4 {
            let start_ns = timeline.now_ns();
            timeline.play(model.plan(step), step);
            period_ns = period_ns.max(timeline.now_ns() - start_ns);
            ends_ns.resize(timeline.collective_ends_ns.len(), 0);
            for (latest, &end_ns) in ends_ns.iter_mut().zip(&timeline.collective_ends_ns) {
                *latest = (end_ns - start_ns).max(*latest);
            }
        }
    }
    Schedule::new(job, first_step_ns, period_ns, &ends_ns)
}

/// Plays what comes before the first step.
pub(crate) fn begin(timeline: &mut Timeline<'_>) {
    let model = timeline.model;
    model.leftovers.iter().for_each(|&work| timeline.leftover(work));
    timeline.play(&model.prologue, FIRST_STEP);
}

/// Ends the timeline of a rank and returns what is true of it.
pub(crate) fn finish(options: &DemoOptions, timeline: Timeline<'_>) -> Truth {
    Truth {
        seed: options.seed,
        rank: options.rank,
        ranks: options.ranks,
        layers: options.layer_count(),
        ..timeline.ledger.into_truth(&timeline.model.library.names())
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
