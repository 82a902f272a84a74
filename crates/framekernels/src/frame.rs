//! Frames: columns of equal length, as they come in and as answers go out.
//!
//! Columns come as Arrow arrays and are read where they lie. Positions and rows are `u32`, of which
//! [`NONE`] stands for null.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, UInt8Type, UInt32Type};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BooleanArray, Float64Array, Int32Array, Int64Array,
    LargeStringArray, PrimitiveArray, RecordBatch, UInt8Array, UInt32Array, make_array,
};
use arrow_buffer::{BooleanBuffer, ScalarBuffer};
use arrow_data::transform::MutableArrayData;
use arrow_schema::{ArrowError, DataType, SchemaRef};

/// No position, no row: null in a column of `u32`.
pub const NONE: u32 = u32::MAX;

/// What comes of a pass over frames. Its error is an argument that makes no sense, or a frame without a
/// column that is needed.
pub type Result<T> = std::result::Result<T, ArrowError>;

/// The columns of a frame, each in one piece.
#[derive(Debug, Clone)]
pub struct Frame {
    batch: RecordBatch,
}

impl Frame {
    /// Joins the parts of a frame; a frame of one part is taken as it is.
    ///
    /// # Errors
    ///
    /// Parts differ in their columns.
    pub fn new(schema: &SchemaRef, mut parts: Vec<RecordBatch>) -> Result<Self> {
        if parts.len() < 2 {
            let batch = parts.pop().unwrap_or_else(|| RecordBatch::new_empty(Arc::clone(schema)));
            return Ok(Self { batch });
        }
        let columns = (0..schema.fields().len()).map(|at| {
            let arrays: Vec<_> = parts.iter().map(|part| part.column(at).to_data()).collect();
            let rows = arrays.iter().map(arrow_data::ArrayData::len).sum();
            let mut whole = MutableArrayData::new(arrays.iter().collect(), false, rows);
            arrays.iter().enumerate().try_for_each(|(at, array)| whole.try_extend(at, 0, array.len()))?;
            Ok(make_array(whole.freeze()))
        });
        let columns = columns.collect::<Result<_>>()?;
        Ok(Self { batch: RecordBatch::try_new(Arc::clone(schema), columns)? })
    }

    /// The columns as a batch.
    pub fn batch(&self) -> &RecordBatch {
        &self.batch
    }

    /// The names of the columns, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.batch.schema_ref().fields().iter().map(|field| field.name().as_str())
    }

    /// Whether there is a column of this name.
    pub fn has(&self, name: &str) -> bool {
        self.batch.column_by_name(name).is_some()
    }

    /// Number of rows.
    pub fn height(&self) -> usize {
        self.batch.num_rows()
    }

    /// A column of any type.
    ///
    /// # Errors
    ///
    /// There is no column of this name.
    pub fn column(&self, name: &str) -> Result<&ArrayRef> {
        self.batch.column_by_name(name).ok_or_else(|| unfit(name))
    }

    /// A column of arrays of one type, which may hold nulls.
    ///
    /// # Errors
    ///
    /// There is no such column, or it is of another type; so of all below.
    pub fn array<A: Array + 'static>(&self, name: &str) -> Result<&A> {
        self.column(name)?.as_any().downcast_ref().ok_or_else(|| unfit(name))
    }

    /// The same, without nulls.
    pub fn filled_array<A: Array + 'static>(&self, name: &str) -> Result<&A> {
        self.array(name)
            .and_then(|array: &A| if array.null_count() == 0 { Ok(array) } else { Err(unfit(name)) })
    }

    /// The values of a column of numbers that has one in every row.
    pub fn values<T: ArrowPrimitiveType>(&self, name: &str) -> Result<&ScalarBuffer<T::Native>> {
        Ok(self.filled_array::<PrimitiveArray<T>>(name)?.values())
    }

    /// The values of a column of positions or rows, [`NONE`] where it is null.
    pub fn u32_array(&self, name: &str) -> Result<ScalarBuffer<u32>> {
        Ok(filled(self.array::<UInt32Array>(name)?, NONE))
    }

    /// The values of a column of whole numbers or truth values, 0 where it is null.
    pub fn i64_array(&self, name: &str) -> Result<ScalarBuffer<i64>> {
        Ok(filled(&self.nullable_i64(name)?, 0))
    }

    /// A column of whole numbers or truth values as 64 bits.
    pub fn nullable_i64(&self, name: &str) -> Result<Int64Array> {
        fn wide<T: ArrowPrimitiveType<Native: Into<i64>>>(array: &ArrayRef) -> Int64Array {
            array.as_primitive::<T>().unary(Into::into)
        }
        let array = self.column(name)?;
        Ok(match array.data_type() {
            DataType::Int64 => array.as_primitive().clone(),
            DataType::Int32 => wide::<Int32Type>(array),
            DataType::UInt32 => wide::<UInt32Type>(array),
            DataType::UInt8 => wide::<UInt8Type>(array),
            DataType::Boolean => array.as_boolean().iter().map(|value| value.map(i64::from)).collect(),
            _ => return Err(unfit(name)),
        })
    }

    /// The values of a column of fractions, NaN where it is null.
    pub fn f64_array(&self, name: &str) -> Result<ScalarBuffer<f64>> {
        Ok(filled(self.array::<Float64Array>(name)?, f64::NAN))
    }

    /// The values of a column of truth values, false where it is null.
    pub fn flags(&self, name: &str) -> Result<BooleanBuffer> {
        let array = self.array::<BooleanArray>(name)?;
        Ok(array.nulls().map_or_else(|| array.values().clone(), |nulls| array.values() & nulls.inner()))
    }
}

