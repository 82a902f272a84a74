//! Tables of an export of Nsight Systems.

use std::collections::HashMap;

use rusqlite::{Connection, Statement, params};

use super::event::{Event, Kernel, Tables};
use crate::event::Record;
use crate::library::Process;

/// Hardware and virtual machine of every id.
const MACHINE: i64 = 1 << 48;
/// Epoch time of the recording's start: 20 March 2026.
const START_UTC_NS: i64 = 1_774_022_400_000_000_000;
/// Event of `nvtxRangePush` and `nvtxRangePop`.
const PUSH_POP: i64 = 59;

const SCHEMA: &str = "
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
CREATE TABLE META_DATA_CAPTURE (name TEXT NOT NULL, value TEXT);
CREATE TABLE ANALYSIS_DETAILS (globalVid INTEGER NOT NULL, duration INTEGER NOT NULL,
  startTime INTEGER NOT NULL, stopTime INTEGER NOT NULL);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE TARGET_INFO_GPU (id INTEGER NOT NULL, name TEXT, totalMemory INTEGER, computeMajor INTEGER,
  computeMinor INTEGER, smCount INTEGER, threadsPerWarp INTEGER, maxWarpsPerSm INTEGER,
  maxThreadsPerBlock INTEGER, maxRegistersPerBlock INTEGER, maxRegistersPerSm INTEGER,
  maxShmemPerBlock INTEGER, maxShmemPerBlockOptin INTEGER, maxShmemPerSm INTEGER);
CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER);
CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
CREATE TABLE ThreadNames (nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL,
  correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL,
  mangledName INTEGER, launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER NOT NULL,
  gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL,
  blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL,
  dynamicSharedMemory INTEGER NOT NULL, localMemoryPerThread INTEGER NOT NULL,
  localMemoryTotal INTEGER NOT NULL, gridId INTEGER NOT NULL, sharedMemoryExecuted INTEGER,
  graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER, graphId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL,
  correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL,
  deprecatedSrcId INTEGER, srcKind INTEGER, dstKind INTEGER, srcDeviceId INTEGER, srcContextId INTEGER,
  dstDeviceId INTEGER, dstContextId INTEGER, migrationCause INTEGER, graphNodeId INTEGER,
  virtualAddress INTEGER, copyCount INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL,
  correlationId INTEGER, globalPid INTEGER, value INTEGER NOT NULL, bytes INTEGER NOT NULL,
  graphNodeId INTEGER, memKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
  eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL,
  returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL,
  correlationId INTEGER, globalPid INTEGER, deprecatedSyncType INTEGER, syncType INTEGER NOT NULL,
  eventId INTEGER NOT NULL, eventSyncId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
  category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER,
  domainId INTEGER, uint64Value INTEGER, int64Value INTEGER, doubleValue REAL, uint32Value INTEGER,
  int32Value INTEGER, floatValue REAL, jsonTextId INTEGER, jsonText TEXT, binaryData BLOB);
";

/// An export on its way into the file.
pub(super) struct Nsys<'c> {
    connection: &'c Connection,
    kernel: Statement<'c>,
    copy: Statement<'c>,
    memset: Statement<'c>,
    call: Statement<'c>,
    sync: Statement<'c>,
    range: Statement<'c>,
    strings: HashMap<String, i64>,
    text: String,
    grid_id: i64,
}

