//! Files of other tools: what each is, and what to do with it.

use std::path::Path;

use serde_json::{Map, Value};

use super::sqlite::catalog::Catalog;
use crate::schema::{Spans, SymbolTable, Table};

const FLIGHT_RECORDER: &str = "is a flight recorder dump of PyTorch, which shows where a job hangs. Analyse \
                               it with torchfrtrace. For kernelscope, record a trace with the PyTorch \
                               profiler";
const MEMORY_SNAPSHOT: &str = "is a memory snapshot of PyTorch. Open it at \
                               https://docs.pytorch.org/memory_viz. For kernelscope, record a trace with \
                               the PyTorch profiler and profile_memory=True";
const ROCPROFV3: &str = "is JSON of rocprofv3, which kernelscope does not read. Record the run with the \
                         PyTorch profiler, or use rocprofv3 --output-format pftrace and open the result in \
                         Perfetto";
const NCCL_PLUGIN: &str = "is JSON of an NCCL profiler plugin, which has no operators and no kernels. Open \
                           it in Perfetto. For kernelscope, record the run with the PyTorch profiler";

/// Categories of the events that the profiler plugin of NCCL writes.
const NCCL_CATEGORIES: [&str; 15] = [
    "CE_BATCH",
    "CE_COLL",
    "CE_SYNC",
    "COLL",
    "COLL_API",
    "GPU",
    "GROUP",
    "GROUP_API",
    "KERNEL_LAUNCH",
    "NET",
    "NET_IB",
    "NET_SOCK",
    "P2P",
    "P2P_API",
    "PROXY",
];

/// Describes a database of another tool by its tables.
pub(super) fn database(catalog: &Catalog) -> Option<&'static str> {
    let has = |wanted: &dyn Fn(&str) -> bool| catalog.tables().any(|(name, _)| wanted(name));
    if has(&|name| name.starts_with("rocpd_info_") || name.starts_with("rocpd_kernel_dispatch")) {
        Some(
            "is a rocpd database of rocprofv3, which kernelscope does not read. Record the run with the \
             PyTorch profiler, or run rocpd convert -i FILE --output-format pftrace and open the result in \
             Perfetto",
        )
    } else if has(&|name| name == "rocpd_api" || name == "rocpd_op") {
        Some(
            "is a RocmProfileData (rpd) database, which kernelscope does not read. Record the run with the \
             PyTorch profiler, or run rpd2tracing.py FILE trace.json and open the result in Perfetto",
        )
    } else {
        None
    }
}

/// Describes a file that is no text and no database by its first bytes, and by its name where they do not tell.
pub(super) fn binary(path: &Path, head: &[u8]) -> Option<&'static str> {
    let has_extension =
        |wanted: &str| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(wanted));
    let holds = |text: &str| head.windows(text.len()).any(|part| part == text.as_bytes());
    if head.first_chunk() == Some(&[0; 16]) {
        Some(
            "begins with zeros, which means that nsys export was interrupted. Export the report again: nsys \
             export --type sqlite --force-overwrite true REPORT",
        )
    } else if head.starts_with(b"NVR\0") || has_extension("ncu-rep") {
        Some(
            "is an Nsight Compute report about single kernels. Open it with ncu-ui or ncu --import FILE. \
             For kernelscope, record a timeline with nsys or the PyTorch profiler",
        )
    } else if is_xplane(head) {
        Some(
            "is an XPlane protobuf of JAX or TensorFlow, which kernelscope does not read. Open it with \
             XProf, the profile plugin of TensorBoard",
        )
    } else if matches!(head, [0x80, 2..=5, ..]) {
        Some(if holds("nccl_comm_state") || holds("pg_config") {
            FLIGHT_RECORDER
        } else if holds("segments") || holds("device_traces") {
            MEMORY_SNAPSHOT
        } else {
            "is a Python pickle, which kernelscope never loads because it can run code. Record a trace with \
             the PyTorch profiler"
        })
    } else {
        None
    }
}

/// Whether `head` begins as an `XSpace` does: with a plane that has a number, if not 0, and a name.
fn is_xplane(head: &[u8]) -> bool {
    let Some(rest) = head.strip_prefix(b"\x0a").and_then(after_number) else { return false };
    let rest = rest.strip_prefix(b"\x08").map_or(Some(rest), after_number);
    let name = rest.and_then(|rest| after_number(rest.strip_prefix(b"\x12")?));
    name.is_some_and(|name| name.starts_with(b"/") || name.starts_with(b"Task Environment"))
}

/// What follows a variable-length number of a protobuf.
fn after_number(bytes: &[u8]) -> Option<&[u8]> {
    let last = bytes.iter().take(10).position(|byte| byte & 0x80 == 0)?;
    bytes.get(last + 1..)
}

/// Describes JSON without events by its keys.
pub(crate) fn json(properties: &Map<String, Value>) -> Option<&'static str> {
    let has = |key: &str| properties.contains_key(key);
    if has("nodes") && has("schema") {
        Some("is a PyTorch execution trace. kernelscope reads the profiler trace of the same run")
    } else if has("rocprofiler-sdk-tool") {
        Some(ROCPROFV3)
    } else if has("entries") && (has("pg_config") || has("pg_status") || has("nccl_comm_state")) {
        Some(FLIGHT_RECORDER)
    } else if has("segments") && has("device_traces") {
        Some(MEMORY_SNAPSHOT)
    } else {
        None
    }
}

/// Describes JSON whose only events are `spans`.
pub(crate) fn events(spans: &Spans, symbols: &SymbolTable) -> Option<&'static str> {
    let is_of_plugin = |category: Option<_>| {
        category.is_some_and(|category| NCCL_CATEGORIES.contains(&symbols.text(category)))
    };
    (!spans.is_empty() && spans.category.iter().all(is_of_plugin)).then_some(NCCL_PLUGIN)
}
