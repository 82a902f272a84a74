//! Puts the events of all batches of a part in order and writes them.

use std::io::{self, Write};

use arrow_array::types::UInt32Type;
use arrow_array::{BooleanArray, RecordBatch, StringViewArray};
use serde_json::value::RawValue;

use super::columns::{Columns, push_json, push_string};
use crate::frame::{self, Frame};

/// Bytes that are collected before they are written.
const BUFFER_BYTES: usize = 1 << 20;

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

/// Writes one file of events.
pub struct EventWriter<W: Write> {
    out: W,
    buffer: Vec<u8>,
    is_first: bool,
}

impl<W: Write> EventWriter<W> {
    /// Begins a file; `header` is a JSON object without `traceEvents`, whose members stand before the events.
    ///
    /// # Errors
    /// When the header is no object.
    pub fn new(out: W, header: &str) -> Result<Self, String> {
        let no_object = || "the header is no JSON object".to_owned();
        let header: &RawValue =
            serde_json::from_str(header).map_err(|error| format!("{}: {error}", no_object()))?;
        // Taken as it stands: to read numbers would change some.
        let members = header.get().strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        let members = members.ok_or_else(no_object)?.trim();
        let mut buffer = Vec::with_capacity(BUFFER_BYTES + (BUFFER_BYTES >> 2));
        buffer.push(b'{');
        if !members.is_empty() {
            buffer.extend_from_slice(members.as_bytes());
            buffer.extend_from_slice(b",\n");
        }
        buffer.extend_from_slice(b"\"traceEvents\":[\n");
        Ok(Self { out, buffer, is_first: true })
    }

    /// Writes the events of `batches` in order of their rows; `extras` are in order of their rows, too.
    ///
    /// # Errors
    /// When a batch has columns that are not events', as invalid input; when writing fails.
    pub fn write(&mut self, batches: &[RecordBatch], extras: &[Extra]) -> io::Result<()> {
        let invalid = |message: String| io::Error::new(io::ErrorKind::InvalidInput, message);
        let columns: Vec<Columns> =
            batches.iter().map(|batch| Columns::new(batch).map_err(invalid)).collect::<io::Result<_>>()?;
        let mut order: Vec<(u32, u32, u32)> = Vec::new();
        for (source, columns) in (0..).zip(&columns) {
            order.extend((0..).zip(columns.rows()).map(|(at, &row)| (row, source, at)));
        }
        order.sort_unstable();
        for (row, source, at) in order {
            let Some(columns) = columns.get(source as usize) else { continue };
            let first = extras.partition_point(|extra| extra.row < row);
            let behind = extras.get(first..).unwrap_or_default();
            let own = behind.get(..behind.partition_point(|extra| extra.row == row)).unwrap_or_default();
            self.event(columns, at as usize, own);
            if self.buffer.len() >= BUFFER_BYTES {
                self.out.write_all(&self.buffer)?;
                self.buffer.clear();
            }
        }
        Ok(())
    }

    fn event(&mut self, columns: &Columns, at: usize, extras: &[Extra]) {
        let out = &mut self.buffer;
        out.extend_from_slice(if self.is_first { b"{" } else { b",\n{" });
        self.is_first = false;
        let start = out.len();
        columns.push_fields(at, out);
        push_extras(extras, true, start, out);
        let before = out.len();
        out.extend_from_slice(if before > start { b",\"args\":{" } else { b"\"args\":{" });
        let inside = out.len();
        columns.push_args(at, out);
        push_extras(extras, false, inside, out);
        if out.len() == inside {
            out.truncate(before);
        } else {
            out.push(b'}');
        }
        out.push(b'}');
    }

    /// Ends the file and hands back what was written to.
    ///
    /// # Errors
    /// When writing fails.
    pub fn finish(mut self) -> io::Result<W> {
        self.buffer.extend_from_slice(b"\n]}\n");
        self.out.write_all(&self.buffer)?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Appends fields or arguments, each with a comma before it but the first after `start`.
fn push_extras(extras: &[Extra], fields: bool, start: usize, out: &mut Vec<u8>) {
    for extra in extras.iter().filter(|extra| extra.is_field == fields) {
        if out.len() > start {
            out.push(b',');
        }
        push_string(out, &extra.key);
        out.push(b':');
        push_json(out, &extra.value);
    }
}
