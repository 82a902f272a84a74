//! What stands around the events: devices, process groups, base time; and the finished trace.

use std::collections::HashMap;
use std::sync::PoisonError;

use serde_json::Value;

use super::outline::Outline;
use super::rows::Shared;
use super::{exporters, merged};
use crate::error::{Error, ErrorKind, Result};
use crate::formats::foreign;
use crate::schema::{DeviceRow, ProcessGroupRow, Spans, Symbol, SymbolTable, Table, Tables};
use crate::source::Source;
use crate::stats::Stats;
use crate::trace::{Meta, Trace};
use crate::tracks::{Ident, TrackTable};

/// Puts together what was read; an error if the file turned out to be no trace.
pub(crate) fn finish(
    outline: Outline,
    mut tables: Tables,
    elsewhere: Vec<(u32, Ident)>,
    stats: Stats,
    source: &Source,
    shared: Shared,
) -> Result<Trace> {
    refuse_other_json(&outline, &stats)?;
    let mut symbols = shared.symbols.into_inner().unwrap_or_else(PoisonError::into_inner);
    let hosts = [tables.ops.len(), tables.launches.len(), tables.gpu_ops.len(), tables.python.len()];
    if hosts == [0; 4]
        && let Some(message) = foreign::events(&tables.spans, &symbols)
    {
        return Err(Error::new(ErrorKind::UnknownFormat, message));
    }
    let mut tracks = shared.tracks.into_inner().unwrap_or_else(PoisonError::into_inner);
    let renumbered = tracks.sort_used(&tables.used_tracks(tracks.len()), &symbols);
    tables.renumber_tracks(&renumbered);
    let mut elsewhere: HashMap<u32, Ident> = elsewhere.into_iter().collect();
    let labels = merged::labels(&tracks, &mut symbols, &elsewhere);
    let own = |pid| labels.as_ref().map_or(pid, |(way, _)| way.own(pid));
    exporters::sort_out(&mut tables, &tracks, &mut symbols, &mut elsewhere, own);
    let capture = capture(&tables.spans, &tracks, &symbols, own);
    let merged = merged::find(&mut tables, &tracks, &symbols, &elsewhere, labels);
    let properties = outline.properties;
    add_devices(&properties, &mut tables, &mut symbols);
    add_process_groups(&properties, &mut tables, &mut symbols);
    let meta = Meta {
        compression: source.compression,
        file_bytes: source.file_bytes,
        content_bytes: source.content_bytes,
        base_time_ns: properties.get("baseTimeNanoseconds").and_then(Value::as_i64),
        properties,
        ..Meta::default()
    };
    Ok(Trace { meta, tables, symbols, tracks, stats, capture, merged })
}

/// What the spans of the profiler itself cover. `own` is what a process is called without the label of a rank.
fn capture(
    spans: &Spans,
    tracks: &TrackTable,
    symbols: &SymbolTable,
    own: impl Fn(Ident) -> Ident,
) -> Option<(i64, i64)> {
    let process = symbols.find("Spans").map(Ident::Text)?;
    let is_profiler = |&span: &usize| {
        let name = spans.name.get(span).map_or("", |name| symbols.text(name));
        own(tracks.key(spans.track.values()[span]).0) == process && name.starts_with("PyTorch Profiler")
    };
    let extents = (0..spans.len()).filter(is_profiler).filter_map(|span| {
        let start = spans.start_ns.values()[span];
        Some((start, start.saturating_add(spans.dur_ns.get(span)?)))
    });
    extents.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)))
}

/// Other tools write JSON too; a wrong file must not pass for an empty trace.
fn refuse_other_json(outline: &Outline, stats: &Stats) -> Result<()> {
    const KEYS: [&str; 6] = [
        "schemaVersion",
        "deviceProperties",
        "distributedInfo",
        "displayTimeUnit",
        "baseTimeNanoseconds",
        "traceEvents",
    ];
    // The first lines of what nsys exports as JSON are its texts, or an event.
    const NSYS_KEYS: [&str; 2] = ["data", "Type"];
    let properties = &outline.properties;
    let known = KEYS.iter().any(|key| properties.contains_key(*key));
    let message = if let Some(message) = foreign::json(properties) {
        message
    } else if outline.arrays == 0 && !known && outline.is_lost() {
        "is not a trace: it is not JSON and has no traceEvents"
    } else if outline.arrays == 0 && !known && NSYS_KEYS.iter().any(|key| properties.contains_key(*key)) {
        "is JSON but not a trace. If nsys exported it, export SQLite instead: nsys export --type sqlite \
         REPORT"
    } else if outline.arrays == 0 && !known && !properties.is_empty() {
        "is JSON but not a trace: it has no traceEvents"
    } else if stats.seen > 0 && stats.kept == 0 && !known {
        "is JSON but not a trace: none of its elements is an event"
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::UnknownFormat, message))
}

/// The integer that `value` holds, also where a tool wrote it as a float or a text.
fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number
            .as_i64()
            .or_else(|| number.as_f64().filter(|x| x.fract() == 0.0 && x.abs() < 9e15).map(|x| x as i64)),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

fn text(value: Option<&Value>, symbols: &mut SymbolTable) -> Option<Symbol> {
    match value? {
        Value::Null => None,
        Value::String(text) if text.is_empty() => None,
        Value::String(text) => Some(symbols.intern(text)),
        other => Some(symbols.intern(&other.to_string())),
    }
}

type Properties = serde_json::Map<String, Value>;

fn objects(value: Option<&Value>) -> impl Iterator<Item = &Properties> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object)
}

fn add_devices(properties: &Properties, tables: &mut Tables, symbols: &mut SymbolTable) {
    // `computeProperties` is the spelling of the first recorders.
    let list = properties.get("deviceProperties").or_else(|| properties.get("computeProperties"));
    for (position, device) in objects(list).enumerate() {
        let number = |key: &str| device.get(key).and_then(integer);
        tables.devices.push(DeviceRow {
            device: number("id").and_then(|id| i32::try_from(id).ok()).unwrap_or(position as i32),
            name: text(device.get("name"), symbols),
            total_memory_bytes: number("totalGlobalMem"),
            compute_major: number("computeMajor"),
            compute_minor: number("computeMinor"),
            sm_count: number("numSms").or_else(|| number("maxComputeUnits")),
            warp_size: number("warpSize"),
            max_threads_per_block: number("maxThreadsPerBlock"),
            max_threads_per_sm: number("maxThreadsPerMultiprocessor"),
            registers_per_block: number("regsPerBlock"),
            registers_per_sm: number("regsPerMultiprocessor"),
            shared_memory_per_block_bytes: number("sharedMemPerBlock"),
            shared_memory_per_block_optin_bytes: number("sharedMemPerBlockOptin"),
            shared_memory_per_sm_bytes: number("sharedMemPerMultiprocessor")
                .or_else(|| number("maxSharedMemoryPerMultiProcessor")),
        });
    }
}

fn add_process_groups(properties: &Properties, tables: &mut Tables, symbols: &mut SymbolTable) {
    let groups = properties.get("distributedInfo").and_then(|info| info.get("pg_config"));
    for group in objects(groups) {
        tables.process_groups.push(ProcessGroupRow {
            name: text(group.get("pg_name"), symbols),
            description: text(group.get("pg_desc"), symbols),
            backend: text(group.get("backend_config"), symbols),
            size: group.get("pg_size").and_then(integer),
            ranks: text(group.get("ranks"), symbols),
        });
    }
}
