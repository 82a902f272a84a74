//! Tables of an export of Nsight Systems.

use super::rows::{Inserts, RANGES, Recorder};

/// Tables and rows as the exporter writes them, schema 3.24.
pub(super) const NSYS: Recorder = Recorder { schema: SCHEMA, texts: "StringIds", inserts: INSERTS };

pub(crate) const SCHEMA: &str = "
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
INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_VERSION', '2025.5.2.266-255236693005v0'),
  ('EXPORT_SCHEMA_VERSION', '3.24.0');
INSERT INTO META_DATA_CAPTURE VALUES ('CAPTURE_EVENT_TYPE', 'Cuda'), ('CAPTURE_EVENT_TYPE', 'NvtxEvents'),
  ('CUDA_GRAPH_TRACE_OPTIONS:MODE', 'Node');
INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1774022400000000000, '2026-03-20 16:00:00', NULL);
";

const INSERTS: Inserts = &[
    (
        &["process"],
        "INSERT INTO TARGET_INFO_GPU SELECT :device, 'NVIDIA H100 80GB HBM3', 85014085632, 9, 0, 132, 32, 64, 1024,
         65536, 65536, 49152, 232448, 233472 WHERE :rank < 8",
    ),
    (&["process"], "INSERT INTO PROCESSES VALUES (:globalPid, :pid, '/usr/bin/python3')"),
    (&["process"], "INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (:device, :device, :pid)"),
    (&["process"], "INSERT INTO ThreadNames VALUES (:name, NULL, :globalTid)"),
    (
        RANGES,
        "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, domainId)
         VALUES (:start, :end, 59, :text, :globalTid, 0)",
    ),
    (
        &["cuda_runtime", "cuda_driver"],
        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES
         (:start, :end, :isDriver, :globalTid, :correlation, :name, 0, NULL)",
    ),
    (
        &["cuda_sync"],
        "INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES
         (:start, :end, :device, 1, NULL, :stream, :correlation, :globalPid, NULL, 3, 4294967295, 4294967295)",
    ),
    (
        &["kernel"],
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES
         (:start, :end, :device, 1, 0, :stream, :correlation, :globalPid, :name, :shortName, NULL, 0, 0,
          :registers, :gridX, :gridY, :gridZ, :blockX, :blockY, :blockZ, 0, :sharedMemory, 0, 0, :number,
          :sharedMemory, :graphNode, NULL, :graph)",
    ),
    (
        &["gpu_memcpy"],
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES
         (:start, :end, :device, 1, 0, :stream, :correlation, :globalPid, :bytes, :copyKind, NULL, :from, :to,
          NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1)",
    ),
    (
        &["gpu_memset"],
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES
         (:start, :end, :device, 1, 0, :stream, :correlation, :globalPid, 0, :bytes, NULL, 2)",
    ),
    (&["end"], "INSERT INTO ANALYSIS_DETAILS VALUES (1 << 48, :end, 0, :end)"),
];
