//! Turns records into text and hands it on in large pieces.

use std::io::{self, Write};

use crate::library::Library;
use crate::options::Layout;
use crate::shape::Shape;
use crate::template::{Record, Template};
use crate::timeline::{MOVED, Records};

/// Text of a trace on its way out.
pub(crate) struct Sink<'a, W: Write> {
    out: &'a mut W,
    layout: Layout,
    buffer: Vec<u8>,
    written: u64,
    is_first: bool,
    event_index: i64,
}

impl<'a, W: Write> Sink<'a, W> {
    /// An empty sink.
    pub(crate) fn new(out: &'a mut W, layout: Layout) -> Self {
        Self { out, layout, buffer: Vec::new(), written: 0, is_first: true, event_index: 0 }
    }

    /// Adds text that is no event.
    pub(crate) fn text(&mut self, text: &str) {
        self.buffer.extend_from_slice(text.as_bytes());
    }

    fn event(&mut self, template: &Template, record: &Record) {
        if !self.is_first {
            self.buffer.extend_from_slice(self.layout.separator().as_bytes());
        }
        self.is_first = false;
        template.render(&mut self.buffer, record, &mut self.event_index);
    }

    /// Writes an event that has no template in the library.
    pub(crate) fn single(&mut self, shape: &Shape, start_ns: i64, dur_ns: i64, values: [i64; 3]) {
        let template = self.layout.template(shape);
        self.event(&template, &Record { template: 0, start_ns, dur_ns, values });
    }

    /// Writes the records of a step.
    pub(crate) fn records(&mut self, library: &Library, records: &Records) {
        for record in records.in_order().filter(|record| record.template != MOVED) {
            self.event(&library.templates[record.template as usize], record);
        }
    }

    /// Bytes handed on so far.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Hands on what is left.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.flush()?;
        self.out.flush()
    }

    /// Hands on the text so far.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}
