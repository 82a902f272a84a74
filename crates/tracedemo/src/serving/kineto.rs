//! The program as the PyTorch profiler writes it.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::model::{Call, Kernel, Program, What};
use super::options::ServingRecorder;

const PID: i64 = 4242;

pub(super) fn write(path: &Path, program: &Program, recorder: ServingRecorder) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let device = match recorder {
        ServingRecorder::Rocm => json!({"id": 0, "name": "AMD Instinct MI300X"}),
        ServingRecorder::Cuda | ServingRecorder::Nsys => json!({"id": 0, "name": "NVIDIA H100 80GB HBM3"}),
    };
    write!(file, "{{\"schemaVersion\": 1, \"deviceProperties\": [{device}], \"traceEvents\": [")?;
    for (number, event) in events(program, recorder).into_iter().enumerate() {
        write!(file, "{}{event}", if number == 0 { "\n" } else { ",\n" })?;
    }
    file.write_all(b"\n]}\n")?;
    file.flush()
}

fn events(program: &Program, recorder: ServingRecorder) -> Vec<Value> {
    let mut found = Vec::new();
    for (op, id) in program.ops.iter().zip(1..) {
        let types: Vec<&str> = op.dims.iter().map(|_| "c10::BFloat16").collect();
        let args = json!({"External id": id, "Input Dims": op.dims, "Input type": types});
        found.push(slice("cpu_op", op.name, PID, PID, (op.start_ns, op.end_ns), &args));
    }
    for mark in &program.marks {
        let extent = (mark.start_ns, mark.end_ns);
        found.push(slice("user_annotation", &mark.name, PID, PID, extent, &json!({})));
    }
    found.extend(program.calls.iter().map(|call| of_call(call, recorder)));
    found.extend(program.kernels.iter().map(|kernel| of_kernel(kernel, recorder)));
    found
}

fn of_call(call: &Call, recorder: ServingRecorder) -> Value {
    let is_rocm = recorder == ServingRecorder::Rocm;
    let name = match (call.what, is_rocm) {
        (What::Launch, false) => "cudaLaunchKernel",
        (What::Launch, true) => "hipModuleLaunchKernel",
        (What::BeginCapture, false) => "cudaStreamBeginCapture",
        (What::BeginCapture, true) => "hipStreamBeginCapture",
        (What::EndCapture, false) => "cudaStreamEndCapture",
        (What::EndCapture, true) => "hipStreamEndCapture",
        (What::Instantiate, false) => "cudaGraphInstantiateWithFlags",
        (What::Instantiate, true) => "hipGraphInstantiate",
        (What::GraphLaunch, false) => "cudaGraphLaunch",
        (What::GraphLaunch, true) => "hipGraphLaunch",
    };
    let mut args = json!({"correlation": call.correlation});
    if let Some(op) = call.op {
        args["External id"] = json!(op + 1);
    }
    if let Some(kernel) = call.kernel.as_ref().filter(|_| is_rocm) {
        args["kernel"] = json!(kernel);
        args["grid"] = json!([64, 1, 1]);
        args["block"] = json!([256, 1, 1]);
    }
    slice("cuda_runtime", name, PID, PID, (call.start_ns, call.end_ns), &args)
}

fn of_kernel(kernel: &Kernel, recorder: ServingRecorder) -> Value {
    let mut args = json!({"correlation": kernel.correlation, "device": 0, "stream": kernel.stream});
    match (recorder, kernel.node) {
        (ServingRecorder::Rocm, _) => args["kind"] = json!("Dispatch Task"),
        (_, Some((graph, node))) => {
            args["graph id"] = json!(graph);
            args["graph node id"] = json!(graph << 32 | node);
        }
        (_, None) => {}
    }
    if kernel.node.is_none() {
        args["External id"] = json!(kernel.op + 1);
    }
    slice("kernel", &kernel.name, 0, kernel.stream, (kernel.start_ns, kernel.end_ns), &args)
}

/// A slice; times are in us.
fn slice(category: &str, name: &str, pid: i64, tid: i64, (start, end): (i64, i64), args: &Value) -> Value {
    let us = |ns: i64| ns as f64 / 1_000.0;
    json!({
        "ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid,
        "ts": us(start), "dur": us(end - start), "args": args,
    })
}
