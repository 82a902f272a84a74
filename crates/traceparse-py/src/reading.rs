//! `read` and the trace it returns.

use std::collections::BTreeMap;
use std::path::PathBuf;

use arrow_array::RecordBatch;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Value, json};
use traceparse::{Filter, Meta, RankName, ReadOptions, Result, Stats, Trace};

use crate::frame::ArrowTable;
use crate::watch;

/// A trace as it comes from Rust: its tables and a JSON text about the file.
#[pyclass(module = "kernelscope._traceparse")]
pub(crate) struct RawTrace {
    /// What is known of the file as a whole, as JSON text.
    #[pyo3(get)]
    meta: String,
    batches: Vec<(&'static str, RecordBatch)>,
}

#[pymethods]
impl RawTrace {
    /// Hands over every table by name; a second call finds none.
    fn take_tables<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let tables = PyDict::new(py);
        for (name, batch) in self.batches.drain(..) {
            tables.set_item(name, ArrowTable::new(batch))?;
        }
        Ok(tables)
    }
}

/// Reads the trace at `path`, of each rank in it; `progress` is called with bytes done and bytes in all.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "keyword-only in Python")]
#[pyo3(signature = (path, *, strict=false, threads=None, step_range=None, tables=None, only_launching=false, filter_time=(None, None), filter_nvtx=None, filter_processes=Vec::new(), filter_of_no_process=false, filter_devices=Vec::new(), rank=None, captures=Vec::new(), captures_are_found=false, progress=None))]
pub(crate) fn read(
    py: Python<'_>,
    path: PathBuf,
    strict: bool,
    threads: Option<usize>,
    step_range: Option<String>,
    tables: Option<BTreeMap<String, Vec<String>>>,
    only_launching: bool,
    filter_time: (Option<i64>, Option<i64>),
    filter_nvtx: Option<String>,
    filter_processes: Vec<i64>,
    filter_of_no_process: bool,
    filter_devices: Vec<i32>,
    rank: Option<i32>,
    captures: Vec<PathBuf>,
    captures_are_found: bool,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Vec<RawTrace>> {
    let callback = progress.map(|callback| callback.clone().unbind());
    watch::run(py, callback.as_ref(), move |progress| {
        let options = ReadOptions {
            strict,
            threads,
            step_range,
            tables,
            only_launching,
            filter: Filter {
                time: filter_time,
                nvtx: filter_nvtx,
                processes: filter_processes,
                of_no_process: filter_of_no_process,
                devices: filter_devices,
            },
            rank,
            captures,
            captures_are_found,
            progress: Some(progress),
            ..ReadOptions::default()
        };
        load(&path, &options)
    })
}

fn load(path: &std::path::Path, options: &ReadOptions) -> Result<Vec<RawTrace>> {
    let raw = |trace: Trace| {
        let meta = describe(&trace.meta, &trace.stats).to_string();
        RawTrace { meta, batches: trace.tables.into_batches(&trace.symbols) }
    };
    Ok(traceparse::read_ranks(path, options)?.into_iter().map(raw).collect())
}

fn describe(meta: &Meta, stats: &Stats) -> Value {
    let rank = |name: &RankName| {
        let parts = RankName::PARTS.into_iter().zip(name.parts);
        let parts: BTreeMap<_, _> = parts.filter_map(|(part, place)| Some((part, place?))).collect();
        json!({ "rank": name.number, "label": name.label, "parts": parts })
    };
    json!({
        "format": meta.format,
        "compression": meta.compression,
        "file_bytes": meta.file_bytes,
        "content_bytes": meta.content_bytes,
        "base_time_ns": meta.base_time_ns,
        "rank": meta.rank,
        "ranks": meta.ranks.iter().map(rank).collect::<Vec<_>>(),
        "seen": stats.seen,
        "kept": stats.kept,
        "dropped": stats.dropped,
        "properties": meta.properties,
    })
}
