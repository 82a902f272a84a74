//! Synchronisation calls.

use super::reader::Builder;
use super::source::sources;
use crate::schema::SyncRow;
use crate::sqlite::cells::Cells;
use crate::sqlite::codes::{SYNC_KINDS, listed};

sources! {
    syncs;
    START = "start" Required,
    END = "end" Required,
    KIND = "type" Usual,
    STREAM = "streamId" Usual,
    CORRELATION = "correlationId" Usual,
    EVENT = "cudaEventId" Usual,
}

syncs!(SOURCE: "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", syncs, push);

/// What stands for no stream and no event.
const NONE: i64 = u32::MAX as i64;

fn push(builder: &mut Builder<'_>, cells: &mut Cells<'_, '_>) -> bool {
    let Some((start_ns, dur_ns)) = cells.extent(START, END) else { return false };
    let kind = cells.int(KIND).map(|code| builder.symbols.intern(&listed(&SYNC_KINDS, code, "sync type")));
    // Ids are unsigned; a missing one may stand as -1.
    let id = |value: Option<i64>| value.filter(|&id| id != NONE && id >= 0);
    let row = SyncRow {
        row: cells.number,
        name: kind,
        category: Some(builder.symbols.intern("cuda_sync")),
        pid: builder.pid,
        stream: id(cells.int(STREAM)),
        start_ns,
        dur_ns,
        correlation: cells.correlation(CORRELATION),
        kind,
        event_id: id(cells.int(EVENT)),
        ..Default::default()
    };
    builder.tables.syncs.push(row);
    true
}
