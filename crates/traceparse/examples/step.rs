//! Steps through the rows of a database with SQLite and does nothing with them: the lower bound of a reader.
//!
//! `cargo run --release --example step -- report.sqlite`
//!
//! The tables and columns are those that the reader selects of an export of nsys with NVTX ranges. The rows are
//! stepped twice: alone, and with the value of every column.
#![allow(clippy::print_stdout)]

use std::ffi::OsString;
use std::hint::black_box;
use std::io::{Error, ErrorKind, Result};
use std::time::Instant;

use rusqlite::{Connection, OpenFlags};

const QUERIES: [&str; 5] = [
    "SELECT rowid, start, end, eventType, category, text, globalTid, endGlobalTid, textId, domainId FROM NVTX_EVENTS",
    "SELECT rowid, start, end, globalTid, correlationId, nameId, returnValue FROM CUPTI_ACTIVITY_KIND_RUNTIME",
    "SELECT rowid, start, end, deviceId, contextId, streamId, correlationId, globalPid, demangledName, shortName, \
     mangledName, gridX, gridY, gridZ, blockX, blockY, blockZ, registersPerThread, staticSharedMemory, \
     dynamicSharedMemory FROM CUPTI_ACTIVITY_KIND_KERNEL",
    "SELECT rowid, start, end, deviceId, contextId, streamId, correlationId, globalPid, bytes, copyKind \
     FROM CUPTI_ACTIVITY_KIND_MEMCPY",
    "SELECT rowid, start, end, deviceId, contextId, streamId, correlationId, globalPid, syncType \
     FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
];

fn main() -> Result<()> {
    let path = std::env::args_os().nth(1);
    let path = path.ok_or_else(|| Error::new(ErrorKind::InvalidInput, "usage: step DATABASE"))?;
    for values in [false, true] {
        for query in QUERIES {
            let start = Instant::now();
            let rows = step(&path, query, values).map_err(Error::other)?;
            let table = query.rsplit(' ').next().unwrap_or_default();
            println!("{table} {rows} rows, values {values}: {:.3} s", start.elapsed().as_secs_f64());
        }
    }
    Ok(())
}

/// Steps through the rows of a query; returns how many there are.
fn step(path: &OsString, query: &str, values: bool) -> rusqlite::Result<u64> {
    let connection = Connection::open_with_flags(
        format!("file:{}?immutable=1", path.to_string_lossy()),
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    let mut statement = connection.prepare(query)?;
    let columns = statement.column_count();
    let mut rows = statement.query([])?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        count += 1;
        if values {
            for column in 0..columns {
                black_box(row.get_ref(column)?);
            }
        }
    }
    Ok(count)
}
