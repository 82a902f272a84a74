//! The reader against a slow one: the whole document parsed by `serde_json`, one event after the other.

use std::collections::HashMap;

use proptest::prelude::*;
use serde_json::{Map, Value};

use crate::reading::{Reading, reading};
use crate::writer::documents;

/// Which table an event is in.
fn table_of(event: &Map<String, Value>) -> &'static str {
    let name = event["name"].as_str().unwrap();
    let class = match event.get("cat").and_then(Value::as_str) {
        None | Some("cpu_op" | "user_annotation" | "Operator") => "ops",
        Some("cuda_runtime") => "launches",
        Some("kernel" | "gpu_memcpy" | "gpu_memset") => "gpu_ops",
        Some("gpu_user_annotation") => "gpu_annotations",
        Some("cuda_sync") => "syncs",
        Some("python_function") => "python",
        Some("cuda_profiler_range") => "counters",
        Some(_) => "spans",
    };
    match event["ph"].as_str().unwrap() {
        "M" => "metadata",
        "X" | "i" if name == "[memory]" => "memory",
        "X" => class,
        "i" => "instants",
        "s" | "f" => "flows",
        "C" => "counters",
        _ => "spans",
    }
}

fn ns(value: &Value) -> i64 {
    (value.as_f64().unwrap() * 1000.0).round() as i64
}

/// The columns of one event that every table has; `name | start_ns | pid | tid`.
fn expected(event: &Map<String, Value>) -> String {
    let number = |key: &str| match &event[key] {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.parse::<i64>().map_or("-".to_owned(), |n| n.to_string()),
        _ => "-".to_owned(),
    };
    let (name, start) = (event["name"].as_str().unwrap(), ns(&event["ts"]));
    format!("{name} | {start} | {} | {}", number("pid"), number("tid"))
}

/// Rows without their number, by that number.
fn by_number(rows: &[String]) -> HashMap<u32, String> {
    let split = rows.iter().map(|row| row.split_once(" | ").unwrap());
    split.map(|(number, rest)| (number.parse().unwrap(), rest.to_owned())).collect()
}

fn check_events(reading: &Reading, events: &[Value]) -> Result<(), TestCaseError> {
    let mut tables: HashMap<&str, HashMap<u32, String>> = HashMap::new();
    for (row, event) in (0..).zip(events) {
        let event = event.as_object().unwrap();
        let table = table_of(event);
        let is_on_gpu = matches!(table, "gpu_ops" | "gpu_annotations" | "syncs");
        let columns = if is_on_gpu { "row name start_ns" } else { "row name start_ns pid tid" };
        let rows = tables.entry(table).or_insert_with(|| {
            let mut rows = by_number(&reading.rows(table, columns));
            if table == "gpu_ops" {
                rows.extend(by_number(&reading.rows("untimed_gpu_ops", "row name recorded_start_ns")));
            }
            rows
        });
        let expected = expected(event);
        match rows.get(&row) {
            Some(found) if is_on_gpu => {
                prop_assert!(expected.starts_with(&format!("{found} | ")), "{} {}", expected, found);
            }
            found => prop_assert_eq!(found, Some(&expected), "row {} of {}", row, table),
        }
    }
    Ok(())
}

fn check_durations(reading: &Reading, events: &[Value]) -> Result<(), TestCaseError> {
    // Of GPU work that was ended where the next begins.
    let mut recorded = by_number(&reading.rows("gpu_ops", "row recorded_dur_ns"));
    recorded.retain(|_, duration| duration != "-");
    for table in ["ops", "launches", "gpu_ops", "python", "gpu_annotations", "syncs", "spans"] {
        for (number, duration) in by_number(&reading.rows(table, "row dur_ns")) {
            let duration = recorded.remove(&number).unwrap_or(duration);
            let event = &events[number as usize];
            let expected = if event["ph"] == "X" { ns(&event["dur"]).to_string() } else { "-".to_owned() };
            prop_assert_eq!(duration, expected);
        }
    }
    Ok(())
}

/// Arguments that no column knows are in `extra_args`, with the same value.
fn check_arguments(reading: &Reading, events: &[Value]) -> Result<(), TestCaseError> {
    let extra = reading.rows("extra_args", "row key value");
    let mut kept: HashMap<(usize, &str), Value> = HashMap::new();
    for row in &extra {
        let (number, rest) = row.split_once(" | ").unwrap();
        let (key, value) = rest.split_once(" | ").unwrap();
        kept.insert((number.parse().unwrap(), key), serde_json::from_str(value).unwrap());
    }
    let is_unknown = |key: &String| ["ph", "name", "traceEvents", "", "my \"key\"\\"].contains(&key.as_str());
    for (row, event) in events.iter().enumerate() {
        if table_of(event.as_object().unwrap()) == "counters" {
            continue;
        }
        let args = event.get("args").and_then(Value::as_object).into_iter().flatten();
        // The first unknown argument of a metadata event is its value.
        let values = usize::from(event["ph"] == "M");
        for (key, value) in args.filter(|(key, _)| is_unknown(key)).skip(values) {
            prop_assert_eq!(kept.get(&(row, key.as_str())), Some(value), "{} of {}", key, event);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn tables_equal_those_of_a_slow_reading(document in documents(1..30)) {
        let text = document.text(1);
        let slow: Value = serde_json::from_str(&text).unwrap();
        let events = slow.get("traceEvents").unwrap_or(&slow).as_array().unwrap();
        prop_assert_eq!(events, &document.events);
        let reading = reading(&text);
        prop_assert_eq!(reading.events(), (events.len() as u64, events.len() as u64, 0));
        check_events(&reading, events)?;
        check_durations(&reading, events)?;
        check_arguments(&reading, events)?;
        for (key, value) in slow.as_object().into_iter().flatten().filter(|(key, _)| *key != "traceEvents") {
            prop_assert_eq!(reading.meta.properties.get(key), Some(value));
        }
    }
}
