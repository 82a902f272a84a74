use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringViewArray, UInt32Array,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{EventWriter, Extra};

fn text(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(values.iter().copied().collect::<StringViewArray>())
}

fn written(batches: &[RecordBatch], extras: &[Extra], header: &str) -> Value {
    let mut writer = EventWriter::new(Vec::new(), header).unwrap();
    writer.write(batches, extras).unwrap();
    serde_json::from_slice(&writer.finish().unwrap()).unwrap()
}

#[test]
fn events_of_several_batches_are_put_in_order() {
    let slices = RecordBatch::try_from_iter_with_nullable([
        ("row", Arc::new(UInt32Array::from(vec![0, 2])) as ArrayRef, true),
        ("name", text(&[Some("a\"\\\n\u{1}é"), None]), true),
        ("ts", Arc::new(Int64Array::from(vec![1_002, -5])) as ArrayRef, true),
        ("dur", Arc::new(Int64Array::from(vec![Some(3_000), None])) as ArrayRef, true),
        ("j:Input Dims", text(&[Some("[[2, 3]]"), Some("no \"json")]), true),
        ("n:finished", Arc::new(BooleanArray::from(vec![None, Some(false)])) as ArrayRef, true),
        ("n:ratio", Arc::new(Float64Array::from(vec![0.1, f64::NAN])) as ArrayRef, true),
    ])
    .unwrap();
    let others = RecordBatch::try_from_iter_with_nullable([
        ("row", Arc::new(UInt32Array::from(vec![1])) as ArrayRef, true),
        ("pid_text", text(&[Some("Spans")]), true),
        ("members", text(&[Some("\"x\":1,\"y\":null")]), true),
    ])
    .unwrap();
    let extra =
        |row, key: &str, value: &str, is_field| Extra { row, key: key.into(), value: value.into(), is_field };
    let extras =
        [extra(0, "k", "{\"v\": [1]}", false), extra(1, "id", "\"0x1\"", true), extra(1, "z", "bad", false)];
    let document = written(&[others, slices], &extras, r#" {"schemaVersion": 1} "#);
    let expected = json!({"schemaVersion": 1, "traceEvents": [
        {"name": "a\"\\\n\u{1}é", "ts": 1.002, "dur": 3, "args": {"Input Dims": [[2, 3]], "ratio": 0.1, "k": {"v": [1]}}},
        {"pid": "Spans", "id": "0x1", "args": {"x": 1, "y": null, "z": "bad"}},
        {"ts": -0.005, "args": {"Input Dims": "no \"json", "finished": false, "ratio": null}},
    ]});
    assert_eq!(document, expected);
}

#[test]
fn a_file_without_events_is_one() {
    assert_eq!(written(&[], &[], "{}"), json!({"traceEvents": []}));
    assert!(EventWriter::new(Vec::new(), "[]").is_err());
}

#[test]
fn columns_that_mean_nothing_are_refused() {
    let unknown = RecordBatch::try_from_iter([
        ("row", Arc::new(UInt32Array::from(vec![0])) as ArrayRef),
        ("colour", text(&[Some("red")])),
    ])
    .unwrap();
    let mut writer = EventWriter::new(Vec::new(), "{}").unwrap();
    assert!(writer.write(&[unknown], &[]).unwrap_err().to_string().contains("colour"));
}

proptest! {
    #[test]
    fn any_text_and_any_time_come_back(name in ".*", key in ".*", ns in any::<i64>()) {
        let batch = RecordBatch::try_from_iter([
            ("row", Arc::new(UInt32Array::from(vec![7])) as ArrayRef),
            ("name", text(&[Some(&name)])),
            ("ts", Arc::new(Int64Array::from(vec![ns])) as ArrayRef),
            (format!("s:{key}").as_str(), text(&[Some(&name)])),
        ]).unwrap();
        let mut writer = EventWriter::new(Vec::new(), "{}").unwrap();
        writer.write(&[batch], &[]).unwrap();
        let bytes = writer.finish().unwrap();
        let document: Value = serde_json::from_slice(&bytes).unwrap();
        let event = &document["traceEvents"][0];
        prop_assert_eq!(event["name"].as_str(), Some(name.as_str()));
        prop_assert_eq!(event["args"][&key].as_str(), Some(name.as_str()));
        let sign = if ns < 0 { "-" } else { "" };
        let expected = format!("{sign}{}.{:03}", ns.unsigned_abs() / 1000, ns.unsigned_abs() % 1000);
        let start = expected.trim_end_matches(".000");
        let needle = format!("\"ts\":{start},");
        let found = String::from_utf8(bytes).unwrap().contains(&needle);
        prop_assert!(found, "{}", needle);
    }
}
