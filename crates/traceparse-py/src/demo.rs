//! Writes demo traces.

use std::io;
use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use tracedemo::{
    Cause, DatabaseKind, DemoOptions, Layout, Parallel, Recompute, ServingOptions, TrainingFault,
    TrainingOptions, write_database, write_files, write_serving, write_training,
};
use traceparse::{Error, ErrorKind, Progress, Result};

use crate::errors;
use crate::watch;

/// Trace, truth if asked for, bytes of JSON, and steps.
type Written = (PathBuf, Option<PathBuf>, u64, usize);

/// Names of the layouts that [`write_demo`] knows.
#[pyfunction]
pub(crate) fn demo_layouts() -> Vec<&'static str> {
    Layout::ALL.into_iter().map(Layout::name).collect()
}

/// Names of the causes that [`write_demo`] knows.
#[pyfunction]
pub(crate) fn demo_causes() -> Vec<&'static str> {
    Cause::ALL.into_iter().map(Cause::name).collect()
}

/// Writes a trace per rank into the folder `folder` and says what was written.
#[pyfunction]
#[pyo3(signature = (folder, *, size_bytes, ranks, seed, layout, gzip, truth, cause=None, progress=None))]
#[allow(clippy::too_many_arguments, reason = "keyword-only in Python")]
pub(crate) fn write_demo(
    py: Python<'_>,
    folder: PathBuf,
    size_bytes: u64,
    ranks: u32,
    seed: u64,
    layout: &str,
    gzip: bool,
    truth: bool,
    cause: Option<&str>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Vec<Written>> {
    let Some(layout) = Layout::from_name(layout) else {
        let message = format!("there is no layout {layout:?}; the layouts are {}", demo_layouts().join(", "));
        return Err(errors::to_python(py, &Error::new(ErrorKind::InvalidArgument, message)));
    };
    let cause = cause_of(py, cause)?;
    let options = DemoOptions { size_bytes, ranks, seed, layout, gzip, cause, ..DemoOptions::default() };
    let callback = progress.map(|callback| callback.clone().unbind());
    watch::run(py, callback.as_ref(), move |progress| write(&folder, &options, truth, &progress))
}

/// Writes a database of one recorder at `path` and says how many bytes it has, the steps of each process,
/// and what is true of it as JSON.
#[pyfunction]
#[pyo3(signature = (path, *, kind, size_bytes, ranks, seed, cause=None, progress=None))]
#[allow(clippy::too_many_arguments, reason = "keyword-only in Python")]
pub(crate) fn write_demo_database(
    py: Python<'_>,
    path: PathBuf,
    kind: &str,
    size_bytes: u64,
    ranks: u32,
    seed: u64,
    cause: Option<&str>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<(u64, usize, String)> {
    let Some(kind) = DatabaseKind::ALL.into_iter().find(|known| known.name() == kind) else {
        let message = format!("there is no database kind {kind:?}; the kinds are nsys, nvprof");
        return Err(errors::to_python(py, &Error::new(ErrorKind::InvalidArgument, message)));
    };
    let options =
        DemoOptions { size_bytes, ranks, seed, cause: cause_of(py, cause)?, ..DemoOptions::default() };
    let callback = progress.map(|callback| callback.clone().unbind());
    watch::run(py, callback.as_ref(), move |progress| {
        let mut report = |done: u64| progress(done.min(size_bytes), size_bytes);
        let truth =
            write_database(&path, kind, &options, &mut report).map_err(|error| explain(&error, &path))?;
        let steps = truth.processes.first().map_or(0, |process| process.truth.steps.len());
        Ok((truth.file_bytes, steps, format!("{:#}\n", truth.to_json())))
    })
}

/// Writes the traces of an engine into the folder `folder`, one per recorder, and says what is true of each as JSON.
#[pyfunction]
#[pyo3(signature = (folder, *, steps, seed, marks))]
pub(crate) fn write_demo_serving(
    py: Python<'_>,
    folder: PathBuf,
    steps: u32,
    seed: u64,
    marks: bool,
) -> PyResult<Vec<(PathBuf, String)>> {
    let options = ServingOptions { steps, seed, marks, ..ServingOptions::default() };
    let written = write_serving(&folder, &options).map_err(|error| explain(&error, &folder));
    let written = written.map_err(|error| errors::to_python(py, &error))?;
    Ok(written.into_iter().map(|(path, truth)| (path, format!("{truth:#}\n"))).collect())
}

/// Names of the causes that [`write_demo_training`] knows.
#[pyfunction]
pub(crate) fn demo_training_causes() -> Vec<&'static str> {
    TrainingFault::ALL.into_iter().map(TrainingFault::name).collect()
}

/// Names of what [`write_demo_training`] can compute again.
#[pyfunction]
pub(crate) fn demo_recomputes() -> Vec<&'static str> {
    Recompute::ALL.into_iter().map(Recompute::name).collect()
}

