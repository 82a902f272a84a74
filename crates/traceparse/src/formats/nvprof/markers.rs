//! NVTX ranges and marks: one record at the start of a range, another at its end.

use rusqlite::types::ValueRef;

use super::ends::{END, INSTANTANEOUS, MARKERS_TABLE, START};
use super::recording::{Builder, Source};
use crate::formats::sqlite::cells::Cells;
use crate::formats::sqlite::source::columns;
use crate::nvtx_text;
use crate::schema::{ExtraArgRow, RangeRow, Symbol, Tables};
use crate::stats::Code;

columns! { Marker {
    FLAGS = "flags" Required,
    AT = "timestamp" Required,
    ID = "id" Required,
    OBJECT_KIND = "objectKind" Usual,
    OBJECT = "objectId" Usual,
    NAME = "name" Usual,
    DOMAIN = "domain" Usual,
} }

pub(super) static MARKERS: Source = Source::new(MARKERS_TABLE, "ranges", (), Marker::ALL, push);

/// Kinds of object that a marker is on (`CUpti_ActivityObjectKind`).
const PROCESS: i64 = 1;
const THREAD: i64 = 2;

fn push(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    let Some(flags) = cells.int(Marker::FLAGS) else {
        cells.note(Code::MissingPhase);
        return false;
    };
    if flags & END != 0 && flags & START == 0 {
        return is_end_of_something(builder, cells);
    }
    let Some(start_ns) = cells.start(Marker::AT) else { return false };
    let is_mark = flags & (INSTANTANEOUS | START) == INSTANTANEOUS;
    let (track, is_thread) = track(builder, cells);
    let text = builder.text(cells, Marker::NAME);
    let name = text.map(|text| operator(builder, cells, tables, text));
    let kind = match (is_mark, is_thread) {
        (true, _) => "mark",
        (false, true) => "push_pop",
        (false, false) => "start_end",
    };
    let (name, row) = name.unwrap_or_default();
    let row = RangeRow {
        row: cells.number,
        name,
        domain: builder.text(cells, Marker::DOMAIN).filter(|&domain| !builder.texts.text(domain).is_empty()),
        kind: builder.label(kind),
        track,
        start_ns,
        dur_ns: if is_mark { None } else { duration(builder, cells, start_ns) },
        ..row
    };
    tables.ranges.push(row);
    true
}

/// Whether the range that ends here began in the trace.
fn is_end_of_something(builder: &Builder<'_, '_>, cells: &mut Cells<'_, '_>) -> bool {
    let is_known = cells.int(Marker::ID).is_some_and(|id| builder.recorder.ends.has_begun(id));
    if !is_known {
        cells.note(Code::RangeWithoutStart);
    }
    is_known
}

/// Takes the text of PyTorch's `emit_nvtx` apart: its name, and what was appended.
fn operator(
    builder: &mut Builder<'_, '_>,
    cells: &Cells<'_, '_>,
    tables: &mut Tables,
    text: Symbol,
) -> (Option<Symbol>, RangeRow) {
    let owned = builder.texts.text(text);
    let parts = nvtx_text::parse(owned.as_bytes());
    let mut intern = |part: &[u8]| builder.texts.intern_bytes(part).0;
    let name = intern(parts.name);
    let sizes = parts.sizes.map(&mut intern);
    if let Some(ids) = parts.input_op_ids {
        let (key, value) = (intern(b"input_op_ids"), intern(ids));
        tables.extra_args.push(ExtraArgRow { row: cells.number, key, value });
    }
    let row = RangeRow { op_id: parts.op_id, sequence: parts.sequence, sizes, ..Default::default() };
    (Some(name), row)
}

/// The duration of a range; one without an end lasts to the end of the session.
fn duration(builder: &Builder<'_, '_>, cells: &mut Cells<'_, '_>, start_ns: i64) -> Option<i64> {
    let id = cells.int(Marker::ID);
    if let Some(end) = id.and_then(|id| builder.recorder.ends.end(id)) {
        return cells.duration(start_ns, end);
    }
    cells.note(Code::OpenRange);
    builder.recorder.ends.session_end.and_then(|end| cells.duration(start_ns, end.max(start_ns)))
}

/// The track of the object that a marker is on, and whether that is a thread.
///
/// The object is 32 bits of process and 32 of thread, in the byte order of the machine, and padding.
fn track(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>) -> (u32, bool) {
    let kind = cells.int(Marker::OBJECT_KIND).unwrap_or(THREAD);
    let words = match cells.value(Marker::OBJECT) {
        ValueRef::Blob(bytes) => word(bytes, 0).zip(word(bytes, 4)),
        ValueRef::Null => None,
        _ => {
            cells.note(Code::WrongType);
            None
        }
    };
    match (kind, words) {
        (THREAD, Some((process, thread))) => {
            (builder.tracks.of(Some(i64::from(process)), Some(i64::from(thread))), true)
        }
        (PROCESS, Some((process, _))) => (builder.tracks.of(Some(i64::from(process)), None), false),
        _ => (builder.tracks.of(None, None), false),
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(four.try_into().ok()?))
}
