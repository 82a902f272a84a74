//! Writes the trace of one rank, step by step.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::facts::Facts;
use crate::library::{Library, Process};
use crate::model::{BuiltModel, Config, build};
use crate::options::DemoOptions;
use crate::rng::Rng;
use crate::schedule::Schedule;
use crate::sink::Sink;
use crate::surroundings::{FIRST_PYTHON_ID, GPUS, PYTHON_ROOT, closing, frame, metadata, roots};
use crate::timeline::{Start, Timeline, Variation};
use crate::truth::Truth;

/// Kineto counts from multiples of this many seconds, about three months.
const BASE_TIME_NS: i64 = 224 * 7_889_238 * 1_000_000_000;
/// When the job begins, after the base time: 20 March 2026.
const JOB_START_NS: i64 = 6_829_345_678_901_207;
/// From the job's start to the first step of the job's schedule.
const FIRST_STEP_AFTER_NS: i64 = 700_000;
/// Time that the profiler takes to stop.
const STOP_NS: i64 = 84_000;
/// Number of the first step that is profiled.
pub(crate) const FIRST_STEP: u64 = 10;
/// Writes the trace of `options.rank`; see [`write_trace_with_progress`].
///
/// # Errors
/// As there.
pub fn write_trace(options: &DemoOptions, out: &mut impl Write) -> io::Result<Truth> {
    write_trace_with_progress(options, out, &mut |_| true)
}

/// Writes the trace of `options.rank` to `out` and returns what is true of it.
///
/// `progress` is told the bytes of JSON so far after each step; false stops.
///
/// # Errors
/// `InvalidInput` for options that [`DemoOptions::check`] refuses, `Interrupted` when `progress` stops,
/// and what `out` reports.
pub fn write_trace_with_progress(
    options: &DemoOptions,
    out: &mut impl Write,
    progress: &mut dyn FnMut(u64) -> bool,
) -> io::Result<Truth> {
    options.check().map_err(|message| io::Error::new(io::ErrorKind::InvalidInput, message))?;
    if options.gzip {
        let mut out = GzEncoder::new(out, Compression::new(6));
        let truth = write_json(options, &mut out, progress)?;
        out.finish()?;
        Ok(truth)
    } else {
        write_json(options, out, progress)
    }
}

fn write_json(
    options: &DemoOptions,
    out: &mut impl Write,
    progress: &mut dyn FnMut(u64) -> bool,
) -> io::Result<Truth> {
    let process = process(options);
    let config = Config::new(options.layer_count(), options.ranks);
    let model = build(config, Library::new(options.layout, process));
    let facts = Facts::of(options.seed, options.ranks);
    let job_start_ns = JOB_START_NS + facts.map_or(0, |facts| facts.clock_offset_ns(options.rank));
    let schedule = schedule(options, &model, job_start_ns);
    let start = start(options, &model, job_start_ns);
    let mut timeline = Timeline::new(&model.library, variation(options), schedule, start);
    let start_ns = timeline.now_ns();
    let mut sink = Sink::new(out, options.layout);
    let frame = frame(options, BASE_TIME_NS);
    sink.text(&options.layout.header(&frame));
    if options.layout.metadata_first() {
        metadata(&mut sink, &mut timeline, process, start_ns);
    }
    write_steps(options, &model, &mut timeline, &mut sink, progress)?;
    let window = (start_ns, timeline.now_ns() + STOP_NS);
    roots(&mut sink, &mut timeline, process, window);
    if !options.layout.metadata_first() {
        metadata(&mut sink, &mut timeline, process, start_ns);
    }
    closing(&mut sink, &mut timeline, window);
    sink.text(&options.layout.footer(&frame));
    sink.finish()?;
    let mut truth = timeline.finish().into_truth(&model.library.names);
    truth.seed = options.seed;
    truth.rank = options.rank;
    truth.ranks = options.ranks;
    truth.layers = config.layers;
    truth.layout = options.layout.name();
    truth.json_bytes = sink.written();
    truth.tables.insert("devices", u64::from(GPUS));
    truth.tables.insert("process_groups", u64::from(options.ranks > 1) + u64::from(facts.is_some()));
    Ok(truth)
}

/// Plays and writes the steps, and what comes before the first and after the last.
fn write_steps<W: Write>(
    options: &DemoOptions,
    model: &BuiltModel,
    timeline: &mut Timeline<'_>,
    sink: &mut Sink<'_, W>,
    progress: &mut dyn FnMut(u64) -> bool,
) -> io::Result<()> {
    for &work in &model.leftovers {
        timeline.leftover(work);
    }
    timeline.play(&model.prologue, FIRST_STEP);
    let mut steps = 0;
    let mut is_enough = false;
    while !is_enough {
        let step = FIRST_STEP + steps;
        timeline.play(model.plan(step), step);
        sink.records(&model.library, &timeline.take_records());
        timeline.ledger.settle(timeline.now_ns());
        sink.flush()?;
        if !progress(sink.written()) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "stopped by the caller"));
        }
        steps += 1;
        is_enough = match options.steps {
            Some(wanted) => steps >= wanted,
            None => sink.written() >= options.size_bytes,
        };
    }
    timeline.play(&model.epilogue, FIRST_STEP);
    sink.records(&model.library, &timeline.take_records());
    Ok(())
}

/// The process of a rank.
pub(crate) fn process(options: &DemoOptions) -> Process {
    let mut rng = Rng::new(options.seed, 0x9d);
    // Workers of a host are started one after the other.
    let pid = 20_000 + rng.below(30_000) as i64 + i64::from(options.rank % GPUS) * 71;
    Process { pid, device: i64::from(options.rank % GPUS), rank: options.rank }
}

/// What tells a rank from the others.
pub(crate) fn variation(options: &DemoOptions) -> Variation {
    let DemoOptions { seed, rank, .. } = *options;
    let facts = Facts::of(seed, options.ranks);
    let slower = Rng::new(seed, 0x510 + u64::from(rank)).below(24) as i64
        + facts.map_or(0, |facts| facts.slower(rank));
    let link_factor = facts.map_or(1, |facts| facts.link_factor(rank));
    Variation { seed, rank, slower, is_late: true, link_factor, facts }
}

/// Where a rank's timeline begins in a job that begins at `job_start_ns`.
pub(crate) fn start(options: &DemoOptions, model: &BuiltModel, job_start_ns: i64) -> Start {
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
pub(crate) fn schedule(options: &DemoOptions, model: &BuiltModel, job_start_ns: i64) -> Option<Schedule> {
    if options.ranks == 1 {
        return None;
    }
    let facts = Facts::of(options.seed, options.ranks);
    let slow = [(Facts::SLOWER, 1), (0, Facts::LINK_FACTOR)];
    let faults: &[(i64, i64)] = if facts.is_some() { &slow } else { &[(0, 1)] };
    let mut ends_ns = Vec::new();
    let mut period_ns = 0;
    for &(slower, link_factor) in faults {
        let (seed, slower) = (options.seed, 12 + slower);
        let rank = Variation { seed, rank: u32::MAX, slower, is_late: false, link_factor, facts };
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
    Some(Schedule::new(options.seed, options.ranks, facts, first_step_ns, period_ns, &ends_ns))
}
