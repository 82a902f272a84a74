//! Frames that Python hands over, and tables that it is given.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{RecordBatch, RecordBatchIterator, RecordBatchReader};
use arrow_schema::ArrowError;
use framekernels::frame::Result as Outcome;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use traceparse::{Error, ErrorKind};

use crate::errors;
use crate::watch;

/// A frame: whatever has the method `__arrow_c_stream__`.
pub(crate) struct Frame(pub(crate) framekernels::frame::Frame);

impl std::ops::Deref for Frame {
    type Target = framekernels::frame::Frame;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<'py> FromPyObject<'_, 'py> for Frame {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let capsule = object.call_method0("__arrow_c_stream__")?.cast_into::<PyCapsule>()?;
        let unfit = |error: ArrowError| PyTypeError::new_err(format!("cannot read the frame: {error}"));
        let reader = reader_of(&capsule)?.map_err(unfit)?;
        let schema = reader.schema();
        let parts = reader.collect::<Outcome<_>>().map_err(unfit)?;
        framekernels::frame::Frame::new(&schema, parts).map(Self).map_err(unfit)
    }
}

/// Moves the stream out of a capsule, which is left with one that is released.
#[allow(unsafe_code, reason = "the C stream interface hands over a pointer")]
fn reader_of(capsule: &Bound<'_, PyCapsule>) -> PyResult<Outcome<RecordBatchStreamReader>> {
    let stream = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
    // SAFETY: by the PyCapsule interface of Arrow, a capsule of this name holds a pointer to a valid
    // ArrowArrayStream, which belongs to the consumer that moves it out; the interpreter is held, so nobody
    // else does at the same time.
    Ok(unsafe { RecordBatchStreamReader::from_raw(stream.cast().as_ptr()) })
}

/// The columns of a table that hold any value; the others are null and have no place in memory.
#[pyclass(frozen, module = "kernelscope._traceparse")]
pub(crate) struct ArrowTable {
    batch: RecordBatch,
}

impl ArrowTable {
    pub(crate) fn new(batch: RecordBatch) -> Self {
        Self { batch }
    }
}

#[pymethods]
impl ArrowTable {
    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    /// The columns as tables of their own, which share nothing.
    fn columns(&self) -> Vec<Self> {
        let columns = (0..self.batch.num_columns()).filter_map(|at| self.batch.project(&[at]).ok());
        columns.map(Self::new).collect()
    }

    /// Exports the table; the requested schema is a hint that the protocol allows to ignore.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        // One batch: a consumer takes each dictionary once.
        let batches = RecordBatchIterator::new([Ok(self.batch.clone())], self.batch.schema());
        let stream = FFI_ArrowArrayStream::new(Box::new(batches));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}

/// What a pass over frames gives, and what Python gets for it.
pub(crate) trait Answer {
    type Object;
    fn into_object(self) -> Self::Object;
}

impl Answer for RecordBatch {
    type Object = ArrowTable;
    fn into_object(self) -> ArrowTable {
        ArrowTable::new(self)
    }
}

impl Answer for () {
    type Object = ();
    fn into_object(self) {}
}

impl<T: Answer> Answer for Option<T> {
    type Object = Option<T::Object>;
    fn into_object(self) -> Self::Object {
        self.map(T::into_object)
    }
}

impl<A: Answer, B: Answer> Answer for (A, B) {
    type Object = (A::Object, B::Object);
    fn into_object(self) -> Self::Object {
        (self.0.into_object(), self.1.into_object())
    }
}

impl<A: Answer, B: Answer, C: Answer> Answer for (A, B, C) {
    type Object = (A::Object, B::Object, C::Object);
    fn into_object(self) -> Self::Object {
        (self.0.into_object(), self.1.into_object(), self.2.into_object())
    }
}

/// The tables that `work` gives, done with the interpreter released: see [`run`].
pub(crate) fn answer<T: Answer + Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Outcome<T> + Send,
) -> PyResult<T::Object> {
    run(py, work).map(T::into_object)
}

/// The value of `work`, done with the interpreter released.
///
/// Nothing stops it: a pass over millions of rows takes milliseconds. What may take seconds is for
/// [`answer_watched`].
pub(crate) fn run<T: Send>(py: Python<'_>, work: impl FnOnce() -> Outcome<T> + Send) -> PyResult<T> {
    // A panic leaves nothing behind that anybody looks at again.
    match py.detach(|| catch_unwind(AssertUnwindSafe(work))) {
        Ok(outcome) => outcome.map_err(|error| errors::to_python(py, &refused(error))),
        Err(panic) => Err(errors::from_panic(py, panic.as_ref())),
    }
}

/// The tables that `work` gives, done on a thread of its own, so that Ctrl-C is served meanwhile.
pub(crate) fn answer_watched<T: Answer + Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Outcome<T> + Send + 'static,
) -> PyResult<T::Object> {
    watch::run(py, None, move |_| work().map_err(refused)).map(T::into_object)
}

/// The error of an argument that makes no sense, or of frames that are not as they must be.
pub(crate) fn refused(error: ArrowError) -> Error {
    let message = match error {
        ArrowError::InvalidArgumentError(message) => message,
        other => format!("the frames do not have the required columns: {other}"),
    };
    Error::new(ErrorKind::InvalidArgument, message)
}
