//! Traces of a training job on several ranks, with any mix of tensor, pipeline, data, sharded data and expert
//! parallelism, whose truth is known by construction.
//!
//! The model is a transformer in bf16 on H100s. Its pipeline follows 1F1B. Tensor parallelism computes half of a
//! micro-batch while it sums the other one, and gradients of weights while it sums gradients of inputs. FSDP gathers
//! the parameters of the next layer beside the current one. A [`TrainingFault`] makes one thing wrong.

mod builder;
mod kineto;
mod layer;
mod mesh;
mod options;
mod plan;
mod play;
mod sharding;
mod stage;

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::iter;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::ledger::{length, union_within};
use mesh::Dimension;
pub use options::{Parallel, Recompute, TrainingFault, TrainingOptions};
use plan::{Pass, Plan};
use play::{Extent, Job, Rank};

/// Number of the first step that is recorded.
const FIRST_STEP: u64 = 10;
/// Share of the memory that is in use at the peak, if activations are kept for a reason and if not.
const FULL: f64 = 0.75;
const SPARSE: f64 = 0.4;

/// Writes the trace of every rank into `folder`; returns the paths, each with what is true of it as JSON, and what is
/// true of the job.
///
/// `progress` is called with the steps of ranks that are written and to write; false stops.
///
/// # Errors
/// `InvalidInput` for options that [`TrainingOptions::check`] refuses, `Interrupted` when `progress` stops, and what
/// the file system reports.
pub fn write_training(
    folder: &Path,
    options: &TrainingOptions,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> io::Result<(Vec<(PathBuf, Value)>, Value)> {
    options.check().map_err(|message| io::Error::new(io::ErrorKind::InvalidInput, message))?;
    fs::create_dir_all(folder)?;
    let count = options.parallel.ranks().unwrap_or(0);
    let paths: Vec<PathBuf> =
        (0..count).map(|rank| folder.join(format!("rank{rank}.pt.trace.json"))).collect();
    let partial: Vec<PathBuf> = paths.iter().map(|path| path.with_extension("json.tmp")).collect();
    let written = write_all(&partial, options, progress).and_then(|truths| {
        iter::zip(&partial, &paths).try_for_each(|(from, to)| fs::rename(from, to))?;
        Ok(truths)
    });
    if written.is_err() {
        // The first error is the one to report.
        partial.iter().for_each(|path| drop(fs::remove_file(path)));
    }
    let truths = written?;
    Ok((iter::zip(paths, truths).collect(), job_truth(&Job { options })))
}

fn write_all(
    paths: &[PathBuf],
    options: &TrainingOptions,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> io::Result<Vec<Value>> {
    let job = Job { options };
    let slow = job.slow_stage();
    let layers = |stage: u32| options.layers + u32::from(slow == Some(stage));
    let plans: Vec<Plan> =
        (0..options.parallel.pp).map(|stage| stage::build(options, stage, layers(stage))).collect();
    let mut ranks: Vec<Rank<'_>> = iter::zip(0.., paths)
        .map(|(rank, _)| {
            let plan = &plans[options.parallel.place(rank).pp as usize];
            Rank::new(options, plan, rank, crate::trace::JOB_START_NS)
        })
        .collect();
    for (rank, path) in iter::zip(0.., paths) {
        File::create(path)?.write_all(kineto::header(&job, rank).as_bytes())?;
    }
    let is_sparse = options.fault == Some(TrainingFault::NeedlessRecomputation);
    let memory = if is_sparse { SPARSE } else { FULL };
    let mut steps = vec![Vec::new(); ranks.len()];
    let total = u64::from(options.steps) * ranks.len() as u64;
    for (index, step) in iter::zip(0..u64::from(options.steps), FIRST_STEP..) {
        job.play(&mut ranks, step);
        let slots: Vec<HashMap<Pass, Extent>> = ranks.iter().map(Rank::slots).collect();
        for (rank, path) in iter::zip(&ranks, paths) {
            let place = rank.number as usize;
            let mut file = OpenOptions::new().append(true).open(path)?;
            file.write_all(kineto::events(&job, rank, (index, step), memory).as_bytes())?;
            steps[place].push(step_truth(&job, rank, step, &slots));
            if !progress(index * ranks.len() as u64 + place as u64 + 1, total) {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "stopped by the caller"));
            }
        }
    }
    for (rank, path) in iter::zip(0.., paths) {
        OpenOptions::new().append(true).open(path)?.write_all(kineto::footer(rank).as_bytes())?;
    }
    Ok(iter::zip(&ranks, steps).map(|(rank, steps)| rank_truth(&job, rank, &steps)).collect())
}

