//! Answers what Python asks of frames.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_schema::ArrowError;
use pyo3::prelude::*;
use traceparse::{Error, ErrorKind};

use crate::errors;
use crate::frame::Outcome;
use crate::watch;

/// What `work` comes to, done with the interpreter released.
///
/// Nothing stops it: a pass over millions of rows takes milliseconds. What may take seconds is for
/// [`answer_watched`].
pub(crate) fn answer<T: Send>(py: Python<'_>, work: impl FnOnce() -> Outcome<T> + Send) -> PyResult<T> {
    // Who panics leaves nothing behind that anybody looks at again.
    match py.detach(|| catch_unwind(AssertUnwindSafe(work))) {
        Ok(outcome) => outcome.map_err(|error| errors::to_python(py, &refused(error))),
        Err(panic) => Err(errors::from_panic(py, panic.as_ref())),
    }
}

/// What `work` comes to, done on a thread of its own, so that Ctrl-C is served meanwhile.
pub(crate) fn answer_watched<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Outcome<T> + Send + 'static,
) -> PyResult<T> {
    watch::run(py, None, move |_| work().map_err(refused))
}

/// What Python is told: of an argument that makes no sense, or of frames that are not as they must be.
fn refused(error: ArrowError) -> Error {
    let message = match error {
        ArrowError::InvalidArgumentError(message) => message,
        other => format!("the frames are not what is needed: {other}"),
    };
    Error::new(ErrorKind::InvalidArgument, message)
}
