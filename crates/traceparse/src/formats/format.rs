//! What a format is, and a file that was opened to find out which it has.

use std::path::Path;

use rusqlite::Connection;

use super::sqlite::catalog::Catalog;
use super::sqlite::open::Database;
use crate::error::{Error, ErrorKind, Result};
use crate::options::ReadOptions;
use crate::source::Source;
use crate::stats::{Code, Stats};
use crate::trace::Trace;

/// Bytes by which a format is recognised.
const HEAD_BYTES: usize = 64 << 10;

/// A format of traces.
pub(crate) trait Format: Sync {
    /// The name that users see.
    fn name(&self) -> &'static str;

    /// Whether a file has this format, from its first bytes or the tables of its database.
    fn takes(&self, file: &Opened<'_>) -> bool;

    /// Reads a file that it takes.
    fn read(&self, file: Opened<'_>, options: &ReadOptions) -> Result<Trace>;

    /// Whether what `options` want needs links between rows, or what is found while linking.
    fn needs_links(&self, options: &ReadOptions) -> bool {
        let _ = options;
        true
    }

    /// Whether columns that are not wanted are left out while reading, as far as that saves anything.
    fn reads_columns(&self) -> bool {
        false
    }

    /// What to do about a file that no format takes, if this one is near it.
    fn advice(&self, file: &Opened<'_>) -> Option<&'static str> {
        let _ = file;
        None
    }
}

/// A file that was opened.
pub(crate) struct Opened<'p> {
    pub(crate) path: &'p Path,
    pub(crate) content: Content,
}

/// What a file holds.
pub(crate) enum Content {
    /// Any bytes.
    Bytes(Bytes),
    /// An SQLite database.
    Database(OpenDatabase),
}

/// The uncompressed bytes of a file.
pub(crate) struct Bytes {
    pub(crate) head: Vec<u8>,
    /// Offset of the head in the content.
    pub(crate) offset: usize,
    /// What follows the head.
    pub(crate) source: Source,
}

/// A database and the tables it has.
pub(crate) struct OpenDatabase {
    pub(crate) database: Database,
    pub(crate) connection: Connection,
    pub(crate) catalog: Catalog,
    /// What is wrong with the file as a whole.
    pub(crate) stats: Stats,
}

impl<'p> Opened<'p> {
    /// Opens the file at `path`.
    pub(crate) fn new(path: &'p Path) -> Result<Self> {
        let bytes = Bytes::open(path, 0)?;
        if bytes.head.is_empty() && bytes.source.stats.get(Code::TruncatedCompression).is_some() {
            let message = "is compressed, and ends or is damaged before its content begins";
            return Err(Error::new(ErrorKind::Damaged, message));
        }
        if !bytes.head.starts_with(b"SQLite format 3\0") {
            return Ok(Self { path, content: Content::Bytes(bytes) });
        }
        let compression = bytes.source.compression;
        if compression != "none" {
            let message = format!("is a database compressed with {compression}. Decompress it first");
            return Err(Error::new(ErrorKind::UnknownFormat, message));
        }
        let mut stats = Stats::default();
        let database = Database::open(path, &mut stats)?;
        let connection = database.connect()?;
        let catalog = Catalog::read(&connection, &database.versions)?;
        Ok(Self { path, content: Content::Database(OpenDatabase { database, connection, catalog, stats }) })
    }

    /// The first bytes; empty for a database.
    pub(crate) fn head(&self) -> &[u8] {
        match &self.content {
            Content::Bytes(bytes) => &bytes.head,
            Content::Database(_) => &[],
        }
    }

    /// The tables of the database, if it is one.
    pub(crate) fn catalog(&self) -> Option<&Catalog> {
        match &self.content {
            Content::Bytes(_) => None,
            Content::Database(database) => Some(&database.catalog),
        }
    }

    /// The bytes, of a file that is no database.
    pub(crate) fn into_bytes(self) -> Result<Bytes> {
        match self.content {
            Content::Bytes(bytes) => Ok(bytes),
            Content::Database(_) => Err(Error::new(ErrorKind::UnknownFormat, "is an SQLite database")),
        }
    }

    /// The database.
    pub(crate) fn into_database(self) -> Result<OpenDatabase> {
        match self.content {
            Content::Bytes(_) => Err(Error::new(ErrorKind::UnknownFormat, "is not an SQLite database")),
            Content::Database(database) => Ok(database),
        }
    }
}

impl Bytes {
    /// Opens the file at `path` and takes its first bytes, without the first `offset`.
    pub(crate) fn open(path: &Path, offset: usize) -> Result<Self> {
        let mut source = Source::open(path)?;
        let mut head = vec![0; HEAD_BYTES];
        let filled = source.fill(&mut head)?;
        head.truncate(filled);
        Ok(Self { head, offset: 0, source }.without(offset))
    }

    /// The same, without the first `count` bytes.
    pub(crate) fn without(mut self, count: usize) -> Self {
        let count = count.min(self.head.len());
        self.head.drain(..count);
        self.offset += count;
        self
    }
}
