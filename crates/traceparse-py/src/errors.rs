//! Which Python exception each kind of error becomes.

use std::any::Any;
use std::path::Path;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use traceparse::{Error, ErrorKind};

/// Declares the map once, as a match that the compiler checks and as a list that tests walk.
macro_rules! error_classes {
    ($( $kind:ident => $module:literal . $class:literal, )*) => {
        /// Module and class of the exception for `kind`.
        fn class_name(kind: ErrorKind) -> (&'static str, &'static str) {
            match kind { $( ErrorKind::$kind => ($module, $class), )* }
        }

        const CLASSES: &[(&str, ErrorKind)] = &[$( (stringify!($kind), ErrorKind::$kind), )*];
    };
}

error_classes! {
    NotFound => "kernelscope.errors"."TraceNotFoundError",
    PermissionDenied => "kernelscope.errors"."TracePermissionError",
    NotAFile => "kernelscope.errors"."NotAFileError",
    UnknownFormat => "kernelscope.errors"."NotATraceError",
    Damaged => "kernelscope.errors"."TraceFormatError",
    Strict => "kernelscope.errors"."StrictError",
    Interrupted => "builtins"."KeyboardInterrupt",
    InvalidArgument => "kernelscope.errors"."InvalidArgumentError",
    Io => "kernelscope.errors"."TraceReadError",
}

fn class(py: Python<'_>, kind: ErrorKind) -> PyResult<Bound<'_, PyType>> {
    let (module, name) = class_name(kind);
    Ok(py.import(module)?.getattr(name)?.cast_into::<PyType>()?)
}

/// The Python exception for `error`.
pub(crate) fn to_python(py: Python<'_>, error: &Error) -> PyErr {
    build(py, error).unwrap_or_else(|failure| failure)
}

fn build(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let class = class(py, error.kind())?;
    if error.kind() == ErrorKind::Interrupted {
        return Ok(PyErr::from_value(class.call0()?));
    }
    let options = PyDict::new(py);
    options.set_item("path", error.path().map(Path::as_os_str))?;
    options.set_item("offset", error.offset())?;
    Ok(PyErr::from_value(class.call((error.to_string(),), Some(&options))?))
}

/// The exception for a panic: a fault of this library, whatever the file holds.
pub(crate) fn from_panic(py: Python<'_>, panic: &(dyn Any + Send)) -> PyErr {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let cause = text.unwrap_or("unknown cause");
    let message = format!("internal error: {cause}. Please report it with the trace");
    let build = || -> PyResult<PyErr> {
        let class = py.import("kernelscope.errors")?.getattr("InternalError")?;
        Ok(PyErr::from_value(class.call1((message,))?))
    };
    build().unwrap_or_else(|failure| failure)
}

/// The exception class of every kind of error, by the kind's name.
#[pyfunction]
pub(crate) fn error_classes(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let classes = PyDict::new(py);
    for &(name, kind) in CLASSES {
        classes.set_item(name, class(py, kind)?)?;
    }
    Ok(classes)
}
