//! Records of CUDA events, as synchronisations refer to them.

use hashbrown::HashMap;
use rusqlite::Connection;

use super::identity::{GlobalId, Processes};
use crate::formats::sqlite::catalog::{Catalog, Rows};
use crate::formats::sqlite::labels::NO_ID;

/// A record of an event, as synchronisations refer to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct EventRecord {
    pub(super) correlation: i64,
    pub(super) stream: i64,
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
        if catalog.table(table).is_none_or(|table| table.rows == Rows::None) {
            return index;
        }
        let pid = |id: Option<i64>| id.map(|id| processes.pid(GlobalId(id)));
        if catalog.has(table, &["globalPid", "eventSyncId", "correlationId", "streamId"]) {
            let sql = format!("SELECT globalPid, eventSyncId, correlationId, streamId FROM {table}");
            for_each(connection, &sql, |row| {
                let record = EventRecord { correlation: row.get(2)?, stream: row.get(3)? };
                let sync = row.get(1)?;
                if sync != NO_ID {
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

    /// The record that a synchronisation waits for.
    pub(super) fn record(&self, pid: Option<i64>, sync: i64) -> Option<EventRecord> {
        self.records.get(&(pid, sync)).copied()
    }

    /// Start of the call that recorded an event without a time of its own.
    pub(super) fn call_start(&self, pid: Option<i64>, correlation: i64) -> Option<i64> {
        self.calls.get(&(pid, correlation)).copied()
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
