//! NVTX ranges and marks, and the names of domains and categories.

use rusqlite::types::ValueRef;
use serde_json::Value;

use super::capture::Feature;
use super::identity::GlobalId;
use super::names::Named;
use super::payloads::Unreadable;
use super::recording::{Builder, Source};
use crate::formats::sqlite::catalog::Catalog;
use crate::formats::sqlite::cells::Cells;
use crate::formats::sqlite::source::columns;
use crate::nvtx_text::{self, NvtxText};
use crate::schema::{CollectiveRow, ExtraArgRow, MetadataRow, RangeRow, Symbol, Tables};
use crate::stats::Code;

columns! { Nvtx {
    START = "start" Required,
    END = "end" Required,
    EVENT_TYPE = "eventType" Required,
    CATEGORY = "category" Usual for [category],
    TEXT = "text" Usual for [name op_id sequence sizes],
    GLOBAL_TID = "globalTid" Usual,
    END_GLOBAL_TID = "endGlobalTid" Usual,
    TEXT_ID = "textId" Usual for [name],
    DOMAIN = "domainId" Usual for [domain category],
} }

/// NVTX ranges, marks and names.
pub(super) static NVTX: Source = Source {
    name: "NVTX_EVENTS",
    feeds: "ranges",
    recorded_with: Feature::Nvtx,
    columns: Nvtx::ALL,
    flagged: &PAYLOAD,
    push,
};

/// Columns of which few events have any.
const PAYLOAD: [&str; 9] = [
    "uint64Value",
    "int64Value",
    "doubleValue",
    "uint32Value",
    "int32Value",
    "floatValue",
    "jsonTextId",
    "jsonText",
    "binaryData",
];

/// Kinds of events (`ENUM_NSYS_EVENT_TYPE`); the second of two is of events imported from text.
const CATEGORY_NAME: [i64; 2] = [33, 64];
const MARK: [i64; 2] = [34, 65];
const THREAD_NAME: i64 = 39;
const PUSH_POP: [i64; 2] = [59, 70];
const START_END: [i64; 2] = [60, 71];
const DOMAIN_NAME: i64 = 75;
const DOMAIN_END: i64 = 76;

fn push(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    let Some(start_ns) = cells.start(Nvtx::START) else { return false };
    match cells.int(Nvtx::EVENT_TYPE) {
        Some(kind) if PUSH_POP.contains(&kind) => range(builder, cells, tables, start_ns, "push_pop"),
        Some(kind) if START_END.contains(&kind) => range(builder, cells, tables, start_ns, "start_end"),
        Some(kind) if MARK.contains(&kind) => range(builder, cells, tables, start_ns, "mark"),
        Some(kind) => name_of_something(builder, cells, tables, start_ns, kind),
        None => {
            cells.note(Code::MissingPhase);
            return false;
        }
    }
    true
}

fn range(
    builder: &mut Builder<'_, '_>,
    cells: &mut Cells<'_, '_>,
    tables: &mut Tables,
    start_ns: i64,
    kind: &'static str,
) {
    let global_tid = cells.int(Nvtx::GLOBAL_TID);
    let ended_by = cells.int(Nvtx::END_GLOBAL_TID).filter(|&id| Some(id) != global_tid);
    let track = builder.thread_track(global_tid);
    let dur_ns = if kind == "mark" { None } else { duration(builder, cells, start_ns) };
    if let Some(launching) = &builder.recorder.launching
        && (dur_ns.is_none()
            || ended_by.is_none()
                && !launching.is_around_call(&mut builder.thread.positions, track, start_ns, dur_ns))
    {
        return;
    }
    let (name, parts) = text(builder, cells);
    let sizes = parts.sizes.map(|sizes| builder.texts.bytes(cells, sizes));
    if let Some(ids) = parts.input_op_ids {
        let value = builder.texts.bytes(cells, ids);
        let key = builder.label("input_op_ids");
        tables.extra_args.push(ExtraArgRow { row: cells.number, key, value });
    }
    let row = RangeRow {
        row: cells.number,
        name,
        domain: domain(builder, cells, global_tid),
        category: category(builder, cells, global_tid),
        kind: builder.label(kind),
        track,
        start_ns,
        dur_ns,
        end_tid: ended_by.map(|id| GlobalId(id).tid()),
        op_id: parts.op_id,
        sequence: parts.sequence,
        sizes,
    };
    tables.ranges.push(row);
    if cells.int(NVTX.flag()) == Some(1) {
        payload(builder, cells, tables, name);
    }
}

