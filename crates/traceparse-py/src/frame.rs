//! Columns of whole numbers of a frame that Python hands over as an Arrow IPC stream.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, UInt8Type, UInt32Type};
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

    /// The values of a column, `none` where there is none.
    pub(crate) fn links(&self, name: &str, none: u32) -> Outcome<Vec<u32>> {
        let mut values = Vec::new();
        for array in self.arrays(name) {
            let array = array?;
            let array = array.as_primitive_opt::<UInt32Type>().ok_or_else(|| unfit(name))?;
            if array.null_count() == 0 {
                values.extend_from_slice(array.values());
            } else {
                values.extend(array.iter().map(|value| value.unwrap_or(none)));
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
    fn wide<T: ArrowPrimitiveType<Native: Into<i64>>>(array: &ArrayRef) -> impl Iterator<Item = Option<i64>> {
        array.as_primitive::<T>().iter().map(|value| value.map(Into::into))
    }
    match array.data_type() {
        DataType::Int64 => values.extend(wide::<Int64Type>(array).map(of)),
        DataType::Int32 => values.extend(wide::<Int32Type>(array).map(of)),
        DataType::UInt32 => values.extend(wide::<UInt32Type>(array).map(of)),
        DataType::UInt8 => values.extend(wide::<UInt8Type>(array).map(of)),
        DataType::Boolean => values.extend(array.as_boolean().iter().map(|v| of(v.map(i64::from)))),
        _ => return Err(unfit(name)),
    }
    Ok(())
}

fn unfit(name: &str) -> ArrowError {
    ArrowError::SchemaError(format!("{name} is missing or of another type"))
}
