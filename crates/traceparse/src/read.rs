//! Opens a file and hands it to the reader of its format.

use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::format::{self, Format};
use crate::kineto;
use crate::link;
use crate::nsys;
use crate::options::ReadOptions;
use crate::schema::Tables;
use crate::source::Source;
use crate::stats::Code;
use crate::trace::Trace;

/// Bytes that the format is told from.
pub(crate) const HEAD_BYTES: usize = 64 << 10;

/// Reads the trace at `path`, whatever its format, into linked tables.
///
/// # Errors
/// When the file cannot be opened or is no trace; with [`ReadOptions::strict`], at the first loss.
pub fn read(path: &Path, options: &ReadOptions) -> Result<Trace> {
    if let Some(unknown) =
        options.tables.iter().flatten().find(|name| !Tables::NAMES.contains(&name.as_str()))
    {
        let message = format!("there is no table {unknown:?}; the tables are {}", Tables::NAMES.join(", "));
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    let mut source = Source::open(path)?;
    let mut head = vec![0; HEAD_BYTES];
    let filled = source.fill(&mut head)?;
    head.truncate(filled);
    let mut trace = match format::detect(&head, path)? {
        Format::Kineto { skip } => {
            head.drain(..skip);
            let head = kineto::Head { bytes: head, offset: skip as u64 };
            let mut trace = kineto::read(path, source, head, options).map_err(|e| e.with_path(path))?;
            if skip > 0 {
                trace.stats.note(Code::ByteOrderMark, Some(0));
            }
            trace
        }
        Format::Sqlite if source.compression != "none" => {
            let message = format!("is a database packed with {}; unpack it first", source.compression);
            return Err(Error::new(ErrorKind::UnknownFormat, message).with_path(path));
        }
        Format::Sqlite => nsys::read(path, options).map_err(|e| e.with_path(path))?,
    };
    link::link(&mut trace, options);
    trace.tables.keep_only(|table| options.wants(table));
    // Whoever asks for part of a trace must still see what is wrong with it.
    trace.tables.diagnostics = trace.stats.to_table(&mut trace.symbols);
    Ok(trace)
}
