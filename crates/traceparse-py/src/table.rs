//! Hands a table to Python over the Arrow C stream interface.

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchIterator};
use arrow_schema::ArrowError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// Rows per batch: small enough that consumers work on cached data, large enough that the
/// overhead per batch does not show.
const BATCH_ROWS: usize = 131_072;

/// A table that any Arrow consumer can take without a copy.
#[pyclass(frozen, module = "kernelscope._traceparse")]
pub(crate) struct ArrowTable {
    batch: RecordBatch,
}

impl ArrowTable {
    pub(crate) fn new(batch: RecordBatch) -> Self {
        Self { batch }
    }

    /// The rows in slices that share the buffers of the whole; at least one, so that the
    /// columns of an empty table arrive.
    fn slices(&self) -> Vec<Result<RecordBatch, ArrowError>> {
        let rows = self.batch.num_rows();
        let starts = (0..rows.max(1)).step_by(BATCH_ROWS);
        starts.map(|start| Ok(self.batch.slice(start, BATCH_ROWS.min(rows - start)))).collect()
    }
}

#[pymethods]
impl ArrowTable {
    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    /// Exports the table; the requested schema is a hint that the protocol allows to ignore.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let batches = RecordBatchIterator::new(self.slices(), self.batch.schema());
        let stream = FFI_ArrowArrayStream::new(Box::new(batches));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}
