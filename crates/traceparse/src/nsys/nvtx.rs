//! NVTX ranges and marks, and the names of domains and categories.

use hashbrown::HashMap;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Statement};
use serde_json::Value;
use std::sync::{Mutex, PoisonError};

use super::builder::Builder;
use super::catalog::Catalog;
use super::cells::Cells;
use super::identity::GlobalId;
use super::nvtx_text::{self, NvtxText};
use super::source::source;
use super::strings::Texts;
use crate::schema::{ExtraArgRow, MetadataRow, RangeRow, Ranges, Symbol, SymbolTable, Tables};
use crate::stats::Code;

source! {
    /// NVTX ranges, marks and names.
    SOURCE: "NVTX_EVENTS", ranges, Nvtx, push, flag [
        "uint64Value", "int64Value", "doubleValue", "uint32Value", "int32Value", "floatValue",
        "jsonTextId", "jsonText", "binaryData"
    ];
    START = "start" Required,
    END = "end" Required,
    EVENT_TYPE = "eventType" Required,
    CATEGORY = "category" Usual for [category],
    TEXT = "text" Usual for [name op_id sequence sizes],
    GLOBAL_TID = "globalTid" Usual,
    END_GLOBAL_TID = "endGlobalTid" Usual,
    TEXT_ID = "textId" Usual for [name],
    DOMAIN = "domainId" Usual for [domain category],
}

/// Kinds of events (`ENUM_NSYS_EVENT_TYPE`); the second of two is of events imported from text.
const CATEGORY_NAME: [i64; 2] = [33, 64];
const MARK: [i64; 2] = [34, 65];
const THREAD_NAME: i64 = 39;
const PUSH_POP: [i64; 2] = [59, 70];
const START_END: [i64; 2] = [60, 71];
const DOMAIN_NAME: i64 = 75;
const DOMAIN_END: i64 = 76;

fn push(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    let Some(start_ns) = cells.start(START) else { return false };
    match cells.int(EVENT_TYPE) {
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
    let global_tid = cells.int(GLOBAL_TID);
    let ended_by = cells.int(END_GLOBAL_TID).filter(|&id| Some(id) != global_tid);
    let track = builder.tracks.thread(global_tid);
    let dur_ns = if kind == "mark" { None } else { duration(builder, cells, start_ns) };
    if let Some(launching) = &builder.context.launching
        && (dur_ns.is_none()
            || ended_by.is_none()
                && !launching.is_around_call(&mut builder.positions, track, start_ns, dur_ns))
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
    if cells.int(SOURCE.flag()) == Some(1) {
        payload(builder, cells, tables);
    }
}

/// The duration of a range; one without an end lasts to the end of the session.
fn duration(builder: &Builder<'_, '_>, cells: &mut Cells<'_, '_>, start_ns: i64) -> Option<i64> {
    if let Some(end) = cells.int(END) {
        return cells.duration(start_ns, end);
    }
    cells.note(Code::OpenRange);
    builder.context.session_end.and_then(|end| end.max(start_ns).checked_sub(start_ns))
}

/// The text of an event: a registered one, or its own, taken apart.
#[inline]
fn text<'a>(builder: &mut Builder<'_, '_>, cells: &mut Cells<'a, '_>) -> (Option<Symbol>, NvtxText<'a>) {
    if !matches!(cells.value(TEXT_ID), ValueRef::Null) {
        return (builder.string(cells, TEXT_ID), NvtxText::default());
    }
    let Some(text) = cells.text(TEXT) else { return (None, NvtxText::default()) };
    let parts = nvtx_text::parse(text);
    (Some(builder.texts.bytes(cells, parts.name)), parts)
}

fn domain(
    builder: &mut Builder<'_, '_>,
    cells: &mut Cells<'_, '_>,
    global_tid: Option<i64>,
) -> Option<Symbol> {
    let domain = cells.int(DOMAIN).filter(|&id| id != 0)?;
    let pid = builder.pid(global_tid);
    let Builder { nvtx, texts, .. } = builder;
    Some(nvtx.symbol(Named::Domain(pid, domain), texts))
}

fn category(
    builder: &mut Builder<'_, '_>,
    cells: &mut Cells<'_, '_>,
    global_tid: Option<i64>,
) -> Option<Symbol> {
    let category = cells.int(CATEGORY).filter(|&id| id != 0)?;
    let domain = cells.int(DOMAIN).unwrap_or(0);
    let pid = builder.pid(global_tid);
    let Builder { nvtx, texts, .. } = builder;
    Some(nvtx.symbol(Named::Category(pid, domain, category), texts))
}

/// Events that name domains, categories, threads and other things.
fn name_of_something(
    builder: &mut Builder<'_, '_>,
    cells: &mut Cells<'_, '_>,
    tables: &mut Tables,
    start_ns: i64,
    kind: i64,
) {
    let global_tid = cells.int(GLOBAL_TID);
    let value = text(builder, cells).0;
    let (pid, domain) = (builder.pid(global_tid), cells.int(DOMAIN).unwrap_or(0));
    let named = match kind {
        DOMAIN_NAME => Some(Named::Domain(pid, domain)),
        _ if CATEGORY_NAME.contains(&kind) => cells.int(CATEGORY).map(|id| Named::Category(pid, domain, id)),
        _ => None,
    };
    if let (Some(named), Some(name)) = (named, value) {
        builder.nvtx.name(named, cells.rowid, name);
    }
    let label = match kind {
        THREAD_NAME => builder.label("thread_name"),
        DOMAIN_NAME => builder.label("nvtx_domain"),
        DOMAIN_END => builder.label("nvtx_domain_end"),
        _ if CATEGORY_NAME.contains(&kind) => builder.label("nvtx_category"),
        _ => builder.coded("nvtx event", kind, |kind| format!("nvtx_event_{kind}")),
    };
    let track = builder.tracks.thread(global_tid);
    let row = MetadataRow { row: cells.number, name: Some(label), track, start_ns: Some(start_ns), value };
    tables.metadata.push(row);
}

