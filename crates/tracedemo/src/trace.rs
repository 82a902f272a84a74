//! Writes the traces of ranks as JSON.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::cohort::{Cohort, play_steps};
use crate::gpu::GPUS;
use crate::job::Faults;
use crate::json::{Sink, header_keys};
use crate::model::build;
use crate::options::DemoOptions;
use crate::rank::{FIRST_STEP, check, finish, process, timeline, write_complete};
use crate::truth::Truth;

/// Kineto counts from multiples of this many seconds, about three months.
pub(crate) const BASE_TIME_NS: i64 = 224 * 7_889_238 * 1_000_000_000;
/// When the job begins, after the base time: 20 March 2026.
pub(crate) const JOB_START_NS: i64 = 6_829_345_678_901_207;
/// Time that the profiler takes to stop.
const STOP_NS: i64 = 84_000;
/// Name of the file that says what is wrong with the job.
const CLUSTER_TRUTH: &str = "cluster.truth.json";

/// Writes the trace of `options.rank` to `out` and returns what is true of it.
///
/// `progress` is called with the bytes of JSON so far after each step; false stops.
///
/// # Errors
/// `InvalidInput` for options that [`DemoOptions::check`] refuses, `Interrupted` when `progress` stops,
/// and what `out` reports.
pub fn write_trace(
    options: &DemoOptions,
    out: &mut impl Write,
    progress: &mut dyn FnMut(u64) -> bool,
) -> io::Result<Truth> {
    check(options)?;
    let model = build(options.layer_count(), process(options), options.cause);
    write_rank(options, out, Cohort::of(options, &model).as_mut(), progress)
}

/// Writes the trace of a rank of a job whose ranks meet as those of `cohort` do.
fn write_rank(
    options: &DemoOptions,
    out: &mut impl Write,
    cohort: Option<&mut Cohort<'_>>,
    progress: &mut dyn FnMut(u64) -> bool,
) -> io::Result<Truth> {
    if options.gzip {
        let mut out = GzEncoder::new(out, Compression::new(6));
        let truth = write_json(options, &mut out, cohort, progress)?;
        out.finish()?;
        Ok(truth)
    } else {
        write_json(options, out, cohort, progress)
    }
}

fn write_json(
    options: &DemoOptions,
    out: &mut impl Write,
    cohort: Option<&mut Cohort<'_>>,
    progress: &mut dyn FnMut(u64) -> bool,
) -> io::Result<Truth> {
    let process = process(options);
    let model = build(options.layer_count(), process, options.cause);
    let faults = Faults::of(options.seed, options.ranks, options.cause);
    let job_start_ns = JOB_START_NS + faults.map_or(0, |faults| faults.clock_offset_ns(options.rank));
    let mut timeline = timeline(options, &model, job_start_ns);
    let start_ns = timeline.now_ns();
    let layout = options.layout;
    let mut sink = Sink::new(out, layout, &model.library);
    sink.text(&layout.header(&header_keys(options, BASE_TIME_NS)));
    if layout.metadata_first() {
        sink.metadata(process, start_ns);
    }
    play_steps(options, options.size_bytes, &mut timeline, cohort, progress, |records| {
        sink.records(records)
    })?;
    let window = (start_ns, timeline.now_ns() + STOP_NS);
    sink.roots(process, window);
    if !layout.metadata_first() {
        sink.metadata(process, start_ns);
    }
    sink.closing(window);
    sink.text(&layout.footer(&format!("rank{}.pt.trace.json", options.rank)));
    let mut truth = Truth { layout: layout.name(), ..finish(options, timeline) };
    sink.finish(&mut truth)?;
    truth.tables.insert("devices", u64::from(GPUS));
    truth.tables.insert("process_groups", u64::from(options.ranks > 1) + u64::from(options.ranks >= GPUS));
    Ok(truth)
}

/// What [`write_files`] wrote for a rank.
///
/// Of the truth only what is needed to go on: a thousand truths would fill the memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankFile {
    /// The trace.
    pub trace: PathBuf,
    /// Its truth as JSON, if asked for.
    pub truth_path: Option<PathBuf>,
    /// Bytes of its JSON, before compression.
    pub json_bytes: u64,
    /// Its steps.
    pub steps: u64,
}

/// Writes the trace of every rank into the folder `dir`, which is made if it is missing.
///
/// The files are `rank{N}.pt.trace.json`, with `.gz` after it for gzip; `with_truth` adds
/// `rank{N}.truth.json` to each. With eight ranks or more, or a cause, `cluster.truth.json` says what is
/// wrong with the job: see [`Faults`]. `options.rank` is not used. `options.size_bytes` is the size of
/// each file; all ranks have as many steps as rank 0 needs to reach it. Each file is written under a
/// name that ends in `.tmp` and takes its own when it is complete.
///
/// `progress` is called with the bytes of JSON so far, over all ranks; false stops.
///
/// # Errors
/// As [`write_trace`]; the file under way is removed, those before it are kept.
pub fn write_files(
    dir: &Path,
    options: &DemoOptions,
    with_truth: bool,
    progress: &mut dyn FnMut(u64) -> bool,
) -> io::Result<Vec<RankFile>> {
    fs::create_dir_all(dir)?;
    let mut files: Vec<RankFile> = Vec::new();
    let mut before = 0;
    check(&DemoOptions { rank: 0, ..options.clone() })?;
    let model = build(options.layer_count(), process(options), options.cause);
    let mut cohort = Cohort::of(options, &model);
    for rank in 0..options.ranks {
        let steps = options.steps.or(files.first().map(|file| file.steps));
        let options = DemoOptions { rank, steps, layers: Some(options.layer_count()), ..options.clone() };
        let suffix = if options.gzip { ".gz" } else { "" };
        let trace = dir.join(format!("rank{rank}.pt.trace.json{suffix}"));
        let truth = write_complete(&trace, |path| {
            let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
            let report = &mut |bytes| progress(before + bytes);
            let truth = write_rank(&options, &mut file, cohort.as_mut(), report)?;
            file.flush()?;
            Ok(truth)
        })?;
        before += truth.json_bytes;
        let truth_path = with_truth.then(|| dir.join(format!("rank{rank}.truth.json")));
        if let Some(path) = &truth_path {
            fs::write(path, format!("{:#}\n", truth.to_json()))?;
        }
        let (json_bytes, steps) = (truth.json_bytes, truth.steps.len() as u64);
        files.push(RankFile { trace, truth_path, json_bytes, steps });
    }
    if let Some(faults) = Faults::of(options.seed, options.ranks, options.cause) {
        let steps = files.first().map_or(0, |file| file.steps);
        let truth = faults.to_json(FIRST_STEP, steps);
        fs::write(dir.join(CLUSTER_TRUTH), format!("{truth:#}\n"))?;
    }
    Ok(files)
}