/// The duration of a range; one without an end lasts to the end of the session.
fn duration(builder: &Builder<'_, '_>, cells: &mut Cells<'_, '_>, start_ns: i64) -> Option<i64> {
    if let Some(end) = cells.int(Nvtx::END) {
        return cells.duration(start_ns, end);
    }
    cells.note(Code::OpenRange);
    builder.recorder.session_end.and_then(|end| cells.duration(start_ns, end.max(start_ns)))
}

/// The text of an event: a registered one, or its own, taken apart.
#[inline]
fn text<'a>(builder: &mut Builder<'_, '_>, cells: &mut Cells<'a, '_>) -> (Option<Symbol>, NvtxText<'a>) {
    if !matches!(cells.value(Nvtx::TEXT_ID), ValueRef::Null) {
        return (builder.string(cells, Nvtx::TEXT_ID), NvtxText::default());
    }
    let Some(text) = cells.text(Nvtx::TEXT) else { return (None, NvtxText::default()) };
    let parts = nvtx_text::parse(text);
    (Some(builder.texts.bytes(cells, parts.name)), parts)
}

fn domain(
    builder: &mut Builder<'_, '_>,
    cells: &mut Cells<'_, '_>,
    global_tid: Option<i64>,
) -> Option<Symbol> {
    let domain = cells.int(Nvtx::DOMAIN).filter(|&id| id != 0)?;
    let pid = builder.pid(global_tid);
    let Builder { recorder, thread, texts, .. } = builder;
    Some(recorder.names.stand_in(&mut thread.names, Named::Domain(pid, domain), texts))
}

fn category(
    builder: &mut Builder<'_, '_>,
    cells: &mut Cells<'_, '_>,
    global_tid: Option<i64>,
) -> Option<Symbol> {
    let category = cells.int(Nvtx::CATEGORY).filter(|&id| id != 0)?;
    let domain = cells.int(Nvtx::DOMAIN).unwrap_or(0);
    let pid = builder.pid(global_tid);
    let Builder { recorder, thread, texts, .. } = builder;
    Some(recorder.names.stand_in(&mut thread.names, Named::Category(pid, domain, category), texts))
}

/// Events that name domains, categories, threads and other things.
fn name_of_something(
    builder: &mut Builder<'_, '_>,
    cells: &mut Cells<'_, '_>,
    tables: &mut Tables,
    start_ns: i64,
    kind: i64,
) {
    let global_tid = cells.int(Nvtx::GLOBAL_TID);
    let value = text(builder, cells).0;
    let (pid, domain) = (builder.pid(global_tid), cells.int(Nvtx::DOMAIN).unwrap_or(0));
    let named = match kind {
        DOMAIN_NAME => Some(Named::Domain(pid, domain)),
        _ if CATEGORY_NAME.contains(&kind) => {
            cells.int(Nvtx::CATEGORY).map(|id| Named::Category(pid, domain, id))
        }
        _ => None,
    };
    if let (Some(named), Some(name)) = (named, value) {
        builder.recorder.names.give(named, cells.rowid, name);
    }
    let label = match kind {
        THREAD_NAME => builder.label("thread_name"),
        DOMAIN_NAME => builder.label("nvtx_domain"),
        DOMAIN_END => builder.label("nvtx_domain_end"),
        _ if CATEGORY_NAME.contains(&kind) => builder.label("nvtx_category"),
        _ => builder.coded("nvtx event", kind, |kind| format!("nvtx_event_{kind}")),
    };
    let track = builder.thread_track(global_tid);
    let row = MetadataRow { row: cells.number, name: Some(label), track, start_ns: Some(start_ns), value };
    tables.metadata.push(row);
}

/// The query for the payload of one event; few have any, and reading nine more columns of all costs more.
pub(super) fn payload_sql(catalog: &Catalog) -> Option<String> {
    let table = catalog.table(NVTX.name)?;
    let columns = PAYLOAD.map(|column| if table.has(column) { column } else { "NULL" });
    Some(format!("SELECT {} FROM NVTX_EVENTS WHERE rowid = ?1", columns.join(", ")))
}

