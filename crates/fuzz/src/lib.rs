//! What the fuzz targets share: traces that are bytes in memory.

use std::path::PathBuf;

use traceparse::{ReadOptions, Result, Trace, read};

/// Reads `content` as a file, which is what the reader opens.
pub fn read_bytes(content: &[u8], options: &ReadOptions) -> Result<Trace> {
    let path = file();
    std::fs::write(&path, content).expect("the file can be written");
    read(&path, options)
}

/// A file of this process, in memory where the system has a place for that.
fn file() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    let folder = if memory.is_dir() { memory } else { std::env::temp_dir() };
    folder.join(format!("traceparse-fuzz-{}", std::process::id()))
}
