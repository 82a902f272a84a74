//! Opens a file and hands it to the reader of its format.

use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::format::{self, Format};
use crate::kineto;
use crate::link;
use crate::nsys;
use crate::nvprof;
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
    refuse_unknown(options)?;
    let mut source = Source::open(path)?;
    let mut head = vec![0; HEAD_BYTES];
    let filled = source.fill(&mut head)?;
    head.truncate(filled);
    if head.is_empty() && source.stats.get(Code::TruncatedCompression).is_some() {
        let message = "is compressed and ends, or is damaged, before its content begins";
        return Err(Error::new(ErrorKind::Damaged, message).with_path(path));
    }
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
        Format::Sqlite if nvprof::is_nvprof(path) => {
            nvprof::read(path, options).map_err(|e| e.with_path(path))?
        }
        Format::Sqlite => nsys::read(path, options).map_err(|e| e.with_path(path))?,
    };
    // What a database says of GPU work and GPUs stands in the rows themselves.
    if options.wants_links() || trace.meta.format != "nsys" {
        link::link(&mut trace, options);
    }
    trace.tables.keep_tables(options);
    if trace.meta.format == "kineto" {
        // Of a database, columns that are not wanted are not read, unless they cost nothing.
        trace.tables.keep_columns(options);
    }
    // Whoever asks for part of a trace must still see what is wrong with it.
    trace.tables.diagnostics = trace.stats.to_table(&mut trace.symbols);
    Ok(trace)
}

/// A name that no table, column or kind has would silently select nothing.
fn refuse_unknown(options: &ReadOptions) -> Result<()> {
    const KINDS: [&str; 4] = ["kernel", "memcpy", "memset", "graph"];
    if let Some(unknown) = options.kinds.iter().flatten().find(|kind| !KINDS.contains(&kind.as_str())) {
        let message = format!("there is no kind of GPU work {unknown:?}; the kinds are {}", KINDS.join(", "));
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    if options.only_launching && !(options.wants("gpu_ops") && options.wants("launches")) {
        let message =
            "which calls launched GPU work is seen from the tables gpu_ops and launches: ask for both";
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    let Some(wanted) = &options.tables else { return Ok(()) };
    let known = Tables::describe();
    for (table, columns) in wanted {
        let Some((_, _, specs)) = known.iter().find(|(name, ..)| name == table) else {
            let message = format!("there is no table {table:?}; the tables are {}", Tables::NAMES.join(", "));
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        };
        if let Some(unknown) = columns.iter().find(|&column| specs.iter().all(|spec| spec.name != column)) {
            let message = format!("table {table} has no column {unknown:?}");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
    }
    Ok(())
}