/// Whether the flag at a place is set; not where there is none.
#[inline]
pub fn is_set(flags: &BooleanBuffer, at: usize) -> bool {
    at < flags.len() && flags.value(at)
}

/// The values of an array, without a copy if none is null.
fn filled<T: ArrowPrimitiveType>(array: &PrimitiveArray<T>, null: T::Native) -> ScalarBuffer<T::Native> {
    if array.null_count() == 0 {
        return array.values().clone();
    }
    array.iter().map(|value| value.unwrap_or(null)).collect()
}

/// The refusal of a column.
pub fn unfit(name: &str) -> ArrowError {
    ArrowError::SchemaError(format!("{name} is missing, null or of another type"))
}

/// The refusal of an argument.
pub fn invalid(message: impl Into<String>) -> ArrowError {
    ArrowError::InvalidArgumentError(message.into())
}

/// A value of a column of an answer.
pub trait Value: Sized {
    /// The column of some values.
    fn column(values: impl Iterator<Item = Self>) -> ArrayRef;
}

macro_rules! values {
    ($($type:ty => $array:ty,)*) => { $(
        impl Value for $type {
            fn column(values: impl Iterator<Item = Self>) -> ArrayRef {
                // That of a vector is the vector itself.
                Arc::new(<$array>::from(Vec::from_iter(values)))
            }
        }

        impl Value for Option<$type> {
            fn column(values: impl Iterator<Item = Self>) -> ArrayRef {
                Arc::new(values.collect::<$array>())
            }
        }
    )* };
}

values! {
    bool => BooleanArray,
    u8 => UInt8Array,
    i32 => Int32Array,
    u32 => UInt32Array,
    i64 => Int64Array,
    f64 => Float64Array,
    String => LargeStringArray,
}

/// A column of an answer.
pub fn column<V: Value>(values: impl IntoIterator<Item = V>) -> ArrayRef {
    V::column(values.into_iter())
}

/// A column of positions or rows; [`NONE`] is null.
pub fn positions(values: Vec<u32>) -> ArrayRef {
    let is_known = |&value: &u32| value != NONE;
    let nulls = values.contains(&NONE).then(|| values.iter().map(is_known).collect());
    Arc::new(UInt32Array::new(values.into(), nulls))
}

/// The rows at positions; null for none.
pub fn rows_at(rows: &[u32], at: impl IntoIterator<Item = u32>) -> ArrayRef {
    positions(at.into_iter().map(|at| rows.get(at as usize).copied().unwrap_or(NONE)).collect())
}

/// A table of columns of equal length, which may hold nulls.
///
/// # Errors
///
/// Columns differ in length.
pub fn table<'a>(columns: impl IntoIterator<Item = (&'a str, ArrayRef)>) -> Result<RecordBatch> {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)))
}

/// The table with a row for each item of a slice: `records!(items, item => name: value, ...)`.
macro_rules! records {
    ($items:expr, $item:pat => $($name:ident: $value:expr),+ $(,)?) => {
        $crate::frame::table([$((
            stringify!($name),
            $crate::frame::column($items.iter().map(|$item| $value)),
        )),+])
    };
}
pub(crate) use records;

/// A frame of columns, for tests.
#[cfg(test)]
pub(crate) fn frame<const N: usize>(columns: [(&str, ArrayRef); N]) -> Frame {
    let batch = table(columns).unwrap();
    Frame::new(&batch.schema(), vec![batch]).unwrap()
}
