//! Synchronisation calls, and the CUDA events they wait for.

use hashbrown::HashMap;
use rusqlite::Connection;

use super::builder::Builder;
use super::catalog::Catalog;
use super::cells::Cells;
use super::identity::{GlobalId, Processes};
use super::source::source;
use crate::schema::{SyncRow, Tables};
use crate::sqlite::codes::{SYNC_KINDS, listed};

source! {
    /// Synchronisation calls.
    SOURCE: "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", syncs, Cuda, push;
    START = "start" Required,
    END = "end" Required,
    DEVICE = "deviceId" Usual,
    STREAM = "streamId" Usual,
    CORRELATION = "correlationId" Usual,
    GLOBAL_PID = "globalPid" Usual,
    KIND = "syncType" Usual,
    EVENT = "eventId" Usual,
    EVENT_SYNC = "eventSyncId" Newer,
}

/// What stands for no stream and no event.
const NONE: i64 = u32::MAX as i64;

fn push(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    let Some((start_ns, dur_ns)) = cells.extent(START, END) else { return false };
    let kind = cells
        .int(KIND)
        .map(|code| builder.coded("sync", code, |code| listed(&SYNC_KINDS, code, "sync type")));
    let pid = builder.pid(cells.int(GLOBAL_PID));
    let awaited = cells.int(EVENT_SYNC).and_then(|id| builder.context.events.record(pid, id));
    let row = SyncRow {
        row: cells.number,
        name: kind,
        category: Some(builder.label("cuda_sync")),
        pid,
        device: cells.small(DEVICE).map(|device| builder.context.machine.gpu(pid, device)),
        stream: cells.int(STREAM).filter(|&id| id != NONE),
        start_ns,
        dur_ns,
        correlation: cells.correlation(CORRELATION),
        kind,
        event_id: cells.int(EVENT).filter(|&id| id != NONE),
        wait_stream: awaited.map(|record| record.stream),
        wait_correlation: awaited.map(|record| record.correlation),
        external_id: None,
    };
    tables.syncs.push(row);
    true
}

/// A record of an event, as synchronisations refer to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct EventRecord {
    correlation: i64,
    stream: i64,
}

/// What is known of event records before they are read.
#[derive(Debug, Default)]
pub(super) struct EventIndex {
    records: HashMap<(Option<i64>, i64), EventRecord>,
    /// Start of the call with a correlation id; filled where records have no time of their own.
    calls: HashMap<(Option<i64>, i64), i64>,
}

impl EventIndex {
    /// Reads what synchronisations and records without a time refer to.
    pub(super) fn read(connection: &Connection, catalog: &Catalog, processes: Processes) -> Self {
        let mut index = Self::default();
        let table = "CUPTI_ACTIVITY_KIND_CUDA_EVENT";
        if catalog.table(table).is_none_or(|table| table.rowids.is_none()) {
            return index;
        }
        let pid = |id: Option<i64>| id.map(|id| processes.pid(GlobalId(id)));
        if catalog.has(table, &["globalPid", "eventSyncId", "correlationId", "streamId"]) {
            let sql = format!("SELECT globalPid, eventSyncId, correlationId, streamId FROM {table}");
            for_each(connection, &sql, |row| {
                let record = EventRecord { correlation: row.get(2)?, stream: row.get(3)? };
                let sync = row.get(1)?;
                if sync != NONE {
                    index.records.insert((pid(row.get(0)?), sync), record);
                }
                Ok(())
            });
        }
        let calls = "CUPTI_ACTIVITY_KIND_RUNTIME";
        let is_timed = catalog.has(table, &["timestamp"]);
        let needs = ["correlationId", "globalPid"];
        if catalog.has(table, &needs) && catalog.has(calls, &["correlationId", "globalTid", "start"]) {
            let untimed = if is_timed { "WHERE coalesce(timestamp, 0) = 0" } else { "" };
            let sql = format!(
                "SELECT globalTid, correlationId, start FROM {calls} \
                 WHERE EXISTS (SELECT 1 FROM {table} {untimed}) \
                 AND correlationId IN (SELECT correlationId FROM {table} {untimed})"
            );
            for_each(connection, &sql, |row| {
                index.calls.insert((pid(row.get(0)?), row.get(1)?), row.get(2)?);
                Ok(())
            });
        }
        index
    }

    fn record(&self, pid: Option<i64>, sync: i64) -> Option<EventRecord> {
        self.records.get(&(pid, sync)).copied()
    }
}

/// Hands every row to `take`; rows that it refuses, and those behind a damaged page, are left out.
fn for_each(
    connection: &Connection,
    sql: &str,
    mut take: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<()>,
) {
    let Ok(mut statement) = connection.prepare(sql) else { return };
    let Ok(mut rows) = statement.query([]) else { return };
    while let Ok(Some(row)) = rows.next() {
        // A null or a wrong type in an index only means that nothing is found there.
        let _ = take(row);
    }
}

/// Records of CUDA events.
pub(super) mod events {
    use crate::nsys::builder::Builder;
    use crate::nsys::cells::Cells;
    use crate::nsys::source::source;
    use crate::schema::{SyncRow, Tables};
    use crate::stats::Code;

    source! {
        /// Records of CUDA events.
        SOURCE: "CUPTI_ACTIVITY_KIND_CUDA_EVENT", syncs, Cuda, push;
        AT = "timestamp" Newer,
        DEVICE = "deviceId" Usual,
        STREAM = "streamId" Usual,
        CORRELATION = "correlationId" Usual,
        GLOBAL_PID = "globalPid" Usual,
        EVENT = "eventId" Usual,
    }

    fn push(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
        let pid = builder.pid(cells.int(GLOBAL_PID));
        let correlation = cells.correlation(CORRELATION);
        // 0 is not collected: the call that recorded the event has the time at which it did.
        let call = correlation.and_then(|id| builder.context.events.calls.get(&(pid, id)).copied());
        let Some(start_ns) = cells.int(AT).filter(|&at| at != 0).or(call) else {
            cells.note(Code::MissingTime);
            return false;
        };
        let kind = builder.label("Event record");
        let row = SyncRow {
            row: cells.number,
            name: Some(kind),
            category: Some(builder.label("cuda_event")),
            pid,
            device: cells.small(DEVICE).map(|device| builder.context.machine.gpu(pid, device)),
            stream: cells.int(STREAM),
            start_ns,
            correlation,
            kind: Some(kind),
            event_id: cells.int(EVENT),
            ..Default::default()
        };
        tables.syncs.push(row);
        true
    }
}
