//! Opens a file and hands it to the reader of its format.

use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::formats;
use crate::formats::format::Format;
use crate::link;
use crate::options::ReadOptions;
use crate::ranks::split;
use crate::schema::Tables;
use crate::stats::{Code, Stats};
use crate::trace::Trace;

/// Reads the trace at `path`, whatever its format, into linked tables.
///
/// # Errors
/// When the file cannot be opened, is no trace, or holds several ranks and none was chosen; with
/// [`ReadOptions::strict`], at the first loss.
pub fn read(path: &Path, options: &ReadOptions) -> Result<Trace> {
    let [trace] = <[Trace; 1]>::try_from(read_ranks(path, options)?).map_err(|traces| {
        let numbers: Vec<_> = traces.iter().filter_map(|trace| Some(trace.meta.rank?.to_string())).collect();
        let message = format!("contains several ranks ({}): choose one", numbers.join(", "));
        Error::new(ErrorKind::InvalidArgument, message).with_path(path)
    })?;
    Ok(trace)
}

/// The same of each rank in the file, as if it had been recorded alone; as a rule a file is of one.
///
/// # Errors
/// As those of [`read`].
pub fn read_ranks(path: &Path, options: &ReadOptions) -> Result<Vec<Trace>> {
    refuse_unknown(options)?;
    let in_file = |error: Error| error.with_path(path);
    let (format, file) = formats::open(path).map_err(in_file)?;
    let mut trace = format.read(file, &widened(options)).map_err(in_file)?;
    trace.meta.format = format.name();
    if trace.stats.seen == 0 {
        trace.stats.note(Code::NoEvents, None);
    }
    let mut traces = split(trace, options.rank).map_err(in_file)?;
    for trace in &mut traces {
        finish(path, format, trace, options)?;
    }
    Ok(traces)
}

/// Links a trace of a file, and leaves out what is not wanted of it.
fn finish(path: &Path, format: &dyn Format, trace: &mut Trace, options: &ReadOptions) -> Result<()> {
    // An error about a capture names that.
    let in_file = |error: Error| error.with_path(path);
    link::doubt(trace);
    if options.strict {
        trace.stats.refuse_loss().map_err(in_file)?;
    }
    refuse_absent(path, trace, options).map_err(in_file)?;
    link::filter(trace, options).map_err(in_file)?;
    if format.needs_links(options) {
        link::link(trace, options);
        if options.wants_captures() && link::has_replays(trace) {
            let captures = read_captures(path, options, &mut trace.stats)?;
            link::link_replays(trace, captures);
        }
    }
    trace.tables.keep_tables(options);
    if !format.reads_columns() {
        trace.tables.keep_columns(options);
    }
    // A part of a trace still says what is wrong with the whole.
    trace.tables.diagnostics = trace.stats.to_table(&mut trace.symbols);
    Ok(())
}

/// What to read for what is wanted: what it follows from, too.
fn widened(options: &ReadOptions) -> ReadOptions {
    link::with_filtered(&link::with_sources(&link::with_neighbours(options)))
}

/// The traces of the captures, linked, with their paths as texts; the trace at `path` itself is none of them.
fn read_captures(path: &Path, options: &ReadOptions, stats: &mut Stats) -> Result<Vec<(String, Trace)>> {
    let options_of_capture = of_everything(options);
    let mut captures = Vec::new();
    for capture in options.captures.iter().filter(|capture| capture.as_path() != path) {
        let read = || -> Result<Trace> {
            let (format, file) = formats::open(capture)?;
            let mut trace = format.read(file, &options_of_capture)?;
            link::doubt(&mut trace);
            link::link(&mut trace, &options_of_capture);
            Ok(trace)
        };
        match read() {
            Ok(trace) => captures.push((capture.to_string_lossy().into_owned(), trace)),
            Err(error) if options.captures_are_found && error.kind() != ErrorKind::Interrupted => {
                stats.note(Code::CaptureUnreadable, None);
            }
            Err(error) => return Err(error.with_path(capture)),
        }
    }
    Ok(captures)
}

/// The same way of reading, of everything there is.
fn of_everything(options: &ReadOptions) -> ReadOptions {
    ReadOptions { threads: options.threads, progress: options.progress.clone(), ..ReadOptions::default() }
}

/// Refuses a filter by a process or a GPU that nothing in the file is of.
fn refuse_absent(path: &Path, trace: &Trace, options: &ReadOptions) -> Result<()> {
    let filter = &options.filter;
    if filter.processes.is_empty() && filter.devices.is_empty() {
        return Ok(());
    }
    let present = link::Present::of(trace);
    let is_whole = options.tables.is_none() && !options.only_launching;
    if is_whole || present.has_all(filter) {
        return present.refuse_others(filter);
    }
    // The part that was read need not have any of it: what was not read decides.
    let (format, file) = formats::open(path)?;
    link::Present::of(&format.read(file, &of_everything(options))?).refuse_others(filter)
}

/// A name that no table or column has would silently select nothing.
fn refuse_unknown(options: &ReadOptions) -> Result<()> {
    if options.only_launching && !(options.wants("gpu_ops") && options.wants("launches")) {
        let message =
            "the tables gpu_ops and launches together show which calls launched GPU operations: request both";
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    if let Some(message) = options.step_range.as_deref().and_then(link::refuse_steps) {
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
