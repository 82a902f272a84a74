//! Runs Rust work beside the interpreter, so that Ctrl-C and progress are served while it lasts.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use traceparse::{Error, ErrorKind, Progress, Result};

use crate::errors;

/// Pause between two looks at signals and progress.
const TICK: Duration = Duration::from_millis(100);

/// How long an interrupted caller waits for the work to stop before it leaves it behind.
const GRACE: Duration = Duration::from_millis(500);

/// What the working thread and the waiting thread tell each other.
#[derive(Default)]
struct Shared {
    done: AtomicU64,
    total: AtomicU64,
    stop: AtomicBool,
}

/// Result of the work, or its panic.
type Outcome<T> = thread::Result<Result<T>>;

/// Runs `work` on a thread of its own with the interpreter released.
///
/// The calling thread wakes up every [`TICK`] to run signal handlers, which Python allows on
/// its main thread only, and to report bytes done and bytes in all to `callback`. An
/// exception from either stops the work and is raised.
pub(crate) fn run<T: Send + 'static>(
    py: Python<'_>,
    callback: Option<&Py<PyAny>>,
    work: impl FnOnce(Progress) -> Result<T> + Send + 'static,
) -> PyResult<T> {
    let shared = Arc::new(Shared::default());
    let receiver = start(Arc::clone(&shared), work).map_err(|error| errors::to_python(py, &error))?;
    let outcome = py.detach(move || wait(&shared, &receiver, callback))?;
    match outcome {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(errors::to_python(py, &error)),
        Err(panic) => Err(errors::from_panic(py, panic.as_ref())),
    }
}

fn start<T: Send + 'static>(
    shared: Arc<Shared>,
    work: impl FnOnce(Progress) -> Result<T> + Send + 'static,
) -> Result<Receiver<Outcome<T>>> {
    let (sender, receiver) = mpsc::channel();
    let progress: Progress = Arc::new(move |done, total| {
        shared.done.store(done, Relaxed);
        shared.total.store(total, Relaxed);
        !shared.stop.load(Relaxed)
    });
    let body = move || {
        let outcome = catch_unwind(AssertUnwindSafe(|| work(progress)));
        // The receiver is gone only if the caller was interrupted and left.
        let _ = sender.send(outcome);
    };
    thread::Builder::new()
        .name("traceparse".to_owned())
        .spawn(body)
        .map_err(|error| Error::from_io(&error))?;
    Ok(receiver)
}

fn wait<T>(
    shared: &Shared,
    receiver: &Receiver<Outcome<T>>,
    callback: Option<&Py<PyAny>>,
) -> PyResult<Outcome<T>> {
    loop {
        match receiver.recv_timeout(TICK) {
            Ok(outcome) => {
                attached(|py| match (&outcome, callback) {
                    (Ok(Ok(_)), Some(callback)) => {
                        let total = shared.total.load(Relaxed);
                        callback.call1(py, (total, total)).map(drop)
                    }
                    _ => Ok(()),
                })?;
                return Ok(outcome);
            }
            Err(RecvTimeoutError::Disconnected) => {
                let gone = Error::new(ErrorKind::Interrupted, "the reading thread ended without a result");
                return Ok(Ok(Err(gone)));
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Err(exception) = attached(|py| look_up(py, shared, callback)) {
                    shared.stop.store(true, Relaxed);
                    let _ = receiver.recv_timeout(GRACE);
                    return Err(exception);
                }
            }
        }
    }
}

/// What `ask` gives. The thread of a program that ends meanwhile goes nowhere: nobody waits for it any more, and it
/// must not return to an interpreter that is gone.
fn attached<R>(ask: impl FnOnce(Python<'_>) -> R) -> R {
    Python::try_attach(ask).unwrap_or_else(|| {
        loop {
            thread::park();
        }
    })
}

fn look_up(py: Python<'_>, shared: &Shared, callback: Option<&Py<PyAny>>) -> PyResult<()> {
    py.check_signals()?;
    if let Some(callback) = callback {
        callback.call1(py, (shared.done.load(Relaxed), shared.total.load(Relaxed)))?;
    }
    Ok(())
}
