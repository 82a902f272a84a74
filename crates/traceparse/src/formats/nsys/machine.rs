//! GPUs, streams, and the names of processes and threads.

use hashbrown::HashMap;
use std::collections::BTreeSet;

use rusqlite::{Connection, Row};

use super::identity::{GlobalId, Processes};
use crate::formats::sqlite::catalog::{Catalog, Table};
use crate::schema::{DeviceRow, MetadataRow, SymbolTable, Tables};
use crate::tracks::{Ident, TrackTable};

/// What is known of GPUs and streams before the events are read.
#[derive(Debug, Default)]
pub(super) struct Machine {
    /// GPU of a process's device number.
    gpus: HashMap<(i64, i32), i32>,
    /// Priority of a stream, by process, context and stream.
    priorities: HashMap<(i64, i32, i64), i32>,
    /// Names of GPU metrics, by type and metric.
    pub(super) metrics: HashMap<(i64, i64), String>,
}

impl Machine {
    pub(super) fn read(connection: &Connection, catalog: &Catalog) -> Self {
        let gpus =
            query(connection, catalog, "TARGET_INFO_CUDA_DEVICE", &["pid", "cudaId", "gpuId"], |row| {
                Ok(((row.get(0)?, row.get(1)?), row.get(2)?))
            });
        let columns = ["processId", "contextId", "streamId", "priority"];
        let priorities = query(connection, catalog, "TARGET_INFO_CUDA_STREAM", &columns, |row| {
            // Priorities are negative numbers stored as unsigned ones.
            let priority = row.get::<_, i64>(3)? as u32;
            Ok(((row.get(0)?, row.get(1)?, row.get(2)?), priority.cast_signed()))
        });
        let columns = ["typeId", "metricId", "metricName"];
        let metrics = query(connection, catalog, "TARGET_INFO_GPU_METRICS", &columns, |row| {
            Ok(((row.get(0)?, row.get(1)?), row.get(2)?))
        });
        Self {
            gpus: gpus.into_iter().collect(),
            priorities: priorities.into_iter().collect(),
            metrics: metrics.into_iter().collect(),
        }
    }

    /// The GPU that a process calls `device`; each process counts those that it sees from 0.
    pub(super) fn gpu(&self, pid: Option<i64>, device: i32) -> i32 {
        pid.and_then(|pid| self.gpus.get(&(pid, device)).copied()).unwrap_or(device)
    }

    /// The priority of a stream.
    pub(super) fn priority(
        &self,
        pid: Option<i64>,
        context: Option<i32>,
        stream: Option<i64>,
    ) -> Option<i32> {
        self.priorities.get(&(pid?, context?, stream?)).copied()
    }

    /// Whether the file says which GPU a device number means.
    pub(super) fn knows_gpus(&self) -> bool {
        !self.gpus.is_empty()
    }
}

