//! Writes events as Chrome JSON.

use std::io::{self, Write};

use arrow_array::RecordBatch;
use serde_json::value::RawValue;

use super::columns::{Columns, push_json, push_string};
use super::part::{Extra, Part};

/// Bytes that are collected before they are written.
pub(super) const BUFFER_BYTES: usize = 1 << 20;

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
        for event in Part::new(batches, extras)?.events(|_, row| row) {
            self.event(event.columns, event.at, event.extras);
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
