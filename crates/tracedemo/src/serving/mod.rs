//! Traces of an engine that serves a model: eager steps, graphs captured per batch size on two streams, and replays
//! of them in steps of prefill and decode.
//!
//! What a replayed kernel is was decided when its graph was captured, so the truth of each is known. Three recorders
//! write the same program: Kineto on CUDA, whose captures name no kernels and whose work names its node; Kineto on
//! ROCm, whose captures do and whose work does not; and Nsight Systems, which records the creation of nodes and the
//! payloads of NCCL.

mod kineto;
mod model;
mod nsys;
mod options;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::rank::write_complete;
use model::{Program, play};
pub use options::{ServingOptions, ServingRecorder};

/// Writes the trace of each recorder into `folder`; returns the paths, each with what is true of it as JSON.
///
/// # Errors
/// What the file system reports.
pub fn write_serving(folder: &Path, options: &ServingOptions) -> io::Result<Vec<(PathBuf, Value)>> {
    fs::create_dir_all(folder)?;
    ServingRecorder::ALL
        .into_iter()
        .map(|recorder| {
            let path = folder.join(recorder.file_name());
            let program = play(options, recorder);
            write_complete(&path, |path| match recorder {
                ServingRecorder::Cuda | ServingRecorder::Rocm => kineto::write(path, &program, recorder),
                ServingRecorder::Nsys => nsys::write(path, &program),
            })?;
            Ok((path, truth(&program, options)))
        })
        .collect()
}

/// What is true of a program: of each replayed kernel its operator and the shapes of that; the steps; the messages.
fn truth(program: &Program, options: &ServingOptions) -> Value {
    let replayed = program.kernels.iter().filter(|kernel| kernel.node.is_some());
    let nodes = replayed.map(|kernel| {
        let op = &program.ops[kernel.op];
        json!([kernel.start_ns, kernel.stream, op.name, op.dims])
    });
    let steps = program.steps.iter().map(|step| {
        json!({"start_ns": step.start_ns, "phase": step.phase, "requests": step.requests, "tokens": step.tokens})
    });
    let messages = program.messages.iter().map(|message| json!([message.start_ns, message.bytes]));
    json!({
        "truth_version": 1,
        "seed": options.seed,
        "nodes": nodes.collect::<Vec<_>>(),
        "steps": steps.collect::<Vec<_>>(),
        "messages": messages.collect::<Vec<_>>(),
        "ranks": model::RANKS,
    })
}
