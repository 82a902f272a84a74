//! Cuts the content into chunks that end between events where possible.

use super::boundary;
use crate::error::Result;
use crate::source::Source;

/// Bytes of a cut event that are carried to the next chunk at most.
const MAX_CARRY: usize = 256 << 10;

/// A piece of the content.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    /// The buffer; only the first `len` bytes count.
    buffer: Vec<u8>,
    len: usize,
    /// Position in the sequence of chunks.
    pub(crate) index: u64,
    /// Offset of the first byte in the content.
    pub(crate) offset: u64,
    /// Whether the chunk begins where an event begins.
    pub(crate) starts_event: bool,
    /// Whether nothing follows.
    pub(crate) is_last: bool,
    /// Share of the file that has been read with this chunk.
    pub(crate) file_share: f64,
}

impl Chunk {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

/// Reads chunks, one after the other.
pub(crate) struct Feed {
    /// Bytes taken from the source to tell the format, and how many of them were handed out.
    head: Vec<u8>,
    head_used: usize,
    source: Source,
    chunk_bytes: usize,
    /// Bytes read but not handed out.
    carry: Vec<u8>,
    offset: u64,
    next_index: u64,
    starts_event: bool,
    is_done: bool,
}

impl Feed {
    /// A feed of the bytes of `head` and then those of `source`; `offset` is that of `head`.
    pub(crate) fn new(source: Source, head: Vec<u8>, offset: u64, chunk_bytes: usize) -> Self {
        Self {
            head,
            head_used: 0,
            source,
            chunk_bytes,
            carry: Vec::new(),
            offset,
            next_index: 0,
            starts_event: false,
            is_done: false,
        }
    }

    /// Bytes of the file read so far, and in all.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.source.position(), self.source.file_bytes)
    }

    pub(crate) fn into_source(self) -> Source {
        self.source
    }

    /// Reads the next chunk into `chunk`; false at the end.
    pub(crate) fn next_chunk(&mut self, chunk: &mut Chunk) -> Result<bool> {
        if self.is_done {
            return Ok(false);
        }
        let carried = self.carry.len();
        let want = carried + self.chunk_bytes;
        if chunk.buffer.len() < want {
            chunk.buffer.resize(want, 0);
        }
        chunk.buffer[..carried].copy_from_slice(&self.carry);
        self.carry.clear();
        let filled = self.fill(&mut chunk.buffer[carried..want])?;
        chunk.len = carried + filled;
        chunk.index = self.next_index;
        chunk.offset = self.offset;
        chunk.starts_event = self.starts_event;
        chunk.is_last = filled < self.chunk_bytes;
        let (done, total) = self.progress();
        chunk.file_share = done as f64 / total.max(1) as f64;
        self.is_done = chunk.is_last;
        if !chunk.is_last {
            let search_from = chunk.len.saturating_sub(MAX_CARRY);
            let cut = boundary::rfind(&chunk.bytes()[search_from..]).map(|at| search_from + at);
            if let Some(cut) = cut.filter(|&cut| cut > 0) {
                self.carry.extend_from_slice(&chunk.bytes()[cut..]);
                chunk.len = cut;
            }
            self.starts_event = cut.is_some();
        }
        self.offset += chunk.len as u64;
        self.next_index += 1;
        Ok(true)
    }

    /// Fills `buffer` as far as the content goes; returns the bytes written.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let rest = &self.head[self.head_used..];
        let from_head = rest.len().min(buffer.len());
        buffer[..from_head].copy_from_slice(&rest[..from_head]);
        self.head_used += from_head;
        Ok(from_head + self.source.fill(&mut buffer[from_head..])?)
    }
}
