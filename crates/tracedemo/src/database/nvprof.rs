//! Tables of a database of nvprof.

use std::collections::HashMap;

use rusqlite::{Connection, Statement, params};

use super::event::{Event, Kernel, Tables};
use crate::event::Record;
use crate::library::Process;

/// Bits of a marker's flags: a range begins or ends here.
const BEGIN: i64 = 2;
const END: i64 = 4;
/// A marker on a thread.
const THREAD: i64 = 2;
/// Texts that the map of known ones may hold; those of operators rarely repeat.
const MOST_STRINGS: usize = 1 << 16;

const SCHEMA: &str = "
CREATE TABLE Version (version INT NOT NULL);
INSERT INTO Version VALUES (11);
CREATE TABLE StringTable (_id_ INTEGER PRIMARY KEY AUTOINCREMENT, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL (_id_ INTEGER PRIMARY KEY AUTOINCREMENT,
  registersPerThread INT NOT NULL, start INT NOT NULL, end INT NOT NULL, completed INT NOT NULL,
  deviceId INT NOT NULL, contextId INT NOT NULL, streamId INT NOT NULL, gridX INT NOT NULL,
  gridY INT NOT NULL, gridZ INT NOT NULL, blockX INT NOT NULL, blockY INT NOT NULL, blockZ INT NOT NULL,
  staticSharedMemory INT NOT NULL, dynamicSharedMemory INT NOT NULL, localMemoryPerThread INT NOT NULL,
  localMemoryTotal INT NOT NULL, correlationId INT NOT NULL, gridId INT NOT NULL, name INT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (_id_ INTEGER PRIMARY KEY AUTOINCREMENT, copyKind INT NOT NULL,
  srcKind INT NOT NULL, dstKind INT NOT NULL, flags INT NOT NULL, bytes INT NOT NULL, start INT NOT NULL,
  end INT NOT NULL, deviceId INT NOT NULL, contextId INT NOT NULL, streamId INT NOT NULL,
  correlationId INT NOT NULL, runtimeCorrelationId INT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (_id_ INTEGER PRIMARY KEY AUTOINCREMENT, value INT NOT NULL,
  bytes INT NOT NULL, start INT NOT NULL, end INT NOT NULL, deviceId INT NOT NULL, contextId INT NOT NULL,
  streamId INT NOT NULL, correlationId INT NOT NULL, flags INT NOT NULL, memoryKind INT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (_id_ INTEGER PRIMARY KEY AUTOINCREMENT, cbid INT NOT NULL,
  start INT NOT NULL, end INT NOT NULL, processId INT NOT NULL, threadId INT NOT NULL,
  correlationId INT NOT NULL, returnValue INT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_DRIVER (_id_ INTEGER PRIMARY KEY AUTOINCREMENT, cbid INT NOT NULL,
  start INT NOT NULL, end INT NOT NULL, processId INT NOT NULL, threadId INT NOT NULL,
  correlationId INT NOT NULL, returnValue INT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (_id_ INTEGER PRIMARY KEY AUTOINCREMENT, type INT NOT NULL,
  start INT NOT NULL, end INT NOT NULL, correlationId INT NOT NULL, contextId INT NOT NULL,
  streamId INT NOT NULL, cudaEventId INT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MARKER (_id_ INTEGER PRIMARY KEY AUTOINCREMENT, flags INT NOT NULL,
  timestamp INT NOT NULL, id INT NOT NULL, objectKind INT NOT NULL, objectId BLOB NOT NULL, name INT NOT NULL,
  domain INT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_DEVICE (_id_ INTEGER PRIMARY KEY AUTOINCREMENT, id INT NOT NULL,
  name INT NOT NULL, globalMemorySize INT NOT NULL, numMultiprocessors INT NOT NULL,
  numThreadsPerWarp INT NOT NULL, maxWarpsPerMultiprocessor INT NOT NULL, maxThreadsPerBlock INT NOT NULL,
  computeCapabilityMajor INT NOT NULL, computeCapabilityMinor INT NOT NULL, maxRegistersPerBlock INT NOT NULL,
  maxRegistersPerMultiprocessor INT NOT NULL, maxSharedMemoryPerBlock INT NOT NULL,
  maxSharedMemoryPerMultiprocessor INT NOT NULL);
";

/// A database on its way into the file.
pub(super) struct Nvprof<'c> {
    connection: &'c Connection,
    kernel: Statement<'c>,
    copy: Statement<'c>,
    memset: Statement<'c>,
    runtime: Statement<'c>,
    driver: Statement<'c>,
    sync: Statement<'c>,
    marker: Statement<'c>,
    insert_string: Statement<'c>,
    strings: HashMap<String, i64>,
    text: String,
    ids: i64,
}

impl<'c> Nvprof<'c> {
    /// Makes the tables.
    pub(super) fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
        connection.execute_batch(SCHEMA)?;
        let insert = |sql: &str| connection.prepare(sql);
        let call = "VALUES (NULL, ?1, ?2, ?3, ?4, ?5, ?6, 0)";
        Ok(Self {
            connection,
            kernel: insert(
                "INSERT INTO CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL VALUES (NULL, ?1, ?2, ?3, ?3, ?4, 1, ?5, ?6, \
                 ?7, ?8, ?9, ?10, ?11, 0, ?12, 0, 0, ?13, ?14, ?15)",
            )?,
            copy: insert(
                "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (NULL, ?1, ?2, ?3, 0, ?4, ?5, ?6, ?7, 1, ?8, ?9, ?9)",
            )?,
            memset: insert(
                "INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (NULL, 0, ?1, ?2, ?3, ?4, 1, ?5, ?6, 0, 3)",
            )?,
            runtime: insert(&format!("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME {call}"))?,
            driver: insert(&format!("INSERT INTO CUPTI_ACTIVITY_KIND_DRIVER {call}"))?,
            sync: insert(
                "INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (NULL, 3, ?1, ?2, ?3, 1, ?4, -1)",
            )?,
            marker: insert(
                "INSERT INTO CUPTI_ACTIVITY_KIND_MARKER VALUES (NULL, ?1, ?2, ?3, ?4, ?5, ?6, 0)",
            )?,
            insert_string: insert("INSERT INTO StringTable (value) VALUES (?1)")?,
            strings: HashMap::new(),
            text: String::new(),
            ids: 0,
        })
    }

    /// The number of a text.
    fn string(&mut self, text: &str) -> rusqlite::Result<i64> {
        if let Some(&id) = self.strings.get(text) {
            return Ok(id);
        }
        let id = self.insert_string.insert([text])?;
        if self.strings.len() < MOST_STRINGS {
            self.strings.insert(text.to_owned(), id);
        }
        Ok(id)
    }

    fn kernel(&mut self, process: Process, kernel: &Kernel, record: &Record) -> rusqlite::Result<()> {
        let name = self.string(&kernel.name)?;
        self.ids += 1;
        let ([x, y, z], [bx, by, bz]) = (kernel.grid, kernel.block);
        self.kernel.execute(params![
            kernel.registers,
            record.start_ns,
            record.start_ns + record.dur_ns,
            process.device,
            kernel.stream,
            x,
            y,
            z,
            bx,
            by,
            bz,
            kernel.shared_memory,
            record.values[1],
            self.ids,
            name,
        ])?;
        Ok(())
    }
}

impl Tables for Nvprof<'_> {
    fn begin(&mut self, process: Process) -> rusqlite::Result<()> {
        let name = self.string("NVIDIA H100 80GB HBM3")?;
        self.connection.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_DEVICE VALUES (NULL, ?1, ?2, 85014085632, 132, 32, 64, 1024, 9, 0, \
             65536, 65536, 49152, 233472)",
            [process.device, name],
        )?;
        Ok(())
    }

    fn event(&mut self, process: Process, event: &Event, record: &Record) -> rusqlite::Result<()> {
        let (start, end, correlation) = (record.start_ns, record.start_ns + record.dur_ns, record.values[1]);
        let device = process.device;
        match event {
            Event::Range(range) => {
                let mut text = std::mem::take(&mut self.text);
                range.text(record, &mut text);
                let name = self.string(&text)?;
                self.text = text;
                self.ids += 1;
                let object = object(process.pid, range.tid);
                self.marker.execute(params![BEGIN, start, self.ids, THREAD, object, name])?;
                self.marker.execute(params![END, end, self.ids, THREAD, object, 0])?;
            }
            Event::Call { tid, callback, is_driver, .. } => {
                let insert = if *is_driver { &mut self.driver } else { &mut self.runtime };
                insert.execute(params![callback, start, end, process.pid, tid, correlation])?;
            }
            Event::Sync { stream } => {
                self.sync.execute(params![start, end, correlation, stream])?;
            }
            Event::Kernel(kernel) => self.kernel(process, kernel, record)?,
            Event::Copy { to_device, is_pinned, bytes, stream } => {
                let host = 1 + i64::from(*is_pinned);
                let (kind, from, to) = if *to_device { (1, host, 3) } else { (2, 3, host) };
                self.copy.execute(params![kind, from, to, bytes, start, end, device, stream, correlation])?;
            }
            Event::Memset { bytes, stream } => {
                self.memset.execute(params![bytes, start, end, device, stream, correlation])?;
            }
            Event::Other => {}
        }
        Ok(())
    }

    fn end(&mut self, end_ns: i64) -> rusqlite::Result<()> {
        // It ends with its last record.
        let _ = end_ns;
        Ok(())
    }
}

/// A thread as markers refer to it: 32 bits each of process and thread, and padding.
fn object(pid: i64, tid: i64) -> [u8; 12] {
    let mut bytes = [0; 12];
    let numbers = (pid as u32).to_le_bytes().into_iter().chain((tid as u32).to_le_bytes());
    for (byte, value) in bytes.iter_mut().zip(numbers) {
        *byte = value;
    }
    bytes
}
