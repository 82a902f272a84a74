//! Frames that Python hands over: their columns, where Python has them.

use std::borrow::Cow;

use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::RecordBatchStreamReader;
use arrow_array::types::{Float64Type, Int32Type, Int64Type, UInt8Type, UInt32Type};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, Int64Array, PrimitiveArray, RecordBatch, RecordBatchReader,
    UInt32Array,
};
use arrow_schema::{ArrowError, DataType};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// What comes of looking at the columns of a frame.
pub(crate) type Outcome<T> = std::result::Result<T, ArrowError>;

/// A frame, which may come in parts: whatever has the method `__arrow_c_stream__`.
pub(crate) struct Frame {
    parts: Vec<RecordBatch>,
    names: Vec<String>,
}

/// The values of a column of whole numbers, which may lack some.
pub(crate) enum MaybeNumbers<'a> {
    Known(Cow<'a, [i64]>),
    Options(Vec<Option<i64>>),
}

impl MaybeNumbers<'_> {
    /// The same, to be looked at row by row.
    pub(crate) fn view(&self) -> Numbers<'_> {
        match self {
            Self::Known(values) => Numbers::Known(values),
            Self::Options(values) => Numbers::Options(values),
        }
    }
}

/// The values of a column of whole numbers, which may lack some.
#[derive(Clone, Copy)]
pub(crate) enum Numbers<'a> {
    Known(&'a [i64]),
    Options(&'a [Option<i64>]),
}

impl Numbers<'_> {
    /// The value of a row.
    #[inline]
    pub(crate) fn get(self, row: usize) -> Option<i64> {
        match self {
            Self::Known(values) => values.get(row).copied(),
            Self::Options(values) => values.get(row).copied().flatten(),
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Frame {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let capsule = object.call_method0("__arrow_c_stream__")?.cast_into::<PyCapsule>()?;
        let unfit = |error: ArrowError| PyTypeError::new_err(format!("the frame cannot be taken: {error}"));
        let reader = reader_of(&capsule)?.map_err(unfit)?;
        let names = reader.schema().fields().iter().map(|field| field.name().clone()).collect();
        Ok(Self { parts: reader.collect::<Outcome<_>>().map_err(unfit)?, names })
    }
}

/// Moves the stream out of a capsule, which is left with one that is released.
#[allow(unsafe_code, reason = "the C stream interface hands over a pointer")]
fn reader_of(capsule: &Bound<'_, PyCapsule>) -> PyResult<Outcome<RecordBatchStreamReader>> {
    let stream = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
    // SAFETY: by the PyCapsule interface of Arrow, a capsule of this name holds a pointer to a valid
    // ArrowArrayStream, which belongs to the consumer that moves it out; the interpreter is held, so nobody
    // else does at the same time.
    Ok(unsafe { RecordBatchStreamReader::from_raw(stream.cast().as_ptr()) })
}

impl Frame {
    /// The parts, one after the other.
    pub(crate) fn parts(&self) -> &[RecordBatch] {
        &self.parts
    }

    /// The names of the columns in order.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether there is a column of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// How many rows it has.
    pub(crate) fn height(&self) -> usize {
        self.parts.iter().map(RecordBatch::num_rows).sum()
    }

    /// The values of a column, `none` where there is none.
    pub(crate) fn links(&self, name: &str, none: u32) -> Outcome<Cow<'_, [u32]>> {
        if let Some(values) = self.whole::<UInt32Type>(name) {
            return Ok(Cow::Borrowed(values));
        }
        let mut values = Vec::with_capacity(self.height());
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
        Ok(Cow::Owned(values))
    }

    /// The same, in an array that holds on to the memory of the frame where it can.
    pub(crate) fn kept_links(&self, name: &str, none: u32) -> Outcome<UInt32Array> {
        if let Some(array) = self.whole_array::<UInt32Type>(name) {
            return Ok(array.clone());
        }
        Ok(UInt32Array::from(self.links(name, none)?.into_owned()))
    }

    /// What `of` makes of the values of a column, `none` where there is none.
    pub(crate) fn map_links(
        &self,
        name: &str,
        none: u32,
        mut of: impl FnMut(u32) -> u32,
    ) -> Outcome<Vec<u32>> {
        let mut values = Vec::with_capacity(self.height());
        for array in self.arrays_of::<UInt32Type>(name)? {
            match array.nulls() {
                None => values.extend(array.values().iter().map(|&value| of(value))),
                Some(nulls) => {
                    let known = array.values().iter().zip(nulls);
                    values.extend(known.map(|(&value, is_known)| of(if is_known { value } else { none })));
                }
            }
        }
        Ok(values)
    }

    /// The values of a column, 0 where there is none, in an array that holds on to the memory of the frame
    /// where it can.
    pub(crate) fn kept_numbers(&self, name: &str) -> Outcome<Int64Array> {
        if let Some(array) = self.whole_array::<Int64Type>(name) {
            return Ok(array.clone());
        }
        Ok(Int64Array::from(self.numbers(name)?.into_owned()))
    }

    /// The values of a column, which may be null, in an array that holds on to the memory of the frame where
    /// it can.
    pub(crate) fn kept<T: ArrowPrimitiveType>(&self, name: &str) -> Outcome<PrimitiveArray<T>> {
        match self.arrays_of::<T>(name)?.as_slice() {
            [array] => Ok((*array).clone()),
            arrays => Ok(arrays.iter().flat_map(|array| array.iter()).collect()),
        }
    }

    /// The truth values of a column, false where there is none.
    pub(crate) fn flags(&self, name: &str) -> Outcome<Vec<bool>> {
        let mut values = Vec::with_capacity(self.height());
        for array in self.arrays(name) {
            let array = array?.as_boolean_opt().ok_or_else(|| unfit(name))?;
            if array.null_count() == 0 {
                values.extend(array.values().iter());
            } else {
                values.extend(array.iter().map(|value| value.unwrap_or(false)));
            }
        }
        Ok(values)
    }

    /// Which rows of a column have a value; nothing where all do.
    pub(crate) fn known(&self, name: &str) -> Outcome<Option<Vec<bool>>> {
        let arrays = self.arrays(name).collect::<Outcome<Vec<_>>>()?;
        if arrays.iter().all(|array| array.null_count() == 0) {
            return Ok(None);
        }
        let of = |array: &&ArrayRef| (0..array.len()).map(|at| array.is_valid(at)).collect::<Vec<_>>();
        Ok(Some(arrays.iter().flat_map(of).collect()))
    }

    /// The values of a column, 0 where there is none.
    pub(crate) fn numbers(&self, name: &str) -> Outcome<Cow<'_, [i64]>> {
        if let Some(values) = self.whole::<Int64Type>(name) {
            return Ok(Cow::Borrowed(values));
        }
        let mut values = Vec::with_capacity(self.height());
        for array in self.arrays(name) {
            extend(array?, &mut values, |value: Option<i64>| value.unwrap_or(0), name)?;
        }
        Ok(Cow::Owned(values))
    }

    /// The values of a column, where it has them if it has one in every row.
    pub(crate) fn maybe_numbers(&self, name: &str) -> Outcome<MaybeNumbers<'_>> {
        match self.values::<Int64Type>(name) {
            Ok(values) => Ok(MaybeNumbers::Known(values)),
            Err(_) => Ok(MaybeNumbers::Options(self.options(name)?)),
        }
    }

    /// The values of a column.
    pub(crate) fn options(&self, name: &str) -> Outcome<Vec<Option<i64>>> {
        let mut values = Vec::with_capacity(self.height());
        for array in self.arrays(name) {
            extend(array?, &mut values, |value| value, name)?;
        }
        Ok(values)
    }

    /// The values of a column of fractions, NaN where there is none.
    pub(crate) fn fractions(&self, name: &str) -> Outcome<Vec<f64>> {
        let mut values = Vec::with_capacity(self.height());
        for array in self.arrays(name) {
            let array = array?.as_primitive_opt::<Float64Type>().ok_or_else(|| unfit(name))?;
            if array.null_count() == 0 {
                values.extend_from_slice(array.values());
            } else {
                values.extend(array.iter().map(|value| value.unwrap_or(f64::NAN)));
            }
        }
        Ok(values)
    }

    /// The values of a column that has one in every row.
    pub(crate) fn values<T: ArrowPrimitiveType>(&self, name: &str) -> Outcome<Cow<'_, [T::Native]>> {
        if let Some(values) = self.whole::<T>(name) {
            return Ok(Cow::Borrowed(values));
        }
        let mut values = Vec::with_capacity(self.height());
        for array in self.arrays(name) {
            let array = array?.as_primitive_opt::<T>().filter(|array| array.null_count() == 0);
            values.extend_from_slice(array.ok_or_else(|| unfit(name))?.values());
        }
        Ok(Cow::Owned(values))
    }

    /// The arrays of a column, one after the other.
    pub(crate) fn arrays_of<T: ArrowPrimitiveType>(&self, name: &str) -> Outcome<Vec<&PrimitiveArray<T>>> {
        self.arrays_as(name)
    }

    /// The same, of a column of any type.
    pub(crate) fn arrays_as<A: Array + 'static>(&self, name: &str) -> Outcome<Vec<&A>> {
        self.arrays(name).map(|array| array?.as_any().downcast_ref().ok_or_else(|| unfit(name))).collect()
    }

    /// The values of a column that has one in every row and lies in one piece.
    fn whole<T: ArrowPrimitiveType>(&self, name: &str) -> Option<&[T::Native]> {
        self.whole_array::<T>(name).map(|array| array.values().as_ref())
    }

    fn whole_array<T: ArrowPrimitiveType>(&self, name: &str) -> Option<&PrimitiveArray<T>> {
        let [part] = self.parts.as_slice() else { return None };
        let array = part.column_by_name(name)?.as_primitive_opt::<T>()?;
        (array.null_count() == 0).then_some(array)
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
    ArrowError::SchemaError(format!("{name} is missing, null or of another type"))
}

/// A column of integers of a batch that Python handed over.
pub(crate) fn column<'a, T: ArrowPrimitiveType>(
    batch: &'a RecordBatch,
    name: &str,
) -> Outcome<&'a PrimitiveArray<T>> {
    filled(batch, name)
}

/// A column of any kind that has a value in every row.
pub(crate) fn filled<'a, A: Array + 'static>(batch: &'a RecordBatch, name: &str) -> Outcome<&'a A> {
    let column = optional(batch, name).filter(|array: &&A| array.null_count() == 0);
    column.ok_or_else(|| unfit(name))
}

/// A column that may hold nulls.
pub(crate) fn nullable<'a, A: Array + 'static>(batch: &'a RecordBatch, name: &str) -> Outcome<&'a A> {
    optional(batch, name)
        .ok_or_else(|| ArrowError::SchemaError(format!("{name} is missing or of another type")))
}

/// A column that need not be there.
pub(crate) fn optional<'a, A: Array + 'static>(batch: &'a RecordBatch, name: &str) -> Option<&'a A> {
    batch.column_by_name(name).and_then(|array| array.as_any().downcast_ref::<A>())
}
