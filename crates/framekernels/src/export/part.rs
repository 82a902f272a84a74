//! The events of all batches of a part in order.

use std::io;

use arrow_array::types::UInt32Type;
use arrow_array::{BooleanArray, RecordBatch, StringViewArray};

use super::columns::Columns;
use crate::frame::{self, Frame};

/// An argument of the event with a row number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extra {
    /// Row of the event.
    pub row: u32,
    /// Its key.
    pub key: String,
    /// Its value as JSON text.
    pub value: String,
    /// Whether it is a field of the event and not an argument.
    pub is_field: bool,
}

impl Extra {
    /// The arguments in a frame of `row`, `key`, `value` and `is_field`, none null.
    ///
    /// # Errors
    /// When there is no such column.
    pub fn read(frame: &Frame) -> frame::Result<Vec<Self>> {
        let rows = frame.values::<UInt32Type>("row")?;
        let keys: &StringViewArray = frame.filled_array("key")?;
        let values: &StringViewArray = frame.filled_array("value")?;
        let fields: &BooleanArray = frame.filled_array("is_field")?;
        let extras = rows.iter().enumerate().map(|(at, &row)| Self {
            row,
            key: keys.value(at).to_owned(),
            value: values.value(at).to_owned(),
            is_field: fields.value(at),
        });
        Ok(extras.collect())
    }
}

/// The events of a part, with the arguments that are in no column.
pub(super) struct Part<'a> {
    columns: Vec<Columns>,
    extras: &'a [Extra],
}

/// An event of a part.
pub(super) struct Event<'a> {
    pub(super) columns: &'a Columns,
    pub(super) at: usize,
    pub(super) extras: &'a [Extra],
}

impl<'a> Part<'a> {
    /// The events of `batches`; `extras` are in order of their rows.
    ///
    /// # Errors
    /// A batch has columns that are not events'.
    pub(super) fn new(batches: &[RecordBatch], extras: &'a [Extra]) -> io::Result<Self> {
        let invalid = |message: String| io::Error::new(io::ErrorKind::InvalidInput, message);
        let columns = batches.iter().map(|batch| Columns::new(batch).map_err(invalid));
        Ok(Self { columns: columns.collect::<io::Result<_>>()?, extras })
    }

    /// The events in order of a key, which is made of an event's columns with its position, and its row.
    pub(super) fn events<K: Ord>(
        &self,
        key: impl Fn((&Columns, usize), u32) -> K,
    ) -> impl Iterator<Item = Event<'_>> {
        let mut order: Vec<(K, u32, &Columns, usize)> = Vec::new();
        for columns in &self.columns {
            let rows = columns.rows().iter().enumerate();
            order.extend(rows.map(|(at, &row)| (key((columns, at), row), row, columns, at)));
        }
        order.sort_by(|a, b| a.0.cmp(&b.0));
        order.into_iter().map(|(_, row, columns, at)| {
            let first = self.extras.partition_point(|extra| extra.row < row);
            let behind = self.extras.get(first..).unwrap_or_default();
            let extras = behind.get(..behind.partition_point(|extra| extra.row == row)).unwrap_or_default();
            Event { columns, at, extras }
        })
    }
}
