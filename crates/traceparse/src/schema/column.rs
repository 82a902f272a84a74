//! Growable columns: the storage behind every table.

use arrow_array::types::{ArrowPrimitiveType, Float64Type, Int32Type, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{ArrayRef, BooleanArray, FixedSizeListArray, PrimitiveArray};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, NullBuffer, NullBufferBuilder};
use arrow_schema::{DataType, Field};
use std::sync::Arc;

use super::symbols::{DictionaryBuilder, Symbol};
use super::values::Values;

/// A column of `T` in which any row may be null.
///
/// A column that has only ever held nulls stores a length and nothing else: most
/// optional arguments never occur in a given trace, and such a column must not
/// cost memory per row.
#[derive(Debug)]
pub struct Column<T> {
    values: Values<T>,
    /// Leading nulls that `values` does not hold yet; non-zero only while `values` is empty.
    pending_nulls: usize,
    validity: NullBufferBuilder,
}

impl<T: Copy + Default> Default for Column<T> {
    fn default() -> Self {
        Self { values: Values::default(), pending_nulls: 0, validity: NullBufferBuilder::new(0) }
    }
}

impl<T: Copy + Default> Column<T> {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.values.len() + self.pending_nulls
    }

    /// Whether the column has no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether no row holds a value.
    pub fn is_all_null(&self) -> bool {
        self.values.is_empty()
    }

    /// Appends one row.
    #[inline]
    pub fn push(&mut self, value: Option<T>) {
        match value {
            Some(v) => {
                self.settle_nulls();
                self.values.own().push(v);
                self.validity.append_non_null();
            }
            None if self.values.is_empty() => self.pending_nulls += 1,
            None => {
                self.values.own().push(T::default());
                self.validity.append_null();
            }
        }
    }

    /// The value of row `index`; null and out of range are both `None`.
    #[inline]
    pub fn get(&self, index: usize) -> Option<T> {
        let value = *self.values.get(index)?;
        self.validity.is_valid(index).then_some(value)
    }

    /// Every row in order.
    pub fn iter(&self) -> impl Iterator<Item = Option<T>> + '_ {
        (0..self.len()).map(|i| self.get(i))
    }

    /// Applies `change` to every stored value, nulls' placeholders included.
    pub fn map_in_place(&mut self, change: impl Fn(T) -> T) {
        for value in self.values.own() {
            *value = change(*value);
        }
    }

    /// Moves every row of `other` behind the rows of `self`.
    pub fn append(&mut self, other: &mut Self) {
        if other.values.is_empty() {
            let nulls = std::mem::take(&mut other.pending_nulls);
            if self.values.is_empty() {
                self.pending_nulls += nulls;
            } else {
                let rows = self.values.len() + nulls;
                self.values.own().resize(rows, T::default());
                self.validity.append_n_nulls(nulls);
            }
            return;
        }
        self.settle_nulls();
        let rows = other.values.len();
        self.values.own().append(other.values.own());
        match other.validity.finish() {
            Some(nulls) => self.validity.append_buffer(&nulls),
            None => self.validity.append_n_non_nulls(rows),
        }
    }

    /// Removes every row and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.values.own().clear();
        self.pending_nulls = 0;
        self.validity = NullBufferBuilder::new(0);
    }

    /// Makes every row null, which takes no memory.
    pub(crate) fn forget(&mut self) {
        *self = Self { pending_nulls: self.len(), ..Self::default() };
    }

    /// Keeps the rows that have a flag.
    pub(crate) fn keep(&mut self, flags: &[bool]) {
        let kept = self.iter().zip(flags).filter_map(|(value, &stays)| stays.then_some(value));
        *self = kept.collect();
    }

    /// The rows with these indices, in their order.
    pub(crate) fn chosen(&self, indices: &[usize]) -> Self {
        if self.is_all_null() {
            return Self { pending_nulls: indices.len(), ..Self::default() };
        }
        indices.iter().map(|&index| self.get(index)).collect()
    }

    /// Makes room for `factor` times the rows it has.
    ///
    /// Memory that is reserved and never used costs nothing; a column that grows by doubling leaves
    /// its former places behind as holes in the heap.
    pub(crate) fn reserve_times(&mut self, factor: f64) {
        let more = (self.values.len() as f64 * (factor - 1.0)).max(0.0);
        self.values.own().reserve_exact(more as usize);
    }

    /// A column without nulls.
    pub fn from_values(values: Vec<T>) -> Self {
        let mut validity = NullBufferBuilder::new(0);
        validity.append_n_non_nulls(values.len());
        Self { values: values.into(), pending_nulls: 0, validity }
    }

    /// A column of `values` in which every `null` is a null.
    pub fn from_sentinel(values: Vec<T>, null: T) -> Self
    where
        T: PartialEq,
    {
        let valid = BooleanBuffer::collect_bool(values.len(), |i| values[i] != null);
        let valid_rows = valid.count_set_bits();
        if valid_rows == values.len() {
            return Self::from_values(values);
        }
        if valid_rows == 0 {
            return Self { pending_nulls: values.len(), ..Self::default() };
        }
        let mut validity = NullBufferBuilder::new(0);
        validity.append_buffer(&NullBuffer::new(valid));
        Self { values: values.into(), pending_nulls: 0, validity }
    }

    /// Raw values, placeholders of nulls included; empty for a column of nulls only.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    #[inline]
    fn settle_nulls(&mut self) {
        if self.pending_nulls > 0 {
            self.store_pending_nulls();
        }
    }

    #[cold]
    fn store_pending_nulls(&mut self) {
        let nulls = std::mem::take(&mut self.pending_nulls);
        let values = self.values.own();
        if values.capacity() < nulls {
            *values = vec![T::default(); nulls];
        } else {
            values.resize(nulls, T::default());
        }
        self.validity.append_n_nulls(nulls);
    }

    /// Another column of the same rows, which take memory once until one of the columns changes.
    pub(crate) fn share(&mut self) -> Self {
        let mut validity = NullBufferBuilder::new(0);
        match self.validity.finish_cloned() {
            Some(nulls) => validity.append_buffer(&nulls),
            None => validity.append_n_non_nulls(self.values.len()),
        }
        Self { values: self.values.share(), pending_nulls: self.pending_nulls, validity }
    }

    /// Whether the rows take the memory of those of `other`.
    pub(crate) fn shares_with(&self, other: &Self) -> bool {
        self.values.shares_with(&other.values)
    }

    /// Values and validity.
    fn finish(mut self) -> (Values<T>, Option<NullBuffer>) {
        self.settle_nulls();
        let nulls = self.validity.finish();
        (self.values, nulls)
    }
}

