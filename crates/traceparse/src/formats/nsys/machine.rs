//! GPUs, streams, and the names of processes and threads.

use hashbrown::HashMap;
use std::collections::BTreeSet;

use rusqlite::{Connection, Row};
use serde_json::Value;

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
    /// Names of GPU metrics, by type, if that is told, and metric.
    metrics: HashMap<(Option<i64>, i64), String>,
    /// What GPUs are called in the trace, by the id of the database.
    devices: HashMap<i32, i32>,
    /// The same by the number that PerfWorks gives them, which samples metrics.
    sampled: HashMap<i32, i32>,
    /// Types of generic events that are samples of GPU metrics, and whether their times are those of the session.
    generic: HashMap<i64, bool>,
    /// Whether all generic events are such samples.
    has_only_metrics: bool,
    pub(super) network: Network,
}

/// Network devices, and what is measured of them.
#[derive(Debug, Default)]
pub(super) struct Network {
    /// Name and GUID of an interface, by the id that its samples have.
    interfaces: HashMap<i64, (String, i64)>,
    /// Names of metrics, by list and place in it.
    metrics: HashMap<(i64, i64), String>,
}

impl Network {
    fn read(connection: &Connection, catalog: &Catalog) -> Self {
        let described =
            query(connection, catalog, "TARGET_INFO_NIC_INFO", &["nicId", "name", "GUID"], |row| {
                Ok((row.get::<_, i64>(0)?, (row.get::<_, String>(1)?, row.get::<_, i64>(2)?)))
            });
        let described: HashMap<_, _> = described.into_iter().collect();
        let ids = query(connection, catalog, "NIC_ID_MAP", &["globalId", "nicId"], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
        });
        let known = ids.into_iter().filter_map(|(id, nic)| Some((id, described.get(&nic)?.clone())));
        let columns = ["metricsListId", "metricsIdx", "name"];
        let metrics = query(connection, catalog, "TARGET_INFO_NETWORK_METRICS", &columns, |row| {
            Ok(((row.get(0)?, row.get(1)?), row.get(2)?))
        });
        Self { interfaces: known.collect(), metrics: metrics.into_iter().collect() }
    }

    /// A device as text: its name, where it has one, and its GUID in hexadecimal digits.
    pub(super) fn device(&self, kind: &str, id: i64) -> String {
        match self.interfaces.get(&id) {
            Some((name, guid)) => format!("{name} {guid:#018x}"),
            None => format!("{kind} {id:#018x}"),
        }
    }

    /// The name of a metric.
    pub(super) fn metric(&self, list: i64, index: i64) -> String {
        let known = self.metrics.get(&(list, index)).cloned();
        known.unwrap_or_else(|| format!("network metric {index}"))
    }
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
        let (generic, has_only_metrics) = generic_types(connection, catalog);
        let knows_gpus = !gpus.is_empty();
        let devices = described_gpus(connection, catalog);
        let device = |(id, _, ordinal): &DescribedGpu| match ordinal {
            Some(ordinal) if !knows_gpus => *ordinal,
            _ => *id,
        };
        Self {
            gpus: gpus.into_iter().collect(),
            priorities: priorities.into_iter().collect(),
            metrics: metric_names(connection, catalog),
            devices: devices.iter().map(|gpu| (gpu.0, device(gpu))).collect(),
            sampled: devices.iter().filter_map(|gpu| Some((gpu.1?, device(gpu)))).collect(),
            generic,
            has_only_metrics,
            network: Network::read(connection, catalog),
        }
    }

    /// Whether any generic events are samples of GPU metrics, and all of them.
    pub(super) fn generic_metrics(&self) -> (bool, bool) {
        (!self.generic.is_empty(), self.has_only_metrics)
    }

    /// Null where a type of generic events is another than samples of GPU metrics, else whether their times are
    /// those of the session.
    pub(super) fn samples_metrics(&self, kind: i64) -> Option<bool> {
        self.generic.get(&kind).copied()
    }

    /// What the trace calls the GPU that the database has under `id`.
    ///
    /// Where nothing says which GPUs a process sees, work has the numbers that CUDA gives them.
    fn device(&self, id: i32) -> i32 {
        self.devices.get(&id).copied().unwrap_or(id)
    }

    /// What the trace calls the GPU whose metrics are sampled under `number`.
    pub(super) fn sampled_gpu(&self, number: i32) -> i32 {
        self.sampled.get(&number).copied().unwrap_or_else(|| self.device(number))
    }

    /// The name of a metric. Numbers of metrics differ between types; one that the database does not list may
    /// have the name that all others give the number.
    pub(super) fn metric(&self, kind: Option<i64>, metric: i64) -> Option<&str> {
        let found = self.metrics.get(&(kind, metric)).or_else(|| self.metrics.get(&(None, metric)));
        found.map(String::as_str)
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

/// Id of a GPU, and the numbers that PerfWorks and CUDA give it.
type DescribedGpu = (i32, Option<i32>, Option<i32>);

/// Every GPU that the database describes.
fn described_gpus(connection: &Connection, catalog: &Catalog) -> Vec<DescribedGpu> {
    let Some(table) = catalog.table("TARGET_INFO_GPU") else { return Vec::new() };
    let columns = ["id", "pwGpuId", "cuDevice"].map(|column| if table.has(column) { column } else { "NULL" });
    query(connection, catalog, "TARGET_INFO_GPU", &columns, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
}

/// Names of GPU metrics, by type and metric; without a type those that all types agree on.
fn metric_names(connection: &Connection, catalog: &Catalog) -> HashMap<(Option<i64>, i64), String> {
    let table = "TARGET_INFO_GPU_METRICS";
    let kind = if catalog.has(table, &["typeId"]) { "typeId" } else { "NULL" };
    let named = query(connection, catalog, table, &[kind, "metricId", "metricName"], |row| {
        Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, i64>(1)?, row.get::<_, String>(2)?))
    });
    let mut agreed: HashMap<i64, Option<String>> = HashMap::new();
    for (_, metric, name) in &named {
        let known = agreed.entry(*metric).or_insert_with(|| Some(name.clone()));
        if known.as_ref() != Some(name) {
            *known = None;
        }
    }
    let of_types = named.into_iter().map(|(kind, metric, name)| ((kind, metric), name));
    let agreed = agreed.into_iter().filter_map(|(metric, name)| Some(((None, metric), name?)));
    of_types.filter(|((kind, _), _)| kind.is_some()).chain(agreed).collect()
}

