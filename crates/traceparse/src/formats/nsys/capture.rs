//! What a recording was set up with, and so what an absent table means.

use rusqlite::Connection;
use serde_json::{Map, Value};

use crate::formats::sqlite::catalog::Catalog;
use crate::stats::Code;

/// What a recording must be set up with to have a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Feature {
    Cuda,
    WholeGraphs,
    Nvtx,
    OsRuntime,
    GpuMemory,
    GpuMetrics,
    /// Nothing: the table is there when there is something to say.
    Any,
}

/// Records of the capture or of the export: names with one or more values.
#[derive(Debug, Default)]
pub(super) struct Records {
    pub(super) values: Map<String, Value>,
}

/// Beginnings of the names of records that may hold secrets.
const SECRET: [&str; 2] = ["ENVIRONMENT_VARIABLE", "ENV_VAR"];

impl Records {
    /// The records of the first of `tables` that the database has.
    pub(super) fn read(connection: &Connection, catalog: &Catalog, tables: &[&str]) -> Self {
        let mut records = Self::default();
        let Some(table) = tables.iter().find(|table| catalog.has(table, &["name", "value"])) else {
            return records;
        };
        let order = catalog.order(table);
        let sql = format!("SELECT CAST(name AS TEXT), CAST(value AS TEXT) FROM {table} {order}");
        let Ok(mut statement) = connection.prepare(&sql) else { return records };
        let Ok(mut rows) = statement.query([]) else { return records };
        while let Ok(Some(row)) = rows.next() {
            let text = |at: usize| {
                let bytes = row.get_ref(at).ok().and_then(|value| value.as_bytes_or_null().ok().flatten());
                bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            };
            let Some(name) = text(0) else { continue };
            records.add(name, text(1).map_or(Value::Null, Value::String));
        }
        records
    }

    /// Adds a record; a name that occurs again makes a list.
    fn add(&mut self, name: String, value: Value) {
        let is_secret = SECRET.iter().any(|secret| name.contains(secret));
        let value = if is_secret { variable_name(value) } else { value };
        match self.values.entry(name).or_insert(Value::Null) {
            Value::Array(values) => values.push(value),
            first if first.is_null() => *first = value,
            first => *first = Value::Array(vec![first.take(), value]),
        }
    }

    /// The value of a record, the first of several.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.values.get(name)? {
            Value::Array(values) => values.first()?.as_str(),
            value => value.as_str(),
        }
    }

    /// Whether any record whose name ends so has a value.
    fn any(&self, suffix: &str, is: &str) -> Option<bool> {
        let mut found = self.values.iter().filter(|(name, _)| name.ends_with(suffix)).map(|(_, value)| value);
        let first = found.next()?;
        let has = |value: &Value| match value {
            Value::Array(values) => values.iter().any(|value| value.as_str() == Some(is)),
            value => value.as_str() == Some(is),
        };
        Some(has(first) || found.any(has))
    }

    /// Whether the capture recorded a feature, as far as it says.
    fn recorded(&self, feature: Feature) -> Option<bool> {
        let event = |name| self.any("CAPTURE_EVENT_TYPE", name);
        match feature {
            Feature::Cuda => event("Cuda"),
            Feature::WholeGraphs => self.any("CUDA_GRAPH_TRACE_OPTIONS:MODE", "Graph"),
            Feature::Nvtx => event("NvtxEvents"),
            Feature::OsRuntime => event("OSRuntime"),
            Feature::GpuMemory => self.any("COLLECT_GPU_MEMORY_USAGE", "true"),
            Feature::GpuMetrics | Feature::Any => None,
        }
    }

    /// What it means that a table is not there or has no rows; nothing for tables that come and go.
    ///
    /// Only the records of the capture tell: an export may make every table there is.
    pub(super) fn meaning_of_none(&self, feature: Feature) -> Option<Code> {
        match self.recorded(feature) {
            _ if feature == Feature::Any => None,
            Some(true) => Some(Code::CapturedEmpty),
            Some(false) => Some(Code::NotCaptured),
            None => Some(Code::TableAbsent),
        }
    }
}

/// `NAME=VALUE` without the value.
fn variable_name(value: Value) -> Value {
    match value.as_str().and_then(|text| text.split_once('=')) {
        Some((name, _)) => Value::String(name.to_owned()),
        None => value,
    }
}

#[cfg(test)]
mod tests {
    use super::{Feature, Records};
    use crate::stats::Code;
    use serde_json::{Value, json};

    fn records(entries: &[(&str, &str)]) -> Records {
        let mut records = Records::default();
        for &(name, value) in entries {
            records.add(name.to_owned(), Value::String(value.to_owned()));
        }
        records
    }

    #[test]
    fn an_absent_table_means_what_the_capture_says() {
        let said = records(&[
            ("CAPTURE_EVENT_TYPE", "OSRuntime"),
            ("CAPTURE_EVENT_TYPE", "Cuda"),
            ("PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE", "Node"),
        ]);
        assert_eq!(said.meaning_of_none(Feature::Cuda), Some(Code::CapturedEmpty));
        // An empty table says nothing: `nsys export --lazy=false` makes it though it was not captured.
        assert_eq!(said.meaning_of_none(Feature::Nvtx), Some(Code::NotCaptured));
        assert_eq!(said.meaning_of_none(Feature::WholeGraphs), Some(Code::NotCaptured));
        assert_eq!(said.meaning_of_none(Feature::GpuMetrics), Some(Code::TableAbsent));
        assert_eq!(said.meaning_of_none(Feature::Any), None);
        assert_eq!(records(&[]).meaning_of_none(Feature::Cuda), Some(Code::TableAbsent));
    }

    #[test]
    fn environments_lose_their_values() {
        let said = records(&[("P:ENVIRONMENT_VARIABLE", "TOKEN=abc"), ("P:ENVIRONMENT_VARIABLE", "HOME=/x")]);
        assert_eq!(Value::Object(said.values), json!({"P:ENVIRONMENT_VARIABLE": ["TOKEN", "HOME"]}));
    }
}
