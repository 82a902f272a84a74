//! Writes a file per rank.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::facts::Facts;
use crate::options::DemoOptions;
use crate::trace::{FIRST_STEP, write_trace_with_progress};
use crate::truth::Truth;

/// Name of the file that says what is wrong with the job.
const CLUSTER_TRUTH: &str = "cluster.truth.json";

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
/// `rank{N}.truth.json` to each. With eight ranks or more `cluster.truth.json` says what is wrong with the
/// job: see [`Facts`]. `options.rank` is not used. `options.size_bytes` is the size of
/// each file; all ranks have as many steps as rank 0 needs to reach it. Each file is written under a
/// name that ends in `.tmp` and takes its own when it is complete.
///
/// `progress` is told the bytes of JSON so far, over all ranks; false stops.
///
/// # Errors
/// As [`write_trace_with_progress`]; the file under way is removed, those before it are kept.
pub fn write_files(
    dir: &Path,
    options: &DemoOptions,
    with_truth: bool,
    progress: &mut dyn FnMut(u64) -> bool,
) -> io::Result<Vec<RankFile>> {
    fs::create_dir_all(dir)?;
    let mut files: Vec<RankFile> = Vec::new();
    let mut before = 0;
    for rank in 0..options.ranks {
        let steps = options.steps.or(files.first().map(|file| file.steps));
        let options = DemoOptions { rank, steps, layers: Some(options.layer_count()), ..options.clone() };
        let suffix = if options.gzip { ".gz" } else { "" };
        let trace = dir.join(format!("rank{rank}.pt.trace.json{suffix}"));
        let truth = write_one(&trace, &options, &mut |bytes| progress(before + bytes))?;
        before += truth.json_bytes;
        let truth_path = with_truth.then(|| dir.join(format!("rank{rank}.truth.json")));
        if let Some(path) = &truth_path {
            fs::write(path, format!("{:#}\n", truth.to_json()))?;
        }
        let (json_bytes, steps) = (truth.json_bytes, truth.steps.len() as u64);
        files.push(RankFile { trace, truth_path, json_bytes, steps });
    }
    if let Some(facts) = Facts::of(options.seed, options.ranks) {
        let steps = files.first().map_or(0, |file| file.steps);
        let truth = facts.to_json(FIRST_STEP, steps);
        fs::write(dir.join(CLUSTER_TRUTH), format!("{truth:#}\n"))?;
    }
    Ok(files)
}

fn write_one(path: &Path, options: &DemoOptions, progress: &mut dyn FnMut(u64) -> bool) -> io::Result<Truth> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".tmp");
    let partial = PathBuf::from(partial);
    let written = File::create(&partial).and_then(|file| {
        let mut file = BufWriter::with_capacity(1 << 20, file);
        let truth = write_trace_with_progress(options, &mut file, progress)?;
        file.flush()?;
        Ok(truth)
    });
    match written {
        Ok(truth) => fs::rename(&partial, path).map(|()| truth),
        Err(error) => {
            // The first error is the one to report.
            let _ = fs::remove_file(&partial);
            Err(error)
        }
    }
}