/// What has a number in the events and a name elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Named {
    /// Process and domain.
    Domain(Option<i64>, i64),
    /// Process, domain and category.
    Category(Option<i64>, i64, i64),
}

impl Named {
    /// What it is called if nothing names it.
    fn fallback(self) -> String {
        match self {
            Self::Domain(_, domain) => format!("domain {domain}"),
            Self::Category(_, _, category) => format!("category {category}"),
        }
    }
}

/// Names of domains and categories.
///
/// An event that gives a name may stand behind those that use it, or in a part of the table that
/// another thread reads. So rows get a stand-in, which is replaced when everything was read.
#[derive(Debug, Default)]
pub(super) struct Names {
    stand_ins: HashMap<Named, Symbol>,
    /// With the rowid of the event that gives it: the first counts.
    given: HashMap<Named, (i64, Symbol)>,
}

impl Names {
    /// Puts names in place of the stand-ins.
    pub(super) fn resolve(self, symbols: &mut SymbolTable, ranges: &mut Ranges) {
        let Self { stand_ins, given } = self;
        let name = |(named, stand_in): (Named, Symbol)| {
            let given = given.get(&named).map(|&(_, name)| name);
            (stand_in, given.unwrap_or_else(|| symbols.intern(&named.fallback())))
        };
        let names: HashMap<Symbol, Symbol> = stand_ins.into_iter().map(name).collect();
        let replace = |symbol: Symbol| names.get(&symbol).copied().unwrap_or(symbol);
        ranges.domain.map_in_place(replace);
        ranges.category.map_in_place(replace);
    }
}

/// A thread's own view of the names.
pub(super) struct LocalNames<'s> {
    shared: &'s Mutex<Names>,
    known: HashMap<Named, Symbol>,
}

impl<'s> LocalNames<'s> {
    pub(super) fn new(shared: &'s Mutex<Names>) -> Self {
        Self { shared, known: HashMap::new() }
    }

    /// The stand-in for a name.
    fn symbol(&mut self, named: Named, texts: &Texts<'_>) -> Symbol {
        let Self { shared, known } = self;
        *known.entry(named).or_insert_with(|| {
            let mut names = shared.lock().unwrap_or_else(PoisonError::into_inner);
            // The control character keeps it apart from every name in use.
            *names.stand_ins.entry(named).or_insert_with(|| texts.intern(&format!("\u{1}{named:?}")))
        })
    }

    /// Takes note of a name that the event with a rowid gives.
    fn name(&mut self, named: Named, rowid: i64, name: Symbol) {
        let mut names = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let given = names.given.entry(named).or_insert((rowid, name));
        if rowid < given.0 {
            *given = (rowid, name);
        }
    }
}

/// Fetches the payload of one event; few have any, and reading nine more columns of all costs more.
pub(super) fn payload_statement<'c>(connection: &'c Connection, catalog: &Catalog) -> Option<Statement<'c>> {
    let table = catalog.table(SOURCE.name)?;
    let columns: Vec<&str> =
        SOURCE.flagged.iter().map(|&column| if table.has(column) { column } else { "NULL" }).collect();
    let sql = format!("SELECT {} FROM NVTX_EVENTS WHERE rowid = ?1", columns.join(", "));
    connection.prepare(&sql).ok()
}

/// Adds the payload of an event to the table of further arguments.
fn payload(builder: &mut Builder<'_, '_>, cells: &Cells<'_, '_>, tables: &mut Tables) {
    for (key, value) in payload_values(builder, cells.rowid) {
        let key = builder.label(key);
        let value = builder.texts.intern(&value.to_string());
        tables.extra_args.push(ExtraArgRow { row: cells.number, key, value });
    }
}

fn payload_values(builder: &mut Builder<'_, '_>, rowid: i64) -> Vec<(&'static str, Value)> {
    const JSON_TEXT_ID: usize = 6;
    let Builder { payload: Some(statement), strings, texts, .. } = builder else { return Vec::new() };
    let Ok(mut rows) = statement.query([rowid]) else { return Vec::new() };
    let Ok(Some(row)) = rows.next() else { return Vec::new() };
    let mut values = Vec::new();
    for (at, &column) in SOURCE.flagged.iter().enumerate() {
        let value = match row.get_ref(at) {
            Ok(ValueRef::Integer(id)) if at == JSON_TEXT_ID => {
                strings.find(id, texts).map(|(text, _)| Value::String(texts.text(text)))
            }
            // Unsigned numbers are stored by their bits.
            Ok(ValueRef::Integer(bits)) if at == 0 => Some(Value::from(bits.cast_unsigned())),
            Ok(ValueRef::Integer(number)) => Some(Value::from(number)),
            Ok(ValueRef::Real(number)) => Some(Value::from(number)),
            Ok(ValueRef::Text(text) | ValueRef::Blob(text)) => {
                Some(Value::String(String::from_utf8_lossy(text).into_owned()))
            }
            Ok(ValueRef::Null) | Err(_) => None,
        };
        values.extend(value.map(|value| (column, value)));
    }
    values
}