impl<'c> Nsys<'c> {
    /// Makes the tables.
    pub(super) fn new(connection: &'c Connection, ranks: u32) -> rusqlite::Result<Self> {
        connection.execute_batch(SCHEMA)?;
        for (table, name, value) in [
            ("EXPORT", "EXPORT_PRODUCT_VERSION", "2025.5.2.266-255236693005v0"),
            ("EXPORT", "EXPORT_SCHEMA_VERSION", "3.24.0"),
            ("CAPTURE", "CAPTURE_EVENT_TYPE", "Cuda"),
            ("CAPTURE", "CAPTURE_EVENT_TYPE", "NvtxEvents"),
            ("CAPTURE", "CUDA_GRAPH_TRACE_OPTIONS:MODE", "Node"),
        ] {
            connection.execute(&format!("INSERT INTO META_DATA_{table} VALUES (?1, ?2)"), [name, value])?;
        }
        connection.execute(
            "INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?1, '2026-03-20 16:00:00', NULL)",
            [START_UTC_NS],
        )?;
        for gpu in 0..ranks.min(crate::gpu::GPUS) {
            connection.execute(
                "INSERT INTO TARGET_INFO_GPU VALUES (?1, 'NVIDIA H100 80GB HBM3', 85014085632, 9, 0, 132, 32, 64, \
                 1024, 65536, 65536, 49152, 232448, 233472)",
                [gpu],
            )?;
        }
        let insert = |sql: &str| connection.prepare(sql);
        Ok(Self {
            connection,
            kernel: insert(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?1, ?2, ?3, 1, 0, ?4, ?5, ?6, ?7, ?8, NULL, 0, 0, \
                 ?9, ?10, ?11, ?12, ?13, ?14, ?15, 0, ?16, 0, 0, ?17, ?16, ?18, NULL, ?19)",
            )?,
            copy: insert(
                "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?1, ?2, ?3, 1, 0, ?4, ?5, ?6, ?7, ?8, NULL, ?9, \
                 ?10, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1)",
            )?,
            memset: insert(
                "INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (?1, ?2, ?3, 1, 0, ?4, ?5, ?6, 0, ?7, NULL, 2)",
            )?,
            call: insert("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, NULL)")?,
            sync: insert(
                "INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (?1, ?2, ?3, 1, NULL, ?4, ?5, ?6, NULL, 3, \
                 4294967295, 4294967295)",
            )?,
            range: insert(
                "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, domainId) VALUES \
                 (?1, ?2, ?3, ?4, ?5, 0)",
            )?,
            strings: HashMap::new(),
            text: String::new(),
            grid_id: 0,
        })
    }

    /// The number of a text.
    fn string(&mut self, text: &str) -> rusqlite::Result<i64> {
        if let Some(&id) = self.strings.get(text) {
            return Ok(id);
        }
        let id = self.strings.len() as i64 + 1;
        self.connection.execute("INSERT INTO StringIds VALUES (?1, ?2)", params![id, text])?;
        self.strings.insert(text.to_owned(), id);
        Ok(id)
    }

    fn kernel(&mut self, process: Process, kernel: &Kernel, record: &Record) -> rusqlite::Result<()> {
        let name = self.string(&kernel.name)?;
        let short = self.string(short_name(&kernel.name))?;
        self.grid_id += 1;
        let ([x, y, z], [bx, by, bz]) = (kernel.grid, kernel.block);
        self.kernel.execute(params![
            record.start_ns,
            record.start_ns + record.dur_ns,
            process.device,
            kernel.stream,
            record.values[1],
            global_pid(process),
            name,
            short,
            kernel.registers,
            x,
            y,
            z,
            bx,
            by,
            bz,
            kernel.shared_memory,
            self.grid_id,
            kernel.graph.map(|(_, node)| node),
            kernel.graph.map(|(graph, _)| graph),
        ])?;
        Ok(())
    }
}

impl Tables for Nsys<'_> {
    fn begin(&mut self, process: Process) -> rusqlite::Result<()> {
        let pid = global_pid(process);
        self.connection
            .execute("INSERT INTO PROCESSES VALUES (?1, ?2, '/usr/bin/python3')", [pid, process.pid])?;
        self.connection.execute(
            "INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (?1, ?1, ?2)",
            [process.device, process.pid],
        )?;
        let name = self.string("python3")?;
        self.connection
            .execute("INSERT INTO ThreadNames VALUES (?1, NULL, ?2)", [name, pid | process.pid])?;
        Ok(())
    }

    fn event(&mut self, process: Process, event: &Event, record: &Record) -> rusqlite::Result<()> {
        let (start, end, correlation) = (record.start_ns, record.start_ns + record.dur_ns, record.values[1]);
        let (pid, device) = (global_pid(process), process.device);
        match event {
            Event::Range(range) => {
                range.text(record, &mut self.text);
                self.range.execute(params![start, end, PUSH_POP, self.text, pid | range.tid])?;
            }
            Event::Call { tid, name, is_driver, .. } => {
                let name = self.string(&versioned(name))?;
                self.call.execute(params![start, end, is_driver, pid | tid, correlation, name])?;
            }
            Event::Sync { stream } => {
                self.sync.execute(params![start, end, device, stream, correlation, pid])?;
            }
            Event::Kernel(kernel) => self.kernel(process, kernel, record)?,
            Event::Copy { to_device, is_pinned, bytes, stream } => {
                // Host to device and back; pinned or pageable memory of the host, memory of the device.
                let host = i64::from(*is_pinned);
                let (kind, from, to) = if *to_device { (1, host, 2) } else { (2, 2, host) };
                self.copy.execute(params![
                    start,
                    end,
                    device,
                    stream,
                    correlation,
                    pid,
                    bytes,
                    kind,
                    from,
                    to
                ])?;
            }
            Event::Memset { bytes, stream } => {
                self.memset.execute(params![start, end, device, stream, correlation, pid, bytes])?;
            }
            Event::Other => {}
        }
        Ok(())
    }

    fn end(&mut self, end_ns: i64) -> rusqlite::Result<()> {
        let sql = "INSERT INTO ANALYSIS_DETAILS VALUES (?1, ?2, 0, ?2)";
        self.connection.execute(sql, [MACHINE, end_ns])?;
        Ok(())
    }
}

fn global_pid(process: Process) -> i64 {
    MACHINE | process.pid << 24
}

/// The name of a function of the runtime with the version of its interface, as nsys writes it.
fn versioned(name: &str) -> String {
    let version = match name {
        "cudaLaunchKernel" => 7000,
        "cudaLaunchKernelExC" => 11060,
        "cudaGraphLaunch" | "cudaStreamIsCapturing" => 10000,
        "cudaFuncSetAttribute" => 9000,
        _ if name.starts_with("cuda") => 3020,
        _ => return name.to_owned(),
    };
    format!("{name}_v{version}")
}

/// The name of a kernel without namespaces, template arguments and parameters.
fn short_name(name: &str) -> &str {
    let end = name.find(['<', '(']).unwrap_or(name.len());
    let bare = name.get(..end).unwrap_or(name).trim_start_matches("void ");
    bare.rsplit("::").next().unwrap_or(bare)
}
