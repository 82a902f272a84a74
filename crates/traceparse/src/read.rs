//! Opens a file and hands it to the reader of its format.

use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::options::ReadOptions;
use crate::trace::Trace;

/// Reads the trace at `path`, whatever its format, into linked tables.
///
/// # Errors
/// When the file cannot be opened or is no trace; with [`ReadOptions::strict`], at the first loss.
pub fn read(path: &Path, _options: &ReadOptions) -> Result<Trace> {
    Err(Error::new(ErrorKind::UnknownFormat, "no reader is built in").with_path(path))
}
