//! Reads a whole database.

use std::collections::BTreeMap;
use std::ops::Range;

use super::events::EventIndex;
use super::identity::Processes;
use super::launching::Launching;
use super::machine::{self, Machine};
use super::names::Names;
use super::payloads::Payloads;
use super::recording::{ColumnFlags, Recording, Source};
use super::session::Session;
use super::{calls, gpu_ops, libraries, memory, metrics, network, nvtx, spans};
use crate::error::Result;
use crate::formats::format::{Format, OpenDatabase, Opened};
use crate::formats::sqlite::builder::Shared;
use crate::formats::sqlite::catalog::{Catalog, Rows};
use crate::formats::sqlite::plan::{Plan, Run};
use crate::formats::sqlite::scan::{Order, Reading};
use crate::options::ReadOptions;
use crate::schema::{Table, Tables};
use crate::stats::{Code, Stats};
use crate::trace::{Meta, Trace};

/// Every table of events, in the order in which rows are numbered.
static SOURCES: [&Source; 54] = [
    &gpu_ops::KERNELS,
    &gpu_ops::COPIES,
    &gpu_ops::MEMSETS,
    &gpu_ops::GRAPHS,
    &calls::CALLS,
    &calls::SYNCS,
    &calls::EVENTS,
    &nvtx::NVTX,
    &memory::ALLOCATIONS,
    &metrics::METRICS,
    &metrics::GENERIC,
    &spans::OS_CALLS,
    &spans::OVERHEADS,
    &spans::PROFILER,
    &spans::GRAPHS,
    &spans::GRAPH_NODES,
    &spans::MESSAGES,
    &memory::ON_CPU,
    &memory::ON_GPU,
    &libraries::SYSTEM_CALLS,
    &libraries::OPENMP_THREADS,
    &libraries::OPENMP_PARALLEL,
    &libraries::OPENMP_SYNC_WAITS,
    &libraries::OPENMP_SYNCS,
    &libraries::OPENMP_TASKS,
    &libraries::OPENMP_MASTERS,
    &libraries::OPENMP_REDUCTIONS,
    &libraries::OPENMP_TASKS_CREATED,
    &libraries::OPENMP_TASKS_SCHEDULED,
    &libraries::OPENMP_CANCELS,
    &libraries::OPENMP_MUTEX_WAITS,
    &libraries::OPENMP_CRITICAL,
    &libraries::OPENMP_MUTEX_RELEASES,
    &libraries::OPENMP_LOCKS_MADE,
    &libraries::OPENMP_LOCKS_GONE,
    &libraries::OPENMP_WORK,
    &libraries::OPENMP_DISPATCHES,
    &libraries::OPENMP_FLUSHES,
    &libraries::OPENACC_DATA,
    &libraries::OPENACC_LAUNCHES,
    &libraries::OPENACC_OTHERS,
    &libraries::ENCODER,
    &libraries::DECODER,
    &libraries::JPEG,
    &libraries::MPI_WAITS,
    &libraries::MPI_OTHERS,
    &libraries::VULKAN_MARKERS,
    &libraries::MPI_MESSAGES,
    &libraries::MPI_COLLECTIVES,
    &libraries::VULKAN_CALLS,
    &libraries::VULKAN_WORK,
    &libraries::DEBUG,
    &network::INTERFACES,
    &network::SWITCHES,
];

/// Tables of which an export of nsys has one, whatever was recorded.
const MARKS: [&str; 4] =
    ["META_DATA_EXPORT", "EXPORT_META_DATA", "ANALYSIS_DETAILS", "TARGET_INFO_SESSION_START_TIME"];

/// Databases that nsys exports.
pub(crate) struct Nsys;