/// What is true of a step of a rank: the collectives of each dimension, and its part of the pipeline.
fn step_truth(job: &Job<'_>, rank: &Rank<'_>, step: u64, slots: &[HashMap<Pass, Extent>]) -> Value {
    let window = rank.ops[0];
    let works = || iter::zip(&rank.plan.works, &rank.works);
    let computing: Vec<Extent> =
        works().filter(|(spec, _)| spec.collective.is_none()).map(|(_, &extent)| extent).collect();
    let computing = union_within(&computing, window);
    let mut dimensions = Map::new();
    for dimension in Dimension::ALL {
        let calls = works().filter(|(spec, _)| spec.collective.is_some_and(|it| it.dimension == dimension));
        let calls: Vec<Extent> = calls.map(|(_, &extent)| extent).collect();
        if !calls.is_empty() {
            // Calls are in order of time, as is what is computed.
            let hidden = |call: Extent| {
                let first = computing.partition_point(|part| part.1 <= call.0);
                let parts = computing[first..].iter().take_while(|part| part.0 < call.1);
                parts.map(|part| part.1.min(call.1) - part.0.max(call.0)).sum::<i64>()
            };
            let total_ns: i64 = calls.iter().map(|call| call.1 - call.0).sum();
            let exposed_ns = total_ns - calls.iter().map(|&call| hidden(call)).sum::<i64>();
            let truth = json!({"calls": calls.len(), "total_ns": total_ns, "exposed_ns": exposed_ns});
            dimensions.insert(dimension.name().to_owned(), truth);
        }
    }
    let mut truth = json!({"step": step, "dimensions": dimensions});
    if job.parallel().pp > 1 {
        let of_pipeline = job.parallel().group(rank.number, Dimension::Pp);
        let extents = || of_pipeline.iter().flat_map(|&other| slots[other as usize].values());
        let start_ns = extents().map(|slot| slot.0).min().unwrap_or(0);
        let end_ns = extents().map(|slot| slot.1).max().unwrap_or(0);
        let own: Vec<Extent> = slots[rank.number as usize].values().copied().collect();
        let pipeline_ns = end_ns - start_ns;
        truth["pipeline_ns"] = json!(pipeline_ns);
        truth["bubble_ns"] = json!(pipeline_ns - length(&union_within(&own, (start_ns, end_ns))));
    }
    truth
}

/// What is true of a rank.
fn rank_truth(job: &Job<'_>, rank: &Rank<'_>, steps: &[Value]) -> Value {
    let place = job.parallel().place(rank.number);
    let mut attention = [0; 2];
    for op in rank.plan.ops.iter().filter(|op| op.name == "aten::_scaled_dot_product_flash_attention") {
        attention[usize::from(op.thread == plan::Thread::Autograd)] += 1;
    }
    json!({
        "truth_version": 1,
        "seed": job.options.seed,
        "rank": rank.number,
        "place": {"tp": place.tp, "pp": place.pp, "dp": place.dp, "fsdp": place.fsdp},
        "micro_batches": job.options.micro_batches(),
        "attention_forward": attention[0],
        "attention_recompute": attention[1],
        "steps": steps,
    })
}

/// What is true of the job: its groups, and its fault with the recommendation that names it.
fn job_truth(job: &Job<'_>) -> Value {
    let ranks = job.parallel().ranks().unwrap_or(0);
    let groups: Map<String, Value> = Dimension::ALL
        .into_iter()
        .filter_map(|dimension| {
            let mut groups: Vec<Vec<u32>> =
                (0..ranks).map(|rank| job.parallel().group(rank, dimension)).collect();
            groups.sort();
            groups.dedup();
            (groups[0].len() > 1).then(|| (dimension.name().to_owned(), json!(groups)))
        })
        .collect();
    let of_stage = job
        .slow_stage()
        .map(|stage| (0..ranks).filter(|&rank| job.parallel().place(rank).pp == stage).collect::<Vec<u32>>());
    let of_expert = job
        .hot_expert()
        .map(|hot| (0..ranks).filter(|&rank| job.place_of(rank) == hot as usize).collect::<Vec<u32>>());
    json!({
        "truth_version": 1,
        "seed": job.options.seed,
        "ranks": ranks,
        "groups": groups,
        "recompute": job.options.recompute.name(),
        "cause": job.options.fault.map(TrainingFault::name),
        "recommendation": job.options.fault.map(TrainingFault::rule),
        "slow_ranks": of_stage.or(of_expert),
    })
}