/// The types of generic events that sample GPU metrics, each with whether their times are those of the session;
/// and whether there are no others.
fn generic_types(connection: &Connection, catalog: &Catalog) -> (HashMap<i64, bool>, bool) {
    let sources = query(connection, catalog, "GENERIC_EVENT_SOURCES", &["sourceId", "data"], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
    });
    let sampled = |(id, text): (i64, String)| {
        let source: Value = serde_json::from_str(&text).ok()?;
        let is_sampled = source.get("Name").and_then(Value::as_str) == Some("GpuMetrics");
        let clock = source.get("TimeSource").and_then(Value::as_str);
        is_sampled.then_some((id, clock.is_none_or(|clock| clock == "SessionNs")))
    };
    let sampled: HashMap<_, _> = sources.into_iter().filter_map(sampled).collect();
    let types = query(connection, catalog, "GENERIC_EVENT_TYPES", &["typeId", "sourceId"], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
    });
    let count = types.len();
    let types: HashMap<_, _> =
        types.into_iter().filter_map(|(kind, source)| Some((kind, *sampled.get(&source)?))).collect();
    let has_only_metrics = types.len() == count;
    (types, has_only_metrics)
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
    let sql = format!("SELECT {} FROM {table} {}", columns.join(", "), catalog.order(table));
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
    machine: &Machine,
    symbols: &mut SymbolTable,
    tables: &mut Tables,
) {
    let Some(table) = catalog.table("TARGET_INFO_GPU").filter(|table| table.has("id")) else { return };
    let columns = GPU_COLUMNS.map(|column| if table.has(column) { column } else { "NULL" });
    let sql = format!("SELECT {} FROM TARGET_INFO_GPU ORDER BY id", columns.join(", "));
    let Ok(mut statement) = connection.prepare(&sql) else { return };
    let Ok(mut rows) = statement.query([]) else { return };
    while let Ok(Some(row)) = rows.next() {
        let Ok(id) = row.get(0) else { continue };
        // Older versions write 0 for what is not known.
        let number = |at: usize| row.get::<_, Option<i64>>(at).ok().flatten().filter(|&value| value > 0);
        let name = row.get::<_, Option<String>>(1).ok().flatten().filter(|name| !name.is_empty());
        tables.devices.push(DeviceRow {
            device: machine.device(id),
            name: name.map(|name| symbols.intern(&name)),
            total_memory_bytes: number(2),
            compute_major: number(3),
            compute_minor: number(4).or_else(|| number(3).map(|_| 0)),
            sm_count: number(5),
            warp_size: number(6),
            max_threads_per_block: number(7),
            max_threads_per_sm: number(6).zip(warps_per_sm(connection, table, id)).map(|(a, b)| a * b),
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
    let ranks = query(connection, catalog, "MPI_RANKS", &["globalTid", "rank"], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
    });
    for (id, rank) in ranks {
        let key = (Ident::Int(processes.pid(GlobalId(id))), Ident::Int(GlobalId(id).tid()));
        if let Some(&track) = threads.get(&key) {
            add("mpi_rank", track, &rank.to_string(), symbols);
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
