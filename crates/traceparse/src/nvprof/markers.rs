//! NVTX ranges and marks: one record at the start of a range, another at its end.

use hashbrown::{HashMap, HashSet};
use rusqlite::Connection;
use rusqlite::types::ValueRef;

use super::reader::Builder;
use super::source::sources;
use crate::nvtx_text;
use crate::schema::{ExtraArgRow, RangeRow, Symbol};
use crate::sqlite::catalog::Catalog;
use crate::sqlite::cells::Cells;
use crate::stats::{Code, Stats};

sources! {
    markers;
    FLAGS = "flags" Required,
    AT = "timestamp" Required,
    ID = "id" Required,
    OBJECT_KIND = "objectKind" Usual,
    OBJECT = "objectId" Usual,
    NAME = "name" Usual,
    DOMAIN = "domain" Usual,
}

markers!(SOURCE: "CUPTI_ACTIVITY_KIND_MARKER", ranges, push);

/// Bits of the flags (`CUpti_ActivityFlag`).
const INSTANTANEOUS: i64 = 1;
const START: i64 = 2;
const END: i64 = 4;
const BOTH: i64 = START | END;

/// Kinds of object that a marker is on (`CUpti_ActivityObjectKind`).
const PROCESS: i64 = 1;
const THREAD: i64 = 2;

/// The times at which ranges end, by id; starts and ends need not stand in order.
#[derive(Default)]
pub(super) struct Ends {
    at: HashMap<i64, i64>,
    /// Ranges that begin in the file.
    begun: HashSet<i64>,
    /// End of the session, for ranges without an end.
    session_end: Option<i64>,
}

impl Ends {
    /// Reads the ends of all ranges. Ends without a start are counted.
    pub(super) fn read(connection: &Connection, catalog: &Catalog, stats: &mut Stats) -> Self {
        let mut ends = Self { session_end: session_end(connection, catalog), ..Self::default() };
        let table = SOURCE.name;
        if !catalog.has(table, &["flags", "timestamp", "id"]) {
            return ends;
        }
        let sql = format!("SELECT rowid, id, timestamp, flags & {START} FROM {table} WHERE flags & {BOTH}");
        let Ok(mut statement) = connection.prepare(&sql) else { return ends };
        let Ok(mut rows) = statement.query([]) else { return ends };
        while let Ok(Some(row)) = rows.next() {
            match (row.get(1), row.get(2)) {
                (Ok(id), _) if row.get::<_, i64>(3).is_ok_and(|start| start != 0) => {
                    ends.begun.insert(id);
                }
                (Ok(id), Ok(at)) => {
                    ends.at.entry(id).or_insert(at);
                }
                _ => stats.note_in(Code::MissingTime, table, row.get(0).ok()),
            }
        }
        ends
    }
}

/// The latest time in the database.
fn session_end(connection: &Connection, catalog: &Catalog) -> Option<i64> {
    let columns = [
        ("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "end"),
        ("CUPTI_ACTIVITY_KIND_KERNEL", "end"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "end"),
        ("CUPTI_ACTIVITY_KIND_DRIVER", "end"),
        (SOURCE.name, "timestamp"),
    ];
    let latest = columns.into_iter().filter(|(table, column)| catalog.has(table, &[column])).filter_map(
        |(table, column)| {
            let sql = format!("SELECT max({column}) FROM {table} WHERE typeof({column}) = 'integer'");
            connection.query_row(&sql, [], |row| row.get::<_, Option<i64>>(0)).ok().flatten()
        },
    );
    latest.max()
}

fn push(builder: &mut Builder<'_>, cells: &mut Cells<'_, '_>) -> bool {
    let Some(flags) = cells.int(FLAGS) else {
        cells.note(Code::MissingPhase);
        return false;
    };
    if flags & END != 0 && flags & START == 0 {
        return is_end_of_something(builder, cells);
    }
    let Some(start_ns) = cells.start(AT) else { return false };
    let is_mark = flags & (INSTANTANEOUS | START) == INSTANTANEOUS;
    let (track, is_thread) = track(builder, cells);
    let text = builder.text(cells, NAME);
    let name = text.map(|text| operator(builder, cells, text));
    let kind = match (is_mark, is_thread) {
        (true, _) => "mark",
        (false, true) => "push_pop",
        (false, false) => "start_end",
    };
    let (name, row) = name.unwrap_or_default();
    let row = RangeRow {
        row: cells.number,
        name,
        domain: builder.text(cells, DOMAIN).filter(|&domain| !builder.symbols.text(domain).is_empty()),
        kind: builder.symbols.intern(kind),
        track,
        start_ns,
        dur_ns: if is_mark { None } else { duration(builder, cells, start_ns) },
        ..row
    };
    builder.tables.ranges.push(row);
    true
}

/// Whether the range that ends here began in the trace.
fn is_end_of_something(builder: &Builder<'_>, cells: &mut Cells<'_, '_>) -> bool {
    let is_known = cells.int(ID).is_some_and(|id| builder.ends.begun.contains(&id));
    if !is_known {
        cells.note(Code::RangeWithoutStart);
    }
    is_known
}

/// Takes the text of PyTorch's `emit_nvtx` apart: its name, and what was appended.
fn operator(builder: &mut Builder<'_>, cells: &Cells<'_, '_>, text: Symbol) -> (Option<Symbol>, RangeRow) {
    let owned = builder.symbols.text(text).to_owned();
    let parts = nvtx_text::parse(owned.as_bytes());
    let mut intern = |part: &[u8]| builder.symbols.intern(&String::from_utf8_lossy(part));
    let name = intern(parts.name);
    let sizes = parts.sizes.map(&mut intern);
    if let Some(ids) = parts.input_op_ids {
        let (key, value) = (intern(b"input_op_ids"), intern(ids));
        builder.tables.extra_args.push(ExtraArgRow { row: cells.number, key, value });
    }
    let row = RangeRow { op_id: parts.op_id, sequence: parts.sequence, sizes, ..Default::default() };
    (Some(name), row)
}

/// The duration of a range; one without an end lasts to the end of the session.
fn duration(builder: &Builder<'_>, cells: &mut Cells<'_, '_>, start_ns: i64) -> Option<i64> {
    let id = cells.int(ID);
    if let Some(&end) = id.and_then(|id| builder.ends.at.get(&id)) {
        return cells.duration(start_ns, end);
    }
    cells.note(Code::OpenRange);
    builder.ends.session_end.and_then(|end| end.max(start_ns).checked_sub(start_ns))
}

/// The track of the object that a marker is on, and whether that is a thread.
///
/// The object is 32 bits of process and 32 of thread, in the byte order of the machine, and padding.
fn track(builder: &mut Builder<'_>, cells: &mut Cells<'_, '_>) -> (u32, bool) {
    let kind = cells.int(OBJECT_KIND).unwrap_or(THREAD);
    let words = match cells.value(OBJECT) {
        ValueRef::Blob(bytes) => word(bytes, 0).zip(word(bytes, 4)),
        ValueRef::Null => None,
        _ => {
            cells.note(Code::WrongType);
            None
        }
    };
    match (kind, words) {
        (THREAD, Some((process, thread))) => {
            (builder.track(Some(i64::from(process)), Some(i64::from(thread))), true)
        }
        (PROCESS, Some((process, _))) => (builder.track(Some(i64::from(process)), None), false),
        _ => (builder.track(None, None), false),
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(four.try_into().ok()?))
}
