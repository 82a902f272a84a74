//! Compresses what Python puts into documents.

use framekernels::pack::gzipped;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::answer::answer;

/// The gzip file of `content`, the same each time; `level` is one of zlib's.
#[pyfunction]
pub(crate) fn gzip<'py>(py: Python<'py>, content: &[u8], level: u32) -> PyResult<Bound<'py, PyBytes>> {
    let packed = answer(py, || Ok(gzipped(content, level)?))?;
    Ok(PyBytes::new(py, &packed))
}
