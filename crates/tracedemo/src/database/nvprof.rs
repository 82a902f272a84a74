//! Tables of a database of nvprof.

use super::rows::{Inserts, RANGES, Recorder};

/// Tables and rows as nvprof writes them.
pub(super) const NVPROF: Recorder = Recorder { schema: SCHEMA, texts: "StringTable", inserts: INSERTS };

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

const INSERTS: Inserts = &[
    (
        &["process"],
        "INSERT INTO CUPTI_ACTIVITY_KIND_DEVICE VALUES
         (NULL, :device, :gpu, 85014085632, 132, 32, 64, 1024, 9, 0, 65536, 65536, 49152, 233472)",
    ),
    // Two markers on a thread: a range begins at the one and ends at the other.
    (
        RANGES,
        "INSERT INTO CUPTI_ACTIVITY_KIND_MARKER VALUES (NULL, 2, :start, :number, 2, :object, :textId, 0)",
    ),
    (RANGES, "INSERT INTO CUPTI_ACTIVITY_KIND_MARKER VALUES (NULL, 4, :end, :number, 2, :object, 0, 0)"),
    (
        &["cuda_runtime"],
        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES
         (NULL, :callback, :start, :end, :pid, :tid, :correlation, 0)",
    ),
    (
        &["cuda_driver"],
        "INSERT INTO CUPTI_ACTIVITY_KIND_DRIVER VALUES
         (NULL, :callback, :start, :end, :pid, :tid, :correlation, 0)",
    ),
    (
        &["cuda_sync"],
        "INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES
         (NULL, 3, :start, :end, :correlation, 1, :stream, -1)",
    ),
    (
        &["kernel"],
        "INSERT INTO CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL VALUES
         (NULL, :registers, :start, :end, :end, :device, 1, :stream, :gridX, :gridY, :gridZ, :blockX, :blockY,
          :blockZ, 0, :sharedMemory, 0, 0, :correlation, :number, :name)",
    ),
    (
        &["gpu_memcpy"],
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES
         (NULL, :copyKind, :from + 1, :to + 1, 0, :bytes, :start, :end, :device, 1, :stream, :correlation,
          :correlation)",
    ),
    (
        &["gpu_memset"],
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES
         (NULL, 0, :bytes, :start, :end, :device, 1, :stream, :correlation, 0, 3)",
    ),
];
