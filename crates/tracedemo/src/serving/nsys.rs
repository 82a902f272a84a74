//! The program as Nsight Systems records it, with the creation of nodes and the payloads of NCCL.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use rusqlite::{Connection, params};

use super::model::{Call, Program, RANKS, What};
use crate::database::NSYS_SCHEMA;

const GLOBAL_PID: i64 = 1 << 48 | 4242 << 24;
const GLOBAL_TID: i64 = GLOBAL_PID | 4242;
/// Events and domains of NVTX.
const PUSH_POP: i64 = 59;
const DOMAIN_NAME: i64 = 75;
const DOMAIN: i64 = 1;
/// Schemas of NCCL's payloads.
const INITIALISED: i64 = 16_777_218;
const REDUCED: i64 = 16_777_219;
const OPERATIONS: i64 = 16_777_232;
const COMMUNICATOR: u64 = 0xb5a1_90f0_3c2d_7781;

/// Tables that the training demo has no rows for.
const SCHEMA: &str = "
CREATE TABLE CUDA_GRAPH_NODE_EVENTS (start INTEGER NOT NULL, end INTEGER NOT NULL,
  eventClass INTEGER NOT NULL, globalTid INTEGER, nameId INTEGER NOT NULL, graphNodeId INTEGER NOT NULL,
  originalGraphNodeId INTEGER);
CREATE TABLE NVTX_PAYLOAD_SCHEMAS (domainId INTEGER, schemaId INTEGER, name TEXT, type INTEGER, flags INTEGER,
  numEntries INTEGER, payloadSize INTEGER, alignTo INTEGER);
CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId INTEGER NOT NULL, schemaId INTEGER NOT NULL,
  idx INTEGER NOT NULL, flags INTEGER, type INTEGER, name TEXT, description TEXT, arrayOrUnionDetail INTEGER,
  offset INTEGER);
CREATE TABLE NVTX_PAYLOAD_ENUM_ENTRIES (domainId INTEGER NOT NULL, schemaId INTEGER NOT NULL,
  idx INTEGER NOT NULL, name TEXT, value INTEGER, isFlag INTEGER);
INSERT INTO NVTX_PAYLOAD_SCHEMAS VALUES (1, 16777218, NULL, 1, NULL, 4, 24, NULL),
  (1, 16777219, NULL, 1, NULL, 3, 24, NULL);
INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES
  (1, 16777218, 0, NULL, 18, 'NCCL communicator ID', NULL, NULL, NULL),
  (1, 16777218, 1, NULL, 5, 'No. of ranks', NULL, NULL, 8),
  (1, 16777218, 2, NULL, 5, 'Rank', NULL, NULL, 12),
  (1, 16777218, 3, NULL, 5, 'CUDA device', NULL, NULL, 16),
  (1, 16777219, 0, NULL, 18, 'NCCL communicator ID', NULL, NULL, NULL),
  (1, 16777219, 1, NULL, 22, 'Message size [bytes]', NULL, NULL, 8),
  (1, 16777219, 2, NULL, 16777232, 'Reduction operation', NULL, NULL, 16);
INSERT INTO NVTX_PAYLOAD_ENUM_ENTRIES VALUES (1, 16777232, 0, 'Sum', 0, 0), (1, 16777232, 1, 'Product', 1, 0);
";

pub(super) fn write(path: &Path, program: &Program) -> io::Result<()> {
    let connection = Connection::open(path).map_err(io::Error::other)?;
    write_all(&connection, program).map_err(io::Error::other)?;
    connection.close().map_err(|(_, error)| io::Error::other(error))
}

fn write_all(connection: &Connection, program: &Program) -> rusqlite::Result<()> {
    connection.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN")?;
    connection.execute_batch(NSYS_SCHEMA)?;
    connection.execute_batch(SCHEMA)?;
    let mut file = File { connection, texts: HashMap::new() };
    assert_eq!(OPERATIONS, INITIALISED + 14);
    let communicator = COMMUNICATOR.to_le_bytes();
    let [ranks, rank, device] = [RANKS as i32, 0, 0].map(i32::to_le_bytes);
    let made = [&communicator[..], &ranks, &rank, &device, &[0; 4]].concat();
    file.range(DOMAIN_NAME, "NCCL", 1, None, DOMAIN, None)?;
    file.range(
        PUSH_POP,
        "ncclCommInitRankConfig",
        10,
        Some(1_000),
        DOMAIN,
        Some(&record(INITIALISED, &made)),
    )?;
    for (op, id) in program.ops.iter().zip(1..) {
        let sizes: Vec<String> = op.dims.iter().map(|dims| format!("{dims:?}")).collect();
        let text = format!("{}, op_id = {id}, sizes = [{}]", op.name, sizes.join(", "));
        file.range(PUSH_POP, &text, op.start_ns, Some(op.end_ns), 0, None)?;
    }
    for mark in &program.marks {
        file.range(PUSH_POP, &mark.name, mark.start_ns, Some(mark.end_ns), 0, None)?;
    }
    for message in &program.messages {
        let payload = [&communicator[..], &message.bytes.to_le_bytes(), &[0; 8]].concat();
        let record = record(REDUCED, &payload);
        let (start, end) = (message.call_start_ns, Some(message.call_end_ns));
        file.range(PUSH_POP, "ncclAllReduce", start, end, DOMAIN, Some(&record))?;
    }
    for call in &program.calls {
        file.call(call, program)?;
    }
    file.kernels(program)?;
    let end = program.kernels.iter().map(|kernel| kernel.end_ns).max().unwrap_or(0) + 1_000_000;
    connection.execute("INSERT INTO ANALYSIS_DETAILS VALUES (1 << 48, ?1, 0, ?1)", [end])?;
    connection.execute_batch("COMMIT")
}

