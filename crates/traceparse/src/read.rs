//! Opens a file and hands it to the reader of its format.

use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::formats;
use crate::link;
use crate::options::ReadOptions;
use crate::schema::Tables;
use crate::stats::Code;
use crate::trace::Trace;

/// Reads the trace at `path`, whatever its format, into linked tables.
///
/// # Errors
/// When the file cannot be opened or is no trace; with [`ReadOptions::strict`], at the first loss.
pub fn read(path: &Path, options: &ReadOptions) -> Result<Trace> {
    refuse_unknown(options)?;
    let in_file = |error: Error| error.with_path(path);
    let (format, file) = formats::open(path).map_err(in_file)?;
    let mut trace = format.read(file, options).map_err(in_file)?;
    trace.meta.format = format.name();
    if trace.stats.seen == 0 {
        trace.stats.note(Code::NoEvents, None);
    }
    if options.strict {
        trace.stats.refuse_loss().map_err(in_file)?;
    }
    if format.needs_links(options) {
        link::link(&mut trace, options);
    }
    trace.tables.keep_tables(options);
    if !format.reads_columns() {
        trace.tables.keep_columns(options);
    }
    // A part of a trace still says what is wrong with the whole.
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
