//! Hands a table to Python over the Arrow C stream interface.

use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchIterator, UInt32Array};
use framekernels::call_tree::NONE;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::frame::Outcome;

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

/// A column of positions or rows; [`NONE`] is null.
pub(crate) fn links(values: Vec<u32>) -> ArrayRef {
    let is_known = |&value: &u32| value != NONE;
    let nulls = values.contains(&NONE).then(|| values.iter().map(is_known).collect());
    Arc::new(UInt32Array::new(values.into(), nulls))
}

/// The rows at positions; null for none.
pub(crate) fn rows_at(rows: &[u32], positions: impl Iterator<Item = u32>) -> ArrayRef {
    links(positions.map(|at| rows.get(at as usize).copied().unwrap_or(NONE)).collect())
}

/// A table of columns that may hold nulls.
pub(crate) fn table(columns: Vec<(&str, ArrayRef)>) -> Outcome<ArrowTable> {
    let columns = columns.into_iter().map(|(name, array)| (name, array, true));
    Ok(ArrowTable::new(RecordBatch::try_from_iter_with_nullable(columns)?))
}
