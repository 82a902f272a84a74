//! Copies of databases beside which a write-ahead log lies, with what stands in the log.

use std::fs::{DirBuilder, File, Metadata};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OpenFlags};

use crate::error::{Error, ErrorKind, Result};

/// A copy of a database, which goes with this value.
pub(super) struct Copy {
    folder: PathBuf,
}

impl Copy {
    /// Copies the database at `path` and `log` into the folder for temporary files, and puts both together.
    ///
    /// SQLite would do that beside the file, where nothing may be written.
    pub(super) fn new(path: &Path, log: &Path) -> Result<Self> {
        let failed = |error: &std::io::Error| {
            let message = format!(
                "is still being written: its changes are in {}, and copying both to {} (TMPDIR) failed: \
                 {error}",
                log.display(),
                std::env::temp_dir().display()
            );
            Error::new(ErrorKind::Damaged, message)
        };
        let stamps = || Ok((std::fs::metadata(path)?, std::fs::metadata(log)?));
        let before = stamps().map_err(|e| failed(&e))?;
        let copy = Self { folder: new_folder().map_err(|e| failed(&e))? };
        for (from, name) in [(path, "copy"), (log, "copy-wal")] {
            copy_bytes(from, &copy.folder.join(name)).map_err(|e| failed(&e))?;
        }
        let after = stamps().map_err(|e| failed(&e))?;
        if !(is_same(&before.0, &after.0) && is_same(&before.1, &after.1)) {
            let message = "is still being written. Read it again when the export is done";
            return Err(Error::new(ErrorKind::Damaged, message));
        }
        copy.merge().map_err(|error| {
            let message = format!("cannot be combined with its log {} ({error})", log.display());
            Error::new(ErrorKind::Damaged, message)
        })?;
        Ok(copy)
    }

    /// Where the copy is.
    pub(super) fn path(&self) -> PathBuf {
        self.folder.join("copy")
    }

    fn merge(&self) -> rusqlite::Result<()> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(self.path(), flags)?;
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        // What cannot be removed stays until the system empties the folder.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn is_same(before: &Metadata, after: &Metadata) -> bool {
    before.len() == after.len() && before.modified().ok() == after.modified().ok()
}

/// Copies a file without its permissions, which may forbid to write.
fn copy_bytes(from: &Path, to: &Path) -> std::io::Result<()> {
    std::io::copy(&mut File::open(from)?, &mut File::create(to)?).map(|_| ())
}

/// A new folder for temporary files that nobody else can read.
fn new_folder() -> std::io::Result<PathBuf> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let folder = std::env::temp_dir().join(format!("kernelscope-{}-{now}", std::process::id()));
    DirBuilder::new().mode(0o700).create(&folder)?;
    Ok(folder)
}
