//! Step breakdowns against those of the TensorBoard plugin, on its own unit traces and on a real one.

use std::path::{Path, PathBuf};

use serde_json::Value;
use traceparse::{ReadOptions, Trace, read};

const PARTS: [&str; 9] =
    ["Kernel", "Memcpy", "Memset", "Communication", "Runtime", "DataLoader", "CpuOp", "Other", "Total"];

/// The folder of shared traces, or `None` with a word on why the test checks nothing.
#[expect(clippy::print_stderr, reason = "a skipped test says why")]
fn shared(folder: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared").join(folder);
    if !path.is_dir() {
        eprintln!("skipped: {} is not there", path.display());
        return None;
    }
    Some(path)
}

fn load(path: &Path) -> Trace {
    read(path, &ReadOptions::default()).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Step number (0 for a trace without steps) and parts in us of every step that is not partial.
fn steps(trace: &Trace) -> Vec<(i32, [i64; 9])> {
    let s = &trace.tables.steps;
    let columns = [
        &s.kernel_ns,
        &s.memcpy_ns,
        &s.memset_ns,
        &s.communication_ns,
        &s.runtime_ns,
        &s.dataloader_ns,
        &s.cpu_exec_ns,
        &s.other_ns,
        &s.total_ns,
    ];
    let whole = (0..s.total_ns.len()).filter(|&i| s.is_partial.get(i) == Some(false));
    whole.map(|i| (s.step.get(i).unwrap_or(0), columns.map(|c| c.values()[i] / 1000))).collect()
}

fn expected(steps: &Value) -> Vec<(i32, [i64; 9])> {
    let number = |step: &Value| step["step"].as_str().and_then(|s| s.parse().ok()).expect("a step number");
    let part = |step: &Value, name: &str| step[name].as_f64().expect("us").round() as i64;
    let steps = steps.as_array().expect("a list of steps");
    steps.iter().map(|step| (number(step), PARTS.map(|name| part(step, name)))).collect()
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).expect("readable")).expect("JSON")
}

#[test]
fn a_real_trace_gives_the_plugins_breakdown() {
    let (Some(traces), Some(oracle)) = (shared("traces/kineto"), shared("oracles/tb-plugin")) else { return };
    let trace = load(&traces.join("resnet50-v100-2021.json.gz"));
    let oracle = json(&oracle.join("workers0.span1.step_breakdown.json"));
    assert_eq!(steps(&trace), expected(&oracle["steps_raw"]));
}

/// Parts in us where the plugin is wrong, and why.
type Correction = (&'static str, &'static [(i32, [i64; 9])], &'static str);

/// Time of the host in operators of collectives is the host's: they start what GPUs do, or wait for it.
const HOST: &str =
    "the plugin counts operators of collectives as communication, whether or not a GPU communicates";

const CORRECTIONS: &[Correction] = &[
    ("test_memory_curve_step_plot.0", &[], "no event has a duration: there is no step"),
    ("test_memory_curve_no_step_plot.0", &[], "no event has a duration: there is no step"),
    (
        "test_datapipe.0",
        &[(0, [0, 0, 0, 0, 0, 23, 0, 0, 23])],
        "the plugin starts again when nothing is left: its parts sum to twice the step",
    ),
    (
        "test_distributed_nccl_user_annotation_has_communication.0",
        &[(0, [0, 0, 0, 0, 0, 0, 71, 0, 71])],
        "annotations are all the host work there is; the plugin gives a step of -2^63 us",
    ),
    ("test_distributed_nccl.0", &[(0, [105, 0, 0, 16, 0, 0, 79, 35, 235])], HOST),
    // Here the plugin starts again, too, when nothing is left: its parts sum to twice the step.
    ("test_distributed_nccl.1", &[(0, [161, 0, 0, 22, 0, 0, 52, 0, 235])], HOST),
    ("test_distributed_gloo_cpu.0", &[(0, [0, 0, 0, 0, 0, 0, 156, 0, 156])], HOST),
    ("test_distributed_gloo_cpu.1", &[(0, [0, 0, 0, 0, 0, 0, 134, 12, 146])], HOST),
    ("test_distributed_gloo_gpu.0", &[(0, [101, 0, 0, 0, 0, 0, 55, 0, 156])], HOST),
    ("test_distributed_gloo_gpu.1", &[(0, [70, 0, 0, 0, 0, 0, 64, 12, 146])], HOST),
    (
        "test_runtime_launch_multipe_kernels.0",
        &[(0, [0, 0, 0, 132_810, 20, 0, 40, 0, 132_870])],
        "the kernels are ncclBroadcastRingLLKernel_copy_i8: the name proves communication",
    ),
];

#[test]
fn unit_traces_give_the_plugins_breakdown() {
    let Some(folder) = shared("oracles/tb-plugin/unit") else { return };
    let mut differing = Vec::new();
    for entry in std::fs::read_dir(&folder).expect("a folder").flatten() {
        let file = entry.file_name().into_string().expect("a plain name");
        let Some(name) = file.strip_suffix(".trace.json") else { continue };
        let found = steps(&load(&entry.path()));
        let plugin = expected(&json(&folder.join(format!("{name}.expected.json")))["steps"]);
        let correction = CORRECTIONS.iter().find(|correction| correction.0 == name);
        let right = correction.map_or(plugin.clone(), |correction| correction.1.to_vec());
        assert!(correction.is_none() || right != plugin, "{name} needs no correction");
        if found != right {
            differing.push(format!("{name}\n  found  {found:?}\n  plugin {plugin:?}"));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}