impl<T: Copy + Default> FromIterator<Option<T>> for Column<T> {
    fn from_iter<I: IntoIterator<Item = Option<T>>>(rows: I) -> Self {
        let mut column = Self::default();
        for row in rows {
            column.push(row);
        }
        column
    }
}

/// A type that a table cell can have, and the Arrow column that holds it.
pub trait Cell {
    /// What is stored per row.
    type Stored: Copy + Default + std::fmt::Debug;
    /// Whether the column admits nulls.
    const NULLABLE: bool;
    /// Whether the value points at something: such a column must say at what.
    const IS_POSITION: bool = false;
    /// The Arrow type of the exported column.
    fn data_type() -> DataType;
    /// The stored form of one cell.
    fn store(self) -> Option<Self::Stored>;
    /// Exports a finished column.
    fn export(column: Column<Self::Stored>, dictionary: &mut DictionaryBuilder<'_>) -> ArrayRef;
}

fn primitive<A: ArrowPrimitiveType>(column: Column<A::Native>) -> ArrayRef {
    let (values, nulls) = column.finish();
    Arc::new(PrimitiveArray::<A>::new(values.into(), nulls))
}

macro_rules! primitive_cell {
    ($native:ty, $arrow:ty, $data_type:expr, $is_position:literal) => {
        impl Cell for $native {
            type Stored = $native;
            const NULLABLE: bool = false;
            const IS_POSITION: bool = $is_position;
            fn data_type() -> DataType {
                $data_type
            }
            #[inline]
            fn store(self) -> Option<$native> {
                Some(self)
            }
            fn export(column: Column<$native>, _: &mut DictionaryBuilder<'_>) -> ArrayRef {
                primitive::<$arrow>(column)
            }
        }
    };
}
primitive_cell!(u32, UInt32Type, DataType::UInt32, true);
primitive_cell!(u64, UInt64Type, DataType::UInt64, false);
primitive_cell!(i32, Int32Type, DataType::Int32, false);
primitive_cell!(i64, Int64Type, DataType::Int64, false);
primitive_cell!(f64, Float64Type, DataType::Float64, false);

impl Cell for bool {
    type Stored = bool;
    const NULLABLE: bool = false;
    fn data_type() -> DataType {
        DataType::Boolean
    }
    #[inline]
    fn store(self) -> Option<bool> {
        Some(self)
    }
    fn export(column: Column<bool>, _: &mut DictionaryBuilder<'_>) -> ArrayRef {
        let (values, nulls) = column.finish();
        let mut bits = BooleanBufferBuilder::new(values.len());
        bits.append_slice(&values);
        Arc::new(BooleanArray::new(bits.finish(), nulls))
    }
}

impl Cell for Symbol {
    type Stored = Symbol;
    const NULLABLE: bool = false;
    fn data_type() -> DataType {
        DataType::Dictionary(Box::new(DataType::UInt32), Box::new(DataType::Utf8))
    }
    #[inline]
    fn store(self) -> Option<Symbol> {
        Some(self)
    }
    fn export(column: Column<Symbol>, dictionary: &mut DictionaryBuilder<'_>) -> ArrayRef {
        let (symbols, nulls) = column.finish();
        dictionary.encode(symbols.into(), nulls)
    }
}

/// Three numbers, such as the sizes of a launch in x, y and z.
impl Cell for [i32; 3] {
    type Stored = [i32; 3];
    const NULLABLE: bool = false;
    fn data_type() -> DataType {
        DataType::new_fixed_size_list(DataType::Int32, 3, true)
    }
    #[inline]
    fn store(self) -> Option<[i32; 3]> {
        Some(self)
    }
    fn export(column: Column<[i32; 3]>, _: &mut DictionaryBuilder<'_>) -> ArrayRef {
        let (values, nulls) = column.finish();
        let numbers = PrimitiveArray::<Int32Type>::from(Vec::from(values).into_flattened());
        let field = Field::new_list_field(DataType::Int32, true);
        Arc::new(FixedSizeListArray::new(Arc::new(field), 3, Arc::new(numbers), nulls))
    }
}

impl<C: Cell> Cell for Option<C> {
    type Stored = C::Stored;
    const NULLABLE: bool = true;
    const IS_POSITION: bool = C::IS_POSITION;
    fn data_type() -> DataType {
        C::data_type()
    }
    #[inline]
    fn store(self) -> Option<C::Stored> {
        self.and_then(C::store)
    }
    fn export(column: Column<C::Stored>, dictionary: &mut DictionaryBuilder<'_>) -> ArrayRef {
        C::export(column, dictionary)
    }
}
