//! Writes events as Chrome JSON, from frames that Python hands over.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use arrow_array::types::UInt32Type;
use arrow_array::{BooleanArray, StringViewArray};
use framekernels::export::{EventWriter, Extra};
use pyo3::prelude::*;
use traceparse::{Error, ErrorKind};

use crate::answer::answer;
use crate::errors;
use crate::frame::{Frame, Outcome, column, filled};

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
        let extras = answer(py, || read_extras(&extras))?;
        let batches: Vec<_> = frames.iter().flat_map(Frame::parts).cloned().collect();
        py.detach(|| writer.write(&batches, &extras)).map_err(|error| failed(py, &error, path))
    }

    /// Ends the file.
    fn finish(&mut self, py: Python<'_>) -> PyResult<()> {
        let writer = self.writer.take().ok_or_else(|| closed(py))?;
        let done = writer.finish().and_then(|mut file| file.flush());
        done.map_err(|error| failed(py, &error, &self.path))
    }
}

fn read_extras(frame: &Frame) -> Outcome<Vec<Extra>> {
    let mut extras = Vec::new();
    for batch in frame.parts() {
        let rows = column::<UInt32Type>(batch, "row")?;
        let text =
            |name: &str| -> Outcome<StringViewArray> { Ok(filled::<StringViewArray>(batch, name)?.clone()) };
        let (keys, values) = (text("key")?, text("value")?);
        let fields: &BooleanArray = filled(batch, "is_field")?;
        extras.extend((0..batch.num_rows()).map(|at| Extra {
            row: rows.value(at),
            key: keys.value(at).to_owned(),
            value: values.value(at).to_owned(),
            is_field: fields.value(at),
        }));
    }
    Ok(extras)
}

fn failed(py: Python<'_>, error: &io::Error, path: &std::path::Path) -> PyErr {
    let error = match error.kind() {
        io::ErrorKind::InvalidInput => Error::new(ErrorKind::InvalidArgument, error.to_string()),
        _ => Error::from_io(error).with_path(path),
    };
    errors::to_python(py, &error)
}

fn closed(py: Python<'_>) -> PyErr {
    errors::to_python(py, &Error::new(ErrorKind::InvalidArgument, "the file is finished"))
}
