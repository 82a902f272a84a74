//! A slow, plain reading of a trace through serde_json, which shares no code with the generator.

use serde_json::Value;
use tracedemo::{DemoOptions, Truth, write_trace};

/// An event, with times in whole nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    pub(crate) phase: String,
    pub(crate) category: String,
    pub(crate) name: String,
    pub(crate) pid: String,
    pub(crate) tid: String,
    pub(crate) start: i64,
    pub(crate) dur: i64,
    pub(crate) id: Option<i64>,
    pub(crate) args: Value,
}

impl Event {
    /// End of the event.
    pub(crate) fn end(&self) -> i64 {
        self.start + self.dur
    }

    /// An integer argument.
    pub(crate) fn int(&self, key: &str) -> Option<i64> {
        self.args.get(key).and_then(Value::as_i64)
    }

    /// Whether it lies within another event of the same thread.
    pub(crate) fn is_within(&self, outer: &Self) -> bool {
        outer.start <= self.start
            && self.end() <= outer.end()
            && self.tid == outer.tid
            && self.pid == outer.pid
    }
}

/// Microseconds with up to three decimals as nanoseconds.
fn nanoseconds(value: &Value) -> i64 {
    value.as_f64().map_or(0, |micros| (micros * 1000.0).round() as i64)
}

fn text(value: Option<&Value>) -> String {
    value.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).unwrap_or_default()
}

/// A trace: everything but the events, and the events.
pub(crate) fn parse(json: &[u8]) -> (Value, Vec<Event>) {
    let mut top: Value = serde_json::from_slice(json).expect("the trace is valid JSON");
    let events = top.as_object_mut().and_then(|top| top.remove("traceEvents")).expect("there are events");
    let events = events.as_array().expect("events are a list").iter().map(|event| Event {
        phase: text(event.get("ph")),
        category: text(event.get("cat")),
        name: text(event.get("name")),
        pid: text(event.get("pid")),
        tid: text(event.get("tid")),
        start: nanoseconds(&event["ts"]),
        dur: nanoseconds(&event["dur"]),
        id: event.get("id").and_then(Value::as_i64),
        args: event.get("args").cloned().unwrap_or(Value::Null),
    });
    (top, events.collect())
}

/// Categories of operators and annotations, of runtime and driver calls, and of GPU work.
pub(crate) const HOST_OPS: &[&str] = &["cpu_op", "user_annotation"];
pub(crate) const CALLS: &[&str] = &["cuda_runtime", "cuda_driver"];
pub(crate) const GPU: &[&str] = &["kernel", "gpu_memcpy", "gpu_memset"];

/// The slices of some categories.
pub(crate) fn of<'a>(events: &'a [Event], categories: &'a [&str]) -> impl Iterator<Item = &'a Event> + Clone {
    events.iter().filter(move |event| event.phase == "X" && categories.contains(&event.category.as_str()))
}

/// Writes a trace to memory.
pub(crate) fn write(options: &DemoOptions) -> (Vec<u8>, Truth) {
    let mut bytes = Vec::new();
    let truth = write_trace(options, &mut bytes, &mut |_| true).expect("memory takes every byte");
    (bytes, truth)
}

/// A small trace with everything in it.
pub(crate) fn small() -> DemoOptions {
    DemoOptions { steps: Some(5), layers: Some(1), ranks: 2, rank: 1, seed: 7, ..DemoOptions::default() }
}
