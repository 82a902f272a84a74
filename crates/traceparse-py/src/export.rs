//! Writes events for Perfetto, from frames that Python hands over.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use framekernels::export::{EventWriter, Extra, ProtobufWriter};
use pyo3::prelude::*;
use traceparse::{Error, ErrorKind};

use crate::errors;
use crate::frame::{Frame, run};

enum Writer {
    Json(EventWriter<File>),
    Protobuf(Box<ProtobufWriter<File>>),
}

/// Writes one file of events, part by part.
#[pyclass(module = "kernelscope._traceparse")]
pub(crate) struct TraceEventWriter {
    path: PathBuf,
    writer: Option<Writer>,
}

#[pymethods]
impl TraceEventWriter {
    /// Begins the file at `path`: Chrome JSON with the members of the JSON object `header`, or a protobuf without.
    #[new]
    #[pyo3(signature = (path, header=None))]
    fn new(py: Python<'_>, path: PathBuf, header: Option<&str>) -> PyResult<Self> {
        let file = File::create(&path).map_err(|error| failed(py, &error, &path))?;
        let writer = match header {
            Some(header) => EventWriter::new(file, header)
                .map(Writer::Json)
                .map_err(|message| errors::to_python(py, &Error::new(ErrorKind::InvalidArgument, message)))?,
            None => Writer::Protobuf(Box::new(ProtobufWriter::new(file))),
        };
        Ok(Self { path, writer: Some(writer) })
    }

    /// Names processes and threads in a protobuf, with the columns `pid`, `tid`, `pid_text`, `tid_text`, `name` and
    /// `order`; in JSON, events do.
    fn name(&mut self, py: Python<'_>, places: Frame) -> PyResult<()> {
        match self.writer.as_mut().ok_or_else(|| closed(py))? {
            Writer::Json(_) => Ok(()),
            Writer::Protobuf(writer) => run(py, || writer.name(&places)),
        }
    }

    /// Writes the events of all `frames`, with the arguments of `extras`: frames of `row`, `key`, `value` and
    /// `is_field`. JSON has them in order of their rows, a protobuf in that of their starts.
    fn write(&mut self, py: Python<'_>, frames: Vec<Frame>, extras: Frame) -> PyResult<()> {
        let Self { path, writer } = self;
        let writer = writer.as_mut().ok_or_else(|| closed(py))?;
        let extras = run(py, || Extra::read(&extras))?;
        let batches: Vec<_> = frames.iter().map(|frame| frame.batch().clone()).collect();
        let written = py.detach(|| match writer {
            Writer::Json(writer) => writer.write(&batches, &extras),
            Writer::Protobuf(writer) => writer.write(&batches, &extras),
        });
        written.map_err(|error| failed(py, &error, path))
    }

    /// Ends the file.
    fn finish(&mut self, py: Python<'_>) -> PyResult<()> {
        let written = match self.writer.take().ok_or_else(|| closed(py))? {
            Writer::Json(writer) => writer.finish(),
            Writer::Protobuf(writer) => writer.finish(),
        };
        written.and_then(|mut file| file.flush()).map_err(|error| failed(py, &error, &self.path))
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
