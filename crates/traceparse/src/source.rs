//! Opens a file and hands out its uncompressed bytes.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::GzDecoder;
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use crate::error::{Error, ErrorKind, Result};
use crate::stats::{Code, Stats};

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const BUFFER_BYTES: usize = 256 << 10;
/// Bytes inflated at once. Always as many, whatever the caller asks for: what a decoder hands out
/// before it meets damage depends on it.
const INFLATED_BYTES: usize = 256 << 10;
/// Largest zstd window, as a power of two; `zstd --long=31` needs this much.
const ZSTD_WINDOW_LOG: u32 = 31;
/// What the zstd library returns for a frame whose checksum is that of another content.
const ZSTD_CHECKSUM_WRONG: usize = 22_usize.wrapping_neg();

type Gzip = BufReader<GzDecoder<Input>>;

/// A file being read.
pub(crate) struct Source {
    decoder: Decoder,
    /// Name of the compression.
    pub(crate) compression: &'static str,
    /// Bytes of the file.
    pub(crate) file_bytes: u64,
    /// Uncompressed bytes handed out so far.
    pub(crate) content_bytes: u64,
    /// What is wrong with the compressed stream.
    pub(crate) stats: Stats,
}

enum Decoder {
    Plain(Input),
    Gzip(Box<Gzip>),
    Zstd(Box<ZstdFrame>),
    Done(u64),
}

impl Source {
    /// Opens the file at `path`; compression is found from its content.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let in_file = |e: std::io::Error| Error::from_io(&e).with_path(path);
        let file = File::open(path).map_err(in_file)?;
        let info = file.metadata().map_err(in_file)?;
        if info.is_dir() {
            let message = "is a folder. Pass a trace file in it";
            return Err(Error::new(ErrorKind::NotAFile, message).with_path(path));
        }
        let mut input = Input::new(file);
        input.skip_empty_frames().map_err(in_file)?;
        let compression = compression(input.peek().map_err(in_file)?);
        let decoder = match compression {
            "none" => Decoder::Plain(input),
            _ => decoder(input).map_err(in_file)?,
        };
        let file_bytes = info.len();
        Ok(Self { decoder, compression, file_bytes, content_bytes: 0, stats: Stats::default() })
    }

    /// Bytes of the file that were read so far.
    pub(crate) fn position(&self) -> u64 {
        match &self.decoder {
            Decoder::Plain(input) => input.count,
            Decoder::Gzip(decoder) => decoder.get_ref().get_ref().count,
            Decoder::Zstd(frame) => frame.input.count,
            Decoder::Done(count) => *count,
        }
    }

    /// Fills `buffer` as far as the content goes; returns the bytes written.
    ///
    /// A damaged compressed stream counts as its end: what came before is worth reading.
    pub(crate) fn fill(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            let rest = &mut buffer[filled..];
            let read = match &mut self.decoder {
                Decoder::Plain(input) => input.read(rest),
                Decoder::Gzip(decoder) => decoder.read(at_once(rest)),
                Decoder::Zstd(frame) => frame.read(at_once(rest)),
                Decoder::Done(_) => break,
            };
            match read {
                Ok(0) => self.next_member(filled as u64)?,
                Ok(bytes) => filled += bytes,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) if matches!(self.decoder, Decoder::Plain(_)) => return Err(Error::from_io(&e)),
                Err(_) => {
                    self.stats.note(Code::TruncatedCompression, Some(self.content_bytes + filled as u64));
                    self.decoder = Decoder::Done(self.position());
                }
            }
        }
        self.content_bytes += filled as u64;
        Ok(filled)
    }

    /// Goes on behind a compressed member: to the next one, or to the end.
    fn next_member(&mut self, filled: u64) -> Result<()> {
        let here = Some(self.content_bytes + filled);
        let position = self.position();
        let mut input = match std::mem::replace(&mut self.decoder, Decoder::Done(position)) {
            Decoder::Gzip(decoder) => decoder.into_inner().into_inner(),
            Decoder::Zstd(frame) => {
                if frame.wrong_checksum {
                    self.stats.note(Code::TruncatedCompression, here);
                }
                frame.input
            }
            Decoder::Plain(_) | Decoder::Done(_) => return Ok(()),
        };
        input.skip_empty_frames().map_err(|e| Error::from_io(&e))?;
        let next = input.peek().map_err(|e| Error::from_io(&e))?;
        match compression(next) {
            _ if next.is_empty() => {}
            "none" => self.stats.note(Code::TrailingGarbage, here),
            _ => self.decoder = decoder(input).map_err(|e| Error::from_io(&e))?,
        }
        Ok(())
    }
}

/// The compression of a file, or of a part of it, that starts with `start`.
fn compression(start: &[u8]) -> &'static str {
    if start.starts_with(&GZIP_MAGIC) {
        "gzip"
    } else if start.starts_with(&ZSTD_MAGIC) {
        "zstd"
    } else {
        "none"
    }
}

