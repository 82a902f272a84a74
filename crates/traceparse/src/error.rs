//! The one error type of the crate.

use std::fmt;
use std::path::{Path, PathBuf};

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The path does not exist.
    NotFound,
    /// The path may not be read.
    PermissionDenied,
    /// The path is a folder, or otherwise no file with a trace in it.
    NotAFile,
    /// The file is no trace of a known format.
    UnknownFormat,
    /// The file is a trace of a known format, but damaged beyond what can be repaired.
    Damaged,
    /// Strict reading met something that tolerant reading would have repaired or dropped.
    Strict,
    /// The caller asked to stop.
    Interrupted,
    /// An argument makes no sense.
    InvalidArgument,
    /// The operating system failed to read.
    Io,
}

/// An error with the file and the place it belongs to.
#[derive(Debug, Clone)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    path: Option<PathBuf>,
    offset: Option<u64>,
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of `kind`; `message` says what is wrong and what to do.
    ///
    /// Control characters of quoted file content are replaced: a NUL byte in a message
    /// aborts the process when it crosses the Arrow C interface.
    pub fn new(kind: ErrorKind, message: impl AsRef<str>) -> Self {
        let message = message.as_ref().chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
        Self { kind, message, path: None, offset: None }
    }

    /// The same error, of the file `path`.
    #[must_use]
    pub fn with_path(mut self, path: &Path) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    /// The same error, at byte `offset` of the uncompressed content.
    #[must_use]
    pub fn with_offset(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }

    /// An operating system error while opening or reading.
    pub fn from_io(error: &std::io::Error) -> Self {
        use std::io::ErrorKind as Io;
        let kind = match error.kind() {
            Io::NotFound => ErrorKind::NotFound,
            Io::PermissionDenied => ErrorKind::PermissionDenied,
            Io::IsADirectory | Io::NotADirectory => ErrorKind::NotAFile,
            _ => ErrorKind::Io,
        };
        Self::new(kind, error.to_string())
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The file.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Byte offset in the uncompressed content.
    pub fn offset(&self) -> Option<u64> {
        self.offset
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{}: ", path.display())?;
        }
        f.write_str(&self.message)?;
        if let Some(offset) = self.offset {
            write!(f, " (at byte {offset})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}
