//! Columns of whole numbers of a frame that Python hands over as an Arrow IPC stream.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type, UInt8Type, UInt32Type};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, RecordBatch};
use arrow_ipc::reader::StreamReader;
use arrow_schema::{ArrowError, DataType};

use crate::projection::Outcome;

/// A frame, which may come in parts.
pub(crate) struct Frame {
    parts: Vec<RecordBatch>,
    names: Vec<String>,
}

impl Frame {
    /// Reads a stream.
    pub(crate) fn read(stream: &[u8]) -> Outcome<Self> {
        let reader = StreamReader::try_new(stream, None)?;
        let names = reader.schema().fields().iter().map(|field| field.name().clone()).collect();
        Ok(Self { parts: reader.collect::<Outcome<_>>()?, names })
    }

    /// The names of the columns in order.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// How many rows it has.
    pub(crate) fn height(&self) -> usize {
        self.parts.iter().map(RecordBatch::num_rows).sum()
    }

    /// The values of a column, `none` where there is none.
    pub(crate) fn links(&self, name: &str, none: u32) -> Outcome<Vec<u32>> {
        let mut values = Vec::new();
        for array in self.arrays(name) {
            let array = array?;
            let array = array.as_primitive_opt::<UInt32Type>().ok_or_else(|| unfit(name))?;
            let start = values.len();
            values.extend_from_slice(array.values());
            let Some(nulls) = array.nulls() else { continue };
            for at in (!nulls.inner()).set_indices() {
                if let Some(value) = values.get_mut(start + at) {
                    *value = none;
                }
            }
        }
        Ok(values)
    }

    /// The values of a column, 0 where there is none.
    pub(crate) fn numbers(&self, name: &str) -> Outcome<Vec<i64>> {
        let mut values = Vec::new();
        for array in self.arrays(name) {
            extend(array?, &mut values, |value: Option<i64>| value.unwrap_or(0), name)?;
        }
        Ok(values)
    }

    /// The values of a column.
    pub(crate) fn options(&self, name: &str) -> Outcome<Vec<Option<i64>>> {
        let mut values = Vec::new();
        for array in self.arrays(name) {
            extend(array?, &mut values, |value| value, name)?;
        }
        Ok(values)
    }

    /// The values of a column of fractions, NaN where there is none.
    pub(crate) fn fractions(&self, name: &str) -> Outcome<Vec<f64>> {
        let mut values = Vec::new();
        for array in self.arrays(name) {
            let array = array?.as_primitive_opt::<Float64Type>().ok_or_else(|| unfit(name))?;
            values.extend(array.iter().map(|value| value.unwrap_or(f64::NAN)));
        }
        Ok(values)
    }

    fn arrays(&self, name: &str) -> impl Iterator<Item = Outcome<&ArrayRef>> {
        self.parts.iter().map(move |part| part.column_by_name(name).ok_or_else(|| unfit(name)))
    }
}

/// Adds the values of an array of whole numbers or truth values.
fn extend<V>(
    array: &ArrayRef,
    values: &mut Vec<V>,
    of: impl Fn(Option<i64>) -> V,
    name: &str,
) -> Outcome<()> {
    fn wide<T, V>(array: &ArrayRef, values: &mut Vec<V>, of: impl Fn(Option<i64>) -> V)
    where
        T: ArrowPrimitiveType<Native: Into<i64>>,
    {
        let array = array.as_primitive::<T>();
        if array.null_count() == 0 {
            values.extend(array.values().iter().map(|&value| of(Some(value.into()))));
        } else {
            values.extend(array.iter().map(|value| of(value.map(Into::into))));
        }
    }
    match array.data_type() {
        DataType::Int64 => wide::<Int64Type, V>(array, values, of),
        DataType::Int32 => wide::<Int32Type, V>(array, values, of),
        DataType::UInt32 => wide::<UInt32Type, V>(array, values, of),
        DataType::UInt8 => wide::<UInt8Type, V>(array, values, of),
        DataType::Boolean => values.extend(array.as_boolean().iter().map(|v| of(v.map(i64::from)))),
        _ => return Err(unfit(name)),
    }
    Ok(())
}

fn unfit(name: &str) -> ArrowError {
    ArrowError::SchemaError(format!("{name} is missing or of another type"))
}