/// The decoder of a compressed member that starts at `input`.
fn decoder(mut input: Input) -> std::io::Result<Decoder> {
    if input.peek()?.starts_with(&GZIP_MAGIC) {
        let decoder = BufReader::with_capacity(INFLATED_BYTES, GzDecoder::new(input));
        return Ok(Decoder::Gzip(Box::new(decoder)));
    }
    Ok(Decoder::Zstd(Box::new(ZstdFrame::new(input)?)))
}

/// As much of `buffer` as a decoder fills at once. With room for all of it, nothing is copied twice.
fn at_once(buffer: &mut [u8]) -> &mut [u8] {
    let bytes = buffer.len().min(INFLATED_BYTES);
    &mut buffer[..bytes]
}

/// A frame of zstd, which ends before the next one.
///
/// The library is given no more than the bytes it asks for, a block at a time, and none while it holds content
/// that did not fit: a call that meets damage loses what it wrote before.
struct ZstdFrame {
    input: Input,
    context: DCtx<'static>,
    /// Bytes that the library asks for next; none behind the end of the frame.
    wanted: usize,
    holds_content: bool,
    wrong_checksum: bool,
}

impl ZstdFrame {
    fn new(input: Input) -> std::io::Result<Self> {
        let mut context = DCtx::create();
        let wanted = context.init().map_err(damaged_zstd)?;
        context.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG)).map_err(damaged_zstd)?;
        Ok(Self { input, context, wanted, holds_content: false, wrong_checksum: false })
    }
}

impl Read for ZstdFrame {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while self.wanted > 0 {
            let given = match self.holds_content {
                true => &[],
                false => self.input.fill_buf()?,
            };
            let given = &given[..given.len().min(self.wanted)];
            if given.is_empty() && !self.holds_content {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            let mut from = InBuffer::around(given);
            let mut to = OutBuffer::around(&mut *buffer);
            let result = self.context.decompress_stream(&mut to, &mut from);
            let (taken, written) = (from.pos(), to.pos());
            self.holds_content = written == buffer.len();
            match result {
                Ok(wanted) => {
                    self.input.consume(taken);
                    self.wanted = wanted;
                }
                Err(ZSTD_CHECKSUM_WRONG) => {
                    self.input.consume(self.wanted);
                    (self.wanted, self.wrong_checksum) = (0, true);
                }
                Err(code) => return Err(damaged_zstd(code)),
            }
            if written > 0 {
                return Ok(written);
            }
        }
        Ok(0)
    }
}

fn damaged_zstd(code: usize) -> std::io::Error {
    std::io::Error::other(zstd_safe::get_error_name(code))
}

/// A buffered file that counts the bytes taken from it.
struct Input {
    file: File,
    buffer: Vec<u8>,
    /// The part of the buffer that was read and not taken yet.
    ready: std::ops::Range<usize>,
    count: u64,
}

impl Input {
    fn new(file: File) -> Self {
        Self { file, buffer: vec![0; BUFFER_BYTES], ready: 0..0, count: 0 }
    }

    /// The next bytes, which are not taken: enough to tell what they are, unless the file ends.
    fn peek(&mut self) -> std::io::Result<&[u8]> {
        self.buffer.copy_within(self.ready.clone(), 0);
        self.ready = 0..self.ready.len();
        while self.ready.len() < ZSTD_MAGIC.len() {
            match self.file.read(&mut self.buffer[self.ready.end..]) {
                Ok(0) => break,
                Ok(bytes) => self.ready.end += bytes,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(&self.buffer[self.ready.clone()])
    }

    /// Goes on behind zstd frames without content, which parallel compressors write.
    fn skip_empty_frames(&mut self) -> std::io::Result<()> {
        while let [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] = self.peek()? {
            let mut header = [0; 8];
            let length = match self.read_exact(&mut header) {
                Ok(()) => u32::from_le_bytes([header[4], header[5], header[6], header[7]]),
                Err(_) => 0,
            };
            std::io::copy(&mut self.take(length.into()), &mut std::io::sink())?;
        }
        Ok(())
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        // A copy is worth nothing to a caller with a large buffer of its own.
        if self.ready.is_empty() && buffer.len() >= BUFFER_BYTES {
            let bytes = self.file.read(buffer)?;
            self.count += bytes as u64;
            return Ok(bytes);
        }
        let bytes = self.fill_buf()?.read(buffer)?;
        self.consume(bytes);
        Ok(bytes)
    }
}

impl BufRead for Input {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        if self.ready.is_empty() {
            self.ready = 0..self.file.read(&mut self.buffer)?;
        }
        Ok(&self.buffer[self.ready.clone()])
    }

    fn consume(&mut self, bytes: usize) {
        self.count += bytes as u64;
        self.ready.start = (self.ready.start + bytes).min(self.ready.end);
    }
}
