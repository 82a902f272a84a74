//! Opens a database without writing, locking or trusting it.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::wal::Copy;
use crate::error::{Error, ErrorKind, Result};
use crate::stats::{Code, Stats};

/// Page cache of one connection, KiB: a scan reads every page once.
const CACHE_KIB: i64 = 4 << 10;

/// A table with a version behind its name, such as `NVTX_EVENTS_V2`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    /// The name without it.
    pub(crate) plain: String,
    number: u32,
    /// The name of the table.
    pub(crate) table: String,
}

impl Version {
    fn of(table: &str) -> Option<Self> {
        let (plain, number) = table.rsplit_once('_')?;
        let number = number.strip_prefix(['V', 'v'])?.parse().ok()?;
        Some(Self { plain: plain.to_owned(), number, table: table.to_owned() })
    }
}

/// A database on disk, from which connections are made.
pub(crate) struct Database {
    uri: String,
    /// Whether pages are missing at its end.
    is_truncated: bool,
    pub(crate) file_bytes: u64,
    /// Tables of a version that are read under the plain name.
    pub(crate) versions: Vec<Version>,
    /// What is read in place of the file; it must outlive the connections.
    copy: Option<Copy>,
}

impl Database {
    /// Opens the database at `path`; what is wrong with the file as a whole goes to `stats`.
    pub(crate) fn open(path: &Path, stats: &mut Stats) -> Result<Self> {
        let copy = beside(path, "-wal").map(|log| Copy::new(path, &log)).transpose()?;
        let file = copy.as_ref().map_or_else(|| path.to_owned(), Copy::path);
        let file_bytes = std::fs::metadata(&file).map_err(|e| Error::from_io(&e))?.len();
        let mut database =
            Self { uri: uri(&file), is_truncated: false, file_bytes, versions: Vec::new(), copy };
        let journal = beside(path, "-journal");
        let connection = match (database.connect(), &journal) {
            (Ok(connection), _) => connection,
            (Err(_), Some(journal)) => {
                let message = format!(
                    "is still being written: its changes are in {}. Wait until the export is done, or run: \
                     sqlite3 FILE 'PRAGMA journal_mode=DELETE'",
                    journal.display()
                );
                return Err(Error::new(ErrorKind::Damaged, message));
            }
            (Err(_), None) => {
                database.is_truncated = true;
                database.connect()?
            }
        };
        // SQLite opens a file that ends within its last page. A log may hold more pages than the file.
        let is_short = || {
            Ok::<_, Error>(
                number(&connection, "page_count")? * number(&connection, "page_size")? > file_bytes,
            )
        };
        if database.is_truncated || (database.copy.is_none() && is_short()?) {
            stats.note(Code::TruncatedDatabase, Some(file_bytes));
        }
        database.versions = versions(&connection);
        stats.note_many(Code::VersionedTable, database.versions.len() as u64, None);
        if database.copy.is_some() {
            stats.note(Code::WriteAheadLog, None);
        }
        // A journal may name other files to delete: it is not played back.
        if journal.is_some() {
            stats.note(Code::UnfinishedWrites, None);
        }
        Ok(database)
    }

    /// A connection that sees the file as it is: read-only, without locks, journal or log.
    pub(crate) fn connect(&self) -> Result<Connection> {
        let flags =
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.uri, flags).map_err(|e| explain(&e))?;
        if self.is_truncated {
            // Has SQLite open a file that is shorter than its header says; nothing is ever written.
            // It comes first: other settings read the schema, which is refused without it.
            connection.pragma_update(None, "writable_schema", true).map_err(|e| explain(&e))?;
        }
        connection.pragma_update(None, "cache_size", -CACHE_KIB).map_err(|e| explain(&e))?;
        let tables =
            connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get::<_, i64>(0));
        tables.map_err(|e| explain(&e))?;
        for Version { plain, table, .. } in &self.versions {
            let (plain, table) = (quoted(plain), quoted(table));
            let view = format!("CREATE TEMP VIEW {plain} AS SELECT rowid AS rowid, * FROM {table}");
            connection.execute_batch(&view).map_err(|e| explain(&e))?;
        }
        Ok(connection)
    }
}

/// What a setting with a number says.
fn number(connection: &Connection, pragma: &str) -> Result<u64> {
    let value = connection.pragma_query_value(None, pragma, |row| row.get::<_, u32>(0));
    value.map(u64::from).map_err(|e| explain(&e))
}

/// The latest version of each table of which nothing else is there.
fn versions(connection: &Connection) -> Vec<Version> {
    let has_rows = |table: &str| {
        connection
            .prepare(&format!("SELECT rowid FROM {} LIMIT 1", quoted(table)))
            .is_ok_and(|mut rows| rows.exists([]).unwrap_or(false))
    };
    let names = || -> rusqlite::Result<Vec<String>> {
        let mut names = connection.prepare("SELECT name FROM sqlite_master WHERE type = 'table'")?;
        names.query_map([], |row| row.get(0))?.collect()
    };
    // Of a damaged list nobody knows what is not in it.
    let names = names().unwrap_or_default();
    let mut found: Vec<Version> = names.iter().filter_map(|name| Version::of(name)).collect();
    found.retain(|version| has_rows(&version.table) && !has_rows(&version.plain));
    found.sort_by(|a, b| b.cmp(a));
    found.dedup_by(|older, newer| older.plain == newer.plain);
    found
}

/// The error for what SQLite says.
pub(crate) fn explain(error: &rusqlite::Error) -> Error {
    use rusqlite::ffi::ErrorCode as Sqlite;
    let code = error.sqlite_error_code();
    let (kind, what) = match code {
        Some(Sqlite::NotADatabase) => (ErrorKind::Damaged, "begins like an SQLite database but is not one"),
        Some(Sqlite::DatabaseCorrupt) => (ErrorKind::Damaged, "is a damaged SQLite database"),
        Some(Sqlite::CannotOpen | Sqlite::PermissionDenied) => (ErrorKind::Io, "cannot be opened by SQLite"),
        Some(Sqlite::SystemIoFailure) => (ErrorKind::Io, "cannot be read by SQLite"),
        _ => (ErrorKind::Damaged, "cannot be read as an SQLite database"),
    };
    Error::new(kind, format!("{what} ({error}). If the export was interrupted, run nsys export again"))
}

/// A name as SQL takes it.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The path as a URI that takes every byte of it literally.
///
/// `immutable` has SQLite take no locks and look for no journal, so that it works on read-only media
/// and never touches the folder.
fn uri(path: &Path) -> String {
    let mut uri = "file:".to_owned();
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri + "?mode=ro&immutable=1"
}

/// A log or journal beside the database that holds changes.
fn beside(path: &Path, suffix: &str) -> Option<PathBuf> {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    let beside = PathBuf::from(name);
    std::fs::metadata(&beside).is_ok_and(|info| info.len() > 0).then_some(beside)
}

#[cfg(test)]
mod tests {
    use super::uri;
    use std::path::Path;

    #[test]
    fn a_path_cannot_smuggle_options_into_the_uri() {
        let path = Path::new("/a b/50%?mode=rwc#x.sqlite");
        assert_eq!(uri(path), "file:/a%20b/50%25%3Fmode%3Drwc%23x.sqlite?mode=ro&immutable=1");
    }
}