impl Format for Nsys {
    fn name(&self) -> &'static str {
        "nsys"
    }

    fn takes(&self, file: &Opened<'_>) -> bool {
        let Some(catalog) = file.catalog() else { return false };
        let has = |name: &str| catalog.table(name).is_some();
        MARKS.iter().any(|name| has(name))
            || has("StringIds") && SOURCES.iter().any(|source| has(source.name))
    }

    fn read(&self, file: Opened<'_>, options: &ReadOptions) -> Result<Trace> {
        read(file.into_database()?, options)
    }

    /// The rows themselves say all there is to GPU work and GPUs.
    fn needs_links(&self, options: &ReadOptions) -> bool {
        options.wants_links()
    }

    fn reads_columns(&self) -> bool {
        true
    }

    fn advice(&self, file: &Opened<'_>) -> Option<&'static str> {
        if file.head().starts_with(b"\x89HDF\r\n\x1a\n") {
            return Some(
                "is HDF5, which kernelscope does not read. Export SQLite instead: nsys export \
                         --type sqlite REPORT",
            );
        }
        let extension = file.path.extension()?.to_str()?;
        let is_report = ["nsys-rep", "qdrep", "qdstrm"].iter().any(|own| extension.eq_ignore_ascii_case(own));
        is_report.then_some(
            "is an nsys report, which only nsys can read. Export it: nsys export --type sqlite FILE",
        )
    }
}

fn read(file: OpenDatabase, options: &ReadOptions) -> Result<Trace> {
    let OpenDatabase { database, connection, catalog, mut stats } = file;
    let session = Session::read(&connection, &catalog);
    if session.is_newer() {
        stats.note(Code::NewerSchema, None);
    }
    let machine = Machine::read(&connection, &catalog);
    let plan = plan(&catalog, &session, &machine, options, &mut stats);
    let processes = Processes { machine: session.machine };
    let events = options.wants("syncs").then(|| EventIndex::read(&connection, &catalog, processes));
    let tables = SOURCES.iter().map(|source| source.name);
    let mut recording = Recording {
        processes,
        machine,
        events: events.unwrap_or_default(),
        names: Names::default(),
        session_end: options.wants("ranges").then(|| session.end_ns(&connection, &catalog, tables)).flatten(),
        wanted: ColumnFlags::new(options),
        launching: options.only_launching.then(Launching::default),
        payloads: if options.wants("ranges") {
            Payloads::read(&connection, &catalog)
        } else {
            Payloads::default()
        },
        payload_sql: nvtx::payload_sql(&catalog),
    };
    let shared = Shared::default();
    let reading = Reading { database: &database, catalog: &catalog, plan: &plan, shared: &shared, options };
    let mut order = Order::default();
    for runs in phases(&plan, options) {
        order = reading.scan(&recording, runs, order)?;
        if let Some(launching) = &mut recording.launching {
            launching.learn(&order.tables);
        }
    }
    stats.merge(&order.stats);
    let Order { mut tables, next, .. } = order;
    let (mut symbols, mut tracks) = shared.into_parts();
    recording.names.resolve(&mut symbols, &mut tables.ranges);
    tables.renumber_tracks(&tracks.sort(&symbols));
    let row = plan.end.unwrap_or(next);
    machine::add_devices(&connection, &catalog, &recording.machine, &mut symbols, &mut tables);
    machine::add_names(&connection, &catalog, processes, &tracks, &mut symbols, &mut tables, row);
    machine::add_used_devices(&mut tables);
    note_devices(&tables, &recording.machine, &mut stats);
    let whole_graphs = symbols
        .find("graph")
        .map_or(0, |graph| tables.gpu_ops.kind.values().iter().filter(|&&kind| kind == graph).count());
    if recording.payloads.describe(nvtx::COMMUNICATOR) && tables.collectives.is_empty() {
        stats.note_in(Code::PayloadsLeftOut, nvtx::NVTX.name, None);
    }
    stats.note_many(Code::GraphWithoutNodes, whole_graphs as u64, None);
    let (_, has_only_metrics) = recording.machine.generic_metrics();
    let is_beside =
        |name: &str| is_surroundings(name) || has_only_metrics && name.starts_with("GENERIC_EVENT");
    let described = plan.describe(&connection, &catalog, is_beside, &mut stats);
    let capture = session.extent();
    let meta = Meta {
        compression: "none",
        file_bytes: database.file_bytes,
        content_bytes: database.file_bytes,
        base_time_ns: session.base_time_ns(),
        properties: session.properties(described),
        ..Meta::default()
    };
    Ok(Trace { meta, tables, symbols, tracks, stats, capture, merged: None })
}

