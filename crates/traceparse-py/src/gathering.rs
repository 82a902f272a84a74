//! Signature of `rowgroups`.

use std::path::PathBuf;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use rowgroups::{Constant, Error, ParquetError, Part, gather};

/// File, row at which it begins in it, rows, run, rank and window.
type Rows = (PathBuf, i64, i64, String, i64, i64);

/// Writes rows of several Parquet files of a table into the new file `out`, without decoding them; gives its
/// size. `ValueError` has the number of the first part whose columns differ from those of the first one.
#[pyfunction]
pub(crate) fn gather_row_groups(py: Python<'_>, parts: Vec<Rows>, out: PathBuf) -> PyResult<u64> {
    let parts: Vec<Part> = parts
        .into_iter()
        .map(|(path, first_row, rows, run, rank, window)| Part {
            path,
            first_row,
            rows,
            constants: vec![
                ("run".to_owned(), Constant::Text(run)),
                ("rank".to_owned(), Constant::Int(rank)),
                ("window".to_owned(), Constant::Int(window)),
            ],
        })
        .collect();
    py.detach(|| gather(&parts, &out)).map_err(|error| match error {
        Error::ColumnsDiffer(part) => PyValueError::new_err(part),
        Error::File(ref path, ref cause) => match system_error(cause) {
            // Which number it has decides whether a batch says that the disk is full.
            Some(number) => PyOSError::new_err((number, cause.to_string(), path.clone())),
            None => PyOSError::new_err(error.to_string()),
        },
    })
}

fn system_error(cause: &ParquetError) -> Option<i32> {
    match cause {
        ParquetError::External(inner) => inner.downcast_ref::<std::io::Error>()?.raw_os_error(),
        _ => None,
    }
}
