//! Opens a file and hands out its uncompressed bytes.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::GzDecoder;
use ruzstd::decoding::StreamingDecoder;

use crate::error::{Error, ErrorKind, Result};
use crate::stats::{Code, Stats};

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const BUFFER_BYTES: usize = 256 << 10;
/// Largest zstd window; `zstd --long=31` needs this much.
const ZSTD_WINDOW_BYTES: u64 = 2 << 30;

type Input = Counted<BufReader<File>>;

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
    Gzip(Box<GzDecoder<Input>>),
    Zstd(Box<StreamingDecoder<Input, ruzstd::decoding::FrameDecoder>>),
    Done(u64),
}

impl Source {
    /// Opens the file at `path`; compression is found from its content.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let in_file = |e: std::io::Error| Error::from_io(&e).with_path(path);
        let file = File::open(path).map_err(in_file)?;
        let info = file.metadata().map_err(in_file)?;
        if info.is_dir() {
            let message = "is a folder; name a trace file in it";
            return Err(Error::new(ErrorKind::NotAFile, message).with_path(path));
        }
        let mut input = Counted { inner: BufReader::with_capacity(BUFFER_BYTES, file), count: 0 };
        let start = input.fill_buf().map_err(in_file)?;
        let (compression, decoder) = if start.starts_with(&GZIP_MAGIC) {
            ("gzip", Decoder::Gzip(Box::new(GzDecoder::new(input))))
        } else if start.starts_with(&ZSTD_MAGIC) {
            ("zstd", zstd_frame(input).map_err(|e| Error::new(ErrorKind::Damaged, e).with_path(path))?)
        } else {
            ("none", Decoder::Plain(input))
        };
        let file_bytes = info.len();
        Ok(Self { decoder, compression, file_bytes, content_bytes: 0, stats: Stats::default() })
    }

    /// Bytes of the file that were read so far.
    pub(crate) fn position(&self) -> u64 {
        match &self.decoder {
            Decoder::Plain(input) => input.count,
            Decoder::Gzip(decoder) => decoder.get_ref().count,
            Decoder::Zstd(decoder) => decoder.get_ref().count,
            Decoder::Done(count) => *count,
        }
    }

    /// Fills `buffer` as far as the content goes; returns the bytes written.
    ///
    /// A damaged compressed stream counts as its end: what came before is worth reading.
    pub(crate) fn fill(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            let read = match &mut self.decoder {
                Decoder::Plain(input) => input.read(&mut buffer[filled..]),
                Decoder::Gzip(decoder) => decoder.read(&mut buffer[filled..]),
                Decoder::Zstd(decoder) => decoder.read(&mut buffer[filled..]),
                Decoder::Done(_) => break,
            };
            match read {
                Ok(0) => self.next_member()?,
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
    fn next_member(&mut self) -> Result<()> {
        let position = self.position();
        let mut input = match std::mem::replace(&mut self.decoder, Decoder::Done(position)) {
            Decoder::Gzip(decoder) => decoder.into_inner(),
            Decoder::Zstd(decoder) => decoder.into_inner(),
            Decoder::Plain(_) | Decoder::Done(_) => return Ok(()),
        };
        let rest = input.fill_buf().map_err(|e| Error::from_io(&e))?;
        if rest.is_empty() {
            return Ok(());
        }
        if rest.starts_with(&GZIP_MAGIC) {
            self.decoder = Decoder::Gzip(Box::new(GzDecoder::new(input)));
        } else if rest.starts_with(&ZSTD_MAGIC)
            && let Ok(decoder) = zstd_frame(input)
        {
            self.decoder = decoder;
        } else {
            self.stats.note(Code::TrailingGarbage, Some(self.content_bytes));
        }
        Ok(())
    }
}

fn zstd_frame(input: Input) -> std::result::Result<Decoder, String> {
    let decoder = StreamingDecoder::new_with_max_window_size(input, ZSTD_WINDOW_BYTES)
        .map_err(|e| format!("is a damaged zstd file: {e}"))?;
    Ok(Decoder::Zstd(Box::new(decoder)))
}

/// A reader that counts the bytes taken from it.
struct Counted<R> {
    inner: R,
    count: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let bytes = self.inner.read(buffer)?;
        self.count += bytes as u64;
        Ok(bytes)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.count += bytes as u64;
        self.inner.consume(bytes);
    }
}