/// Names of fields in NCCL's payloads.
pub(super) const COMMUNICATOR: &str = "NCCL communicator ID";
const MESSAGE_BYTES: &str = "Message size [bytes]";

/// Adds the payload of an event to the table of collectives if NCCL described a call with it, and what else it has
/// to the table of further arguments.
fn payload(
    builder: &mut Builder<'_, '_>,
    cells: &mut Cells<'_, '_>,
    tables: &mut Tables,
    name: Option<Symbol>,
) {
    let mut told = CollectiveRow { row: cells.number, name, ..Default::default() };
    let mut is_collective = false;
    for (key, value) in payload_values(builder, cells) {
        if key == COMMUNICATOR || key == MESSAGE_BYTES {
            is_collective = true;
        }
        let number = value.as_i64();
        match key.as_str() {
            COMMUNICATOR => {
                let id = value.as_u64().map_or_else(|| value.to_string(), |id| format!("{id:#018x}"));
                told.process_group = Some(builder.texts.intern_clean(&id));
            }
            MESSAGE_BYTES => told.bytes = number.filter(|&bytes| bytes >= 0),
            "No. of ranks" => told.group_size = number,
            "Rank" => told.rank = number,
            "Peer rank" => told.destination_rank = number,
            "Root" => told.root_rank = number,
            "Reduction operation" => {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                told.reduction = Some(builder.texts.intern_clean(&text));
            }
            _ => {
                let key = builder.texts.intern_clean(&key);
                let value = builder.texts.intern_clean(&value.to_string());
                tables.extra_args.push(ExtraArgRow { row: cells.number, key, value });
            }
        }
    }
    if is_collective {
        told.source = builder.label("range");
        tables.collectives.push(told);
    }
}

/// What a payload says, by name.
fn payload_values(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>) -> Vec<(String, Value)> {
    const JSON_TEXT_ID: usize = 6;
    const JSON_TEXT: usize = 7;
    const BINARY: usize = 8;
    let Builder { thread, strings, texts, recorder, .. } = builder;
    let Some(statement) = &mut thread.payload else { return Vec::new() };
    let Ok(mut rows) = statement.query([cells.rowid]) else { return Vec::new() };
    let Ok(Some(row)) = rows.next() else { return Vec::new() };
    let mut values = Vec::new();
    for (at, &column) in PAYLOAD.iter().enumerate() {
        let value = match row.get_ref(at) {
            Ok(ValueRef::Integer(id)) if at == JSON_TEXT_ID => {
                let found = strings.find(id, texts);
                found.map(|(text, _)| Value::String(texts.text(text)))
            }
            // Unsigned numbers are stored by their bits.
            Ok(ValueRef::Integer(bits)) if at == 0 => Some(Value::from(bits.cast_unsigned())),
            Ok(ValueRef::Integer(number)) => Some(Value::from(number)),
            Ok(ValueRef::Real(number)) => Some(Value::from(number)),
            Ok(ValueRef::Text(bytes) | ValueRef::Blob(bytes)) if at == BINARY => {
                match recorder.payloads.decode(bytes) {
                    Ok(fields) => {
                        values.extend(fields.into_iter().map(|(name, value)| (name.to_owned(), value)));
                    }
                    Err(Unreadable::UnknownSchema) => cells.note(Code::UnknownPayload),
                    Err(Unreadable::TooShort) => cells.note(Code::BadPayload),
                }
                None
            }
            Ok(ValueRef::Text(text) | ValueRef::Blob(text)) => {
                Some(Value::String(String::from_utf8_lossy(text).into_owned()))
            }
            Ok(ValueRef::Null) | Err(_) => None,
        };
        let fields = value.as_ref().filter(|_| matches!(at, JSON_TEXT_ID | JSON_TEXT)).and_then(json_fields);
        match fields {
            Some(fields) => values.extend(fields),
            None => values.extend(value.map(|value| (column.to_owned(), value))),
        }
    }
    values
}

/// The fields of a payload of NCCL that the export wrote as JSON.
fn json_fields(text: &Value) -> Option<Vec<(String, Value)>> {
    let Ok(Value::Object(fields)) = serde_json::from_str(text.as_str()?) else { return None };
    let is_of_nccl = fields.contains_key(COMMUNICATOR) || fields.contains_key(MESSAGE_BYTES);
    is_of_nccl.then(|| fields.into_iter().collect())
}