/// Writes the trace of each rank of a training job into the folder `folder`, and says what is true of each, and of
/// the job, as JSON.
#[pyfunction]
#[pyo3(signature = (
    folder, *, parallel, recompute, seed, steps, layers, cause=None, micro_batches=None, progress=None
))]
#[allow(clippy::too_many_arguments, reason = "keyword-only in Python")]
pub(crate) fn write_demo_training(
    py: Python<'_>,
    folder: PathBuf,
    parallel: &str,
    recompute: &str,
    seed: u64,
    steps: u32,
    layers: u32,
    cause: Option<&str>,
    micro_batches: Option<u32>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<(Vec<(PathBuf, String)>, String)> {
    let refuse = |message: String| errors::to_python(py, &Error::new(ErrorKind::InvalidArgument, message));
    let parallel = Parallel::parse(parallel).map_err(refuse)?;
    let unknown = |kind: &str, name: &str, known: Vec<&str>| {
        refuse(format!("there is no {kind} {name:?}; choose from {}", known.join(", ")))
    };
    let recompute = Recompute::ALL
        .into_iter()
        .find(|known| known.name() == recompute)
        .ok_or_else(|| unknown("recomputation", recompute, demo_recomputes()))?;
    let fault = cause.map(|cause| {
        let found = TrainingFault::ALL.into_iter().find(|known| known.name() == cause);
        found.ok_or_else(|| unknown("cause", cause, demo_training_causes()))
    });
    let options = TrainingOptions {
        parallel,
        recompute,
        fault: fault.transpose()?,
        steps,
        layers,
        micro_batches,
        seed,
    };
    let callback = progress.map(|callback| callback.clone().unbind());
    watch::run(py, callback.as_ref(), move |progress| {
        let (ranks, job) = write_training(&folder, &options, &mut |done, total| progress(done, total))
            .map_err(|error| explain(&error, &folder))?;
        let ranks = ranks.into_iter().map(|(path, truth)| (path, format!("{truth:#}\n")));
        Ok((ranks.collect(), format!("{job:#}\n")))
    })
}

/// The cause of that name.
fn cause_of(py: Python<'_>, name: Option<&str>) -> PyResult<Option<Cause>> {
    let Some(name) = name else { return Ok(None) };
    let Some(cause) = Cause::from_name(name) else {
        let message = format!("there is no cause {name:?}; the causes are {}", demo_causes().join(", "));
        return Err(errors::to_python(py, &Error::new(ErrorKind::InvalidArgument, message)));
    };
    Ok(Some(cause))
}

fn write(folder: &Path, options: &DemoOptions, truth: bool, progress: &Progress) -> Result<Vec<Written>> {
    let total = options.size_bytes.saturating_mul(u64::from(options.ranks));
    let files = write_files(folder, options, truth, &mut |done| progress(done.min(total), total))
        .map_err(|error| explain(&error, folder))?;
    let written = files.into_iter().map(|file| {
        (file.trace, file.truth_path, file.json_bytes, usize::try_from(file.steps).unwrap_or(usize::MAX))
    });
    Ok(written.collect())
}

fn explain(error: &io::Error, folder: &Path) -> Error {
    match error.kind() {
        io::ErrorKind::InvalidInput => Error::new(ErrorKind::InvalidArgument, error.to_string()),
        io::ErrorKind::Interrupted => Error::new(ErrorKind::Interrupted, error.to_string()),
        _ => Error::from_io(error).with_path(folder),
    }
}