/// What is read, of what feeds the tables that `options` want.
///
/// Exports with a table of samples have the same as generic events.
fn plan(
    catalog: &Catalog,
    session: &Session,
    machine: &Machine,
    options: &ReadOptions,
    stats: &mut Stats,
) -> Plan<Recording> {
    let is_sampled = catalog.table(metrics::METRICS.name).is_some_and(|table| table.rows != Rows::None);
    let is_generic =
        !is_sampled && machine.generic_metrics().0 && catalog.has(metrics::GENERIC.name, &["typeId", "data"]);
    let is_there = |source: &Source| match source.name {
        "GPU_METRICS" => !is_generic,
        "GENERIC_EVENTS" => is_generic,
        _ => true,
    };
    let is_wanted = |source: &&Source| is_there(source) && options.wants(source.feeds);
    let sources = SOURCES.into_iter().filter(is_wanted);
    let meaning_of_none = |feature, _| session.capture.meaning_of_none(feature);
    Plan::new(sources, catalog, meaning_of_none, options, stats).numbered_by_rowid()
}

/// The runs in parts of which each is read when those before are.
///
/// Which calls launched GPU work is known when that was read, and which ranges enclose one when the
/// calls were.
fn phases(plan: &Plan<Recording>, options: &ReadOptions) -> Vec<Range<usize>> {
    let feeds = |run: &Run| plan.tables.get(run.table).map_or("", |table| table.source.feeds);
    let ends = if options.only_launching {
        let work = plan.runs.iter().take_while(|run| feeds(run) == "gpu_ops").count();
        let calls = plan.runs[work..].iter().take_while(|run| feeds(run) == "launches").count();
        vec![work, work + calls, plan.runs.len()]
    } else {
        vec![plan.runs.len()]
    };
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts.zip(ends.iter().copied()).map(|(start, end)| start..end).collect()
}

/// Tables that are read and hold no events.
fn is_surroundings(name: &str) -> bool {
    const NAMES: [&str; 24] = [
        "StringIds",
        "ANALYSIS_DETAILS",
        "META_DATA_CAPTURE",
        "META_DATA_EXPORT",
        "EXPORT_META_DATA",
        "PROCESSES",
        "ThreadNames",
        "TARGET_INFO_SESSION_START_TIME",
        "TARGET_INFO_SYSTEM_ENV",
        "TARGET_INFO_GPU",
        "TARGET_INFO_GPU_METRICS",
        "TARGET_INFO_CUDA_DEVICE",
        "TARGET_INFO_CUDA_STREAM",
        "TARGET_INFO_CUDA_CONTEXT_INFO",
        "TARGET_INFO_NIC_INFO",
        "TARGET_INFO_NETWORK_METRICS",
        "NIC_ID_MAP",
        "MPI_RANKS",
        "NVTX_PAYLOAD_SCHEMAS",
        "NVTX_PAYLOAD_SCHEMA_ENTRIES",
        "NVTX_PAYLOAD_ENUMS",
        "NVTX_PAYLOAD_ENUM_ENTRIES",
        "sqlite_sequence",
        "sqlite_stat1",
    ];
    NAMES.contains(&name) || name.starts_with("ENUM_")
}

/// Device numbers count what a process sees, so two processes may mean two GPUs by one number.
fn note_devices(tables: &Tables, machine: &Machine, stats: &mut Stats) {
    if machine.knows_gpus() {
        return;
    }
    let mut users: BTreeMap<i32, (i64, bool)> = BTreeMap::new();
    let gpu_ops = &tables.gpu_ops;
    for (device, pid) in gpu_ops.device.iter().zip(gpu_ops.pid.iter()) {
        if let (Some(device), Some(pid)) = (device, pid) {
            let user = users.entry(device).or_insert((pid, false));
            user.1 |= user.0 != pid;
        }
    }
    let shared = users.values().filter(|(_, is_shared)| *is_shared).count();
    stats.note_many(Code::AmbiguousDevice, shared as u64, None);
}