/// A payload behind its header.
fn record(schema: i64, payload: &[u8]) -> Vec<u8> {
    let size = payload.len() as i64;
    let header = [DOMAIN, schema, size, size + 32].map(i64::to_le_bytes).concat();
    [header, payload.to_vec()].concat()
}

/// Ids of a node when it was created, and of its clone in the executable graph.
fn node_ids((graph, node): (u64, u64)) -> [i64; 2] {
    [graph, graph + 100].map(|graph| (graph << 32 | node).cast_signed())
}

/// A database on its way into the file.
struct File<'c> {
    connection: &'c Connection,
    texts: HashMap<String, i64>,
}

impl File<'_> {
    fn text(&mut self, text: &str) -> rusqlite::Result<i64> {
        if let Some(&id) = self.texts.get(text) {
            return Ok(id);
        }
        let id = self.connection.prepare("INSERT INTO StringIds (value) VALUES (?1)")?.insert([text])?;
        self.texts.insert(text.to_owned(), id);
        Ok(id)
    }

    fn range(
        &self,
        kind: i64,
        text: &str,
        start: i64,
        end: Option<i64>,
        domain: i64,
        payload: Option<&[u8]>,
    ) -> rusqlite::Result<()> {
        let sql = "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, domainId, binaryData)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        let row = params![start, end, kind, text, GLOBAL_TID, domain, payload];
        self.connection.prepare(sql)?.execute(row).map(|_| ())
    }

    fn call(&mut self, call: &Call, program: &Program) -> rusqlite::Result<()> {
        let name = self.text(match call.what {
            What::Launch => "cudaLaunchKernel_v7000",
            What::BeginCapture => "cudaStreamBeginCapture_v10000",
            What::EndCapture => "cudaStreamEndCapture_v10000",
            What::Instantiate => "cudaGraphInstantiateWithFlags_v11040",
            What::GraphLaunch => "cudaGraphLaunch_v10000",
        })?;
        let sql = "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?1, ?2, 0, ?3, ?4, ?5, 0, NULL)";
        let row = params![call.start_ns, call.end_ns, GLOBAL_TID, call.correlation, name];
        self.connection.prepare(sql)?.execute(row)?;
        if let Some(node) = call.creates {
            self.node(call.start_ns + 1_500, node_ids(node)[0], None)?;
        }
        if call.what == What::Instantiate {
            // The captures before this call that no other instantiated.
            let captured = program.calls.iter().take_while(|other| other.start_ns < call.start_ns);
            let last = captured.filter_map(|other| other.creates).last();
            let of_graph = program.calls.iter().filter_map(|other| other.creates);
            for node in of_graph.filter(|node| last.is_some_and(|last| last.0 == node.0)) {
                let [created, clone] = node_ids(node);
                self.node(call.start_ns + 2_000, clone, Some(created))?;
            }
        }
        Ok(())
    }

    fn node(&mut self, at: i64, id: i64, original: Option<i64>) -> rusqlite::Result<()> {
        let name = self.text("Graph Node Creation")?;
        let sql = "INSERT INTO CUDA_GRAPH_NODE_EVENTS VALUES (?1, ?1, 97, ?2, ?3, ?4, ?5)";
        let row = params![at, GLOBAL_TID, name, id, original];
        self.connection.prepare(sql)?.execute(row).map(|_| ())
    }

    fn kernels(&mut self, program: &Program) -> rusqlite::Result<()> {
        let sql = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, contextId, streamId, correlationId,
                   globalPid, demangledName, shortName, registersPerThread, gridX, gridY, gridZ, blockX, blockY,
                   blockZ, staticSharedMemory, dynamicSharedMemory, localMemoryPerThread, localMemoryTotal, gridId,
                   graphNodeId) VALUES (?1, ?2, 0, 1, ?3, ?4, ?5, ?6, ?6, 32, 64, 1, 1, 256, 1, 1, 0, 0, 0, 0, ?7, ?8)";
        for (kernel, number) in program.kernels.iter().zip(1_i64..) {
            let name = self.text(&kernel.name)?;
            let node = kernel.node.map(|node| node_ids(node)[1]);
            let row = params![
                kernel.start_ns,
                kernel.end_ns,
                kernel.stream,
                kernel.correlation,
                GLOBAL_PID,
                name,
                number,
                node
            ];
            self.connection.prepare(sql)?.execute(row)?;
        }
        Ok(())
    }
}