/// The rows of a table that `read` takes, without those that hold nulls or wrong types.
fn query<T>(
    connection: &Connection,
    catalog: &Catalog,
    table: &str,
    columns: &[&str],
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Vec<T> {
    // NULL stands for a column that this version does not have.
    let known: Vec<&str> = columns.iter().copied().filter(|&column| column != "NULL").collect();
    if !catalog.has(table, &known) {
        return Vec::new();
    }
    let sql = format!("SELECT {} FROM {table} ORDER BY rowid", columns.join(", "));
    let Ok(mut statement) = connection.prepare(&sql) else { return Vec::new() };
    statement.query_map([], read).map(|rows| rows.flatten().collect()).unwrap_or_default()
}

/// Columns of `TARGET_INFO_GPU` in the order of [`DeviceRow`].
const GPU_COLUMNS: [&str; 13] = [
    "id",
    "name",
    "totalMemory",
    "computeMajor",
    "computeMinor",
    "smCount",
    "threadsPerWarp",
    "maxThreadsPerBlock",
    "maxRegistersPerBlock",
    "maxRegistersPerSm",
    "maxShmemPerBlock",
    "maxShmemPerBlockOptin",
    "maxShmemPerSm",
];

/// Adds the GPUs that the database describes.
pub(super) fn add_devices(
    connection: &Connection,
    catalog: &Catalog,
    symbols: &mut SymbolTable,
    tables: &mut Tables,
) {
    let Some(table) = catalog.table("TARGET_INFO_GPU").filter(|table| table.has("id")) else { return };
    let columns = GPU_COLUMNS.map(|column| if table.has(column) { column } else { "NULL" });
    let sql = format!("SELECT {} FROM TARGET_INFO_GPU ORDER BY id", columns.join(", "));
    let Ok(mut statement) = connection.prepare(&sql) else { return };
    let Ok(mut rows) = statement.query([]) else { return };
    while let Ok(Some(row)) = rows.next() {
        let Ok(device) = row.get(0) else { continue };
        // Older versions write 0 for what is not known.
        let number = |at: usize| row.get::<_, Option<i64>>(at).ok().flatten().filter(|&value| value > 0);
        let name = row.get::<_, Option<String>>(1).ok().flatten().filter(|name| !name.is_empty());
        tables.devices.push(DeviceRow {
            device,
            name: name.map(|name| symbols.intern(&name)),
            total_memory_bytes: number(2),
            compute_major: number(3),
            compute_minor: number(4).or_else(|| number(3).map(|_| 0)),
            sm_count: number(5),
            warp_size: number(6),
            max_threads_per_block: number(7),
            max_threads_per_sm: number(6).zip(warps_per_sm(connection, table, device)).map(|(a, b)| a * b),
            registers_per_block: number(8),
            registers_per_sm: number(9),
            shared_memory_per_block_bytes: number(10),
            shared_memory_per_block_optin_bytes: number(11),
            shared_memory_per_sm_bytes: number(12),
        });
    }
}

fn warps_per_sm(connection: &Connection, table: &Table, device: i32) -> Option<i64> {
    if !table.has("maxWarpsPerSm") {
        return None;
    }
    let sql = "SELECT maxWarpsPerSm FROM TARGET_INFO_GPU WHERE id = ?1";
    connection.query_row(sql, [device], |row| row.get(0)).ok().filter(|&warps| warps > 0)
}

/// Adds the devices that have work and that nothing describes.
pub(super) fn add_used_devices(tables: &mut Tables) {
    let Tables { gpu_ops, devices, .. } = tables;
    let described: BTreeSet<i32> = devices.device.iter().flatten().collect();
    let used: BTreeSet<i32> = gpu_ops.device.iter().flatten().filter(|&device| device >= 0).collect();
    for &device in used.difference(&described) {
        devices.push(DeviceRow { device, ..Default::default() });
    }
}

/// Adds the names of the processes and threads that have events; the database lists all of the host.
///
/// Rows get numbers from `row` on.
pub(super) fn add_names(
    connection: &Connection,
    catalog: &Catalog,
    processes: Processes,
    tracks: &TrackTable,
    symbols: &mut SymbolTable,
    tables: &mut Tables,
    mut row: u32,
) {
    let mut first_tracks: HashMap<Ident, u32> = HashMap::new();
    let mut threads: HashMap<(Ident, Ident), u32> = HashMap::new();
    for track in 0..tracks.len() as u32 {
        let key = tracks.key(track);
        first_tracks.entry(key.0).or_insert(track);
        threads.insert(key, track);
    }
    let mut add = |label: &str, track: u32, value: &str, symbols: &mut SymbolTable| {
        let (name, value) = (Some(symbols.intern(label)), Some(symbols.intern(value)));
        tables.metadata.push(MetadataRow { row, name, track, start_ns: None, value });
        row = row.saturating_add(1);
    };
    let named = query(connection, catalog, "PROCESSES", &["globalPid", "name"], |row| {
        Ok((row.get(0)?, row.get::<_, String>(1)?))
    });
    for (id, name) in named {
        if let Some(&track) = first_tracks.get(&Ident::Int(processes.pid(GlobalId(id)))) {
            add("process_name", track, &name, symbols);
        }
    }
    if !catalog.has("StringIds", &["id", "value"]) || !catalog.has("ThreadNames", &["nameId", "globalTid"]) {
        return;
    }
    let Ok(mut text) = connection.prepare("SELECT value FROM StringIds WHERE id = ?1") else { return };
    let has_priority = catalog.has("ThreadNames", &["priority"]);
    let columns = ["globalTid", "nameId", if has_priority { "priority" } else { "NULL" }];
    let named = query(connection, catalog, "ThreadNames", &columns, |row| {
        Ok((row.get(0)?, (row.get::<_, i64>(1)?, row.get::<_, Option<i64>>(2)?)))
    });
    for (id, (name, priority)) in named {
        let key = (Ident::Int(processes.pid(GlobalId(id))), Ident::Int(GlobalId(id).tid()));
        let Some(&track) = threads.get(&key) else { continue };
        if let Ok(name) = text.query_row([name], |row| row.get::<_, String>(0)) {
            add("thread_name", track, &name, symbols);
        }
        if let Some(priority) = priority {
            add("thread_priority", track, &priority.to_string(), symbols);
        }
    }
}
