//! What stands beside the events: versions, clock, capture options.

use rusqlite::Connection;
use serde_json::{Map, Value, json};

use super::capture::Records;
use super::identity::GlobalId;
use crate::formats::sqlite::catalog::Catalog;
use crate::formats::sqlite::open::quoted;

/// The greatest schema that was tested with.
const NEWEST_SCHEMA: (i64, i64) = (3, 25);

/// What is known of the session.
pub(super) struct Session {
    pub(super) capture: Records,
    export: Records,
    target: Map<String, Value>,
    /// Epoch time of the session's start, ns.
    start_utc_ns: Option<i64>,
    duration_ns: Option<i64>,
    /// The machine that the session ran on.
    pub(super) machine: Option<u64>,
}

impl Session {
    pub(super) fn read(connection: &Connection, catalog: &Catalog) -> Self {
        let one = |table: &str, column: &str| -> Option<i64> {
            if !catalog.has(table, &[column]) {
                return None;
            }
            let sql = format!("SELECT {column} FROM {table} WHERE {column} IS NOT NULL LIMIT 1");
            connection.query_row(&sql, [], |row| row.get(0)).ok()
        };
        let ids = [
            ("ANALYSIS_DETAILS", "globalVid"),
            ("CUPTI_ACTIVITY_KIND_RUNTIME", "globalTid"),
            ("CUPTI_ACTIVITY_KIND_KERNEL", "globalPid"),
            ("NVTX_EVENTS", "globalTid"),
            ("OSRT_API", "globalTid"),
        ];
        Self {
            capture: Records::read(connection, catalog, &["META_DATA_CAPTURE", "CAPTURE_META_DATA"]),
            export: Records::read(connection, catalog, &["META_DATA_EXPORT", "EXPORT_META_DATA"]),
            target: target(connection, catalog),
            start_utc_ns: one("TARGET_INFO_SESSION_START_TIME", "utcEpochNs"),
            duration_ns: one("ANALYSIS_DETAILS", "duration"),
            machine: ids
                .iter()
                .find_map(|(table, column)| one(table, column))
                .map(|id| GlobalId(id).machine()),
        }
    }

    /// Schema of the export, major and minor; null where the file does not say.
    pub(super) fn schema(&self) -> Option<(i64, i64)> {
        let mut numbers = self.export.text("EXPORT_SCHEMA_VERSION")?.split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    }

    /// Whether the schema is newer than those this reader was tested with.
    pub(super) fn is_newer(&self) -> bool {
        self.schema().is_some_and(|schema| schema > NEWEST_SCHEMA)
    }

    fn shift_ns(&self) -> i64 {
        self.export.text("EXPORT_PARAM_TIME_SHIFT").and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    fn is_normalized(&self) -> bool {
        self.export.text("EXPORT_PARAM_TIME_NORMALIZE") == Some("true")
    }

    /// Epoch time of the trace's zero. Times may have been shifted, or moved to epoch time, on export.
    pub(super) fn base_time_ns(&self) -> Option<i64> {
        let start = if self.is_normalized() { 0 } else { self.start_utc_ns? };
        start.checked_sub(self.shift_ns())
    }

    /// When the session began and ended on the trace's clock, where that is recorded.
    pub(super) fn extent(&self) -> Option<(i64, i64)> {
        let start = if self.is_normalized() { self.start_utc_ns? } else { 0 };
        let start = start.checked_add(self.shift_ns())?;
        Some((start, start.checked_add(self.duration_ns?)?))
    }

    /// End of the session on the trace's clock: as recorded, else the end of the last event.
    pub(super) fn end_ns<'a>(
        &self,
        connection: &Connection,
        catalog: &Catalog,
        mut tables: impl Iterator<Item = &'a str>,
    ) -> Option<i64> {
        let last_end = |table: &str| {
            let sql =
                catalog.has(table, &["end"]).then(|| format!("SELECT max(end) FROM {}", quoted(table)))?;
            connection.query_row(&sql, [], |row| row.get::<_, Option<i64>>(0)).ok().flatten()
        };
        self.extent().map(|(_, end)| end).or_else(|| tables.by_ref().filter_map(last_end).max())
    }

    /// Everything beside the events, as JSON.
    pub(super) fn properties(self, tables: Map<String, Value>) -> Map<String, Value> {
        let mut properties = Map::new();
        let mut add = |name: &str, value: Value| drop(properties.insert(name.to_owned(), value));
        let text = |records: &Records, name: &str| records.text(name).map(Value::from);
        for (name, record) in
            [("nsys_version", "EXPORT_PRODUCT_VERSION"), ("nsys_schema_version", "EXPORT_SCHEMA_VERSION")]
        {
            if let Some(value) = text(&self.export, record) {
                add(name, value);
            }
        }
        for (name, key) in [("cuda_driver_version", "CudaDriverVersion"), ("host_name", "Hostname")] {
            if let Some(value) = self.target.get(key).filter(|value| *value != "") {
                add(name, value.clone());
            }
        }
        if let Some(value) = text(&self.capture, "PROFILING_SESSION_UUID") {
            add("trace_id", value);
        }
        add("session", json!({"start_utc_ns": self.start_utc_ns, "duration_ns": self.duration_ns}));
        add("capture", Value::Object(self.capture.values));
        add("export", Value::Object(self.export.values));
        add("target", Value::Object(self.target));
        add("tables", Value::Object(tables));
        properties
    }
}

/// What the recorder found out about the host.
fn target(connection: &Connection, catalog: &Catalog) -> Map<String, Value> {
    let table = "TARGET_INFO_SYSTEM_ENV";
    if !catalog.has(table, &["name", "value"]) {
        return Map::new();
    }
    let sql = format!("SELECT name, value FROM {table} {}", catalog.order(table));
    let Ok(mut statement) = connection.prepare(&sql) else { return Map::new() };
    let rows = statement.query_map([], |row| Ok((row.get(0)?, Value::String(row.get(1)?))));
    rows.map(|rows| rows.flatten().collect()).unwrap_or_default()
}
