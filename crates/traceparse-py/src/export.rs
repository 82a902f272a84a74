//! Writes events as Chrome JSON, from frames that Python hands over.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use framekernels::export::{EventWriter, Extra};
use pyo3::prelude::*;
use traceparse::{Error, ErrorKind};

use crate::errors;
use crate::frame::{Frame, run};

/// Writes one file of events, part by part.
#[pyclass(module = "kernelscope._traceparse")]
pub(crate) struct JsonEventWriter {
    path: PathBuf,
    writer: Option<EventWriter<File>>,
}

#[pymethods]
impl JsonEventWriter {
    /// Begins the file at `path` with the members of the JSON object `header`.
    #[new]
    fn new(py: Python<'_>, path: PathBuf, header: &str) -> PyResult<Self> {
        let file = File::create(&path).map_err(|error| failed(py, &error, &path))?;
        let writer = EventWriter::new(file, header)
            .map_err(|message| errors::to_python(py, &Error::new(ErrorKind::InvalidArgument, message)))?;
        Ok(Self { path, writer: Some(writer) })
    }

    /// Writes the events of all `frames` in order of their rows, with the arguments of `extras`: frames of
    /// `row`, `key`, `value` and `is_field`.
    fn write(&mut self, py: Python<'_>, frames: Vec<Frame>, extras: Frame) -> PyResult<()> {
        let Self { path, writer } = self;
        let Some(writer) = writer else { return Err(closed(py)) };
        let extras = run(py, || Extra::read(&extras))?;
        let batches: Vec<_> = frames.iter().map(|frame| frame.batch().clone()).collect();
        py.detach(|| writer.write(&batches, &extras)).map_err(|error| failed(py, &error, path))
    }

    /// Ends the file.
    fn finish(&mut self, py: Python<'_>) -> PyResult<()> {
        let writer = self.writer.take().ok_or_else(|| closed(py))?;
        let done = writer.finish().and_then(|mut file| file.flush());
        done.map_err(|error| failed(py, &error, &self.path))
    }
}

fn failed(py: Python<'_>, error: &io::Error, path: &std::path::Path) -> PyErr {
    let error = match error.kind() {
        io::ErrorKind::InvalidInput => Error::new(ErrorKind::InvalidArgument, error.to_string()),
        _ => Error::from_io(error).with_path(path),
    };
    errors::to_python(py, &error)
}

fn closed(py: Python<'_>) -> PyErr {
    errors::to_python(py, &Error::new(ErrorKind::InvalidArgument, "the file is already closed"))
}
