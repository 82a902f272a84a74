//! Huge and hostile files: they end, and in time that grows with their size and no faster.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use traceparse::{Code, ReadOptions};

use crate::reading::{Reading, document, op, pieces, reading, reading_events, reading_with};

/// Bytes of a hostile file.
const SIZE: usize = 20 << 20;
/// Far more than any of the files takes, and far less than one that is quadratic.
const PATIENCE: Duration = Duration::from_secs(300);

/// Reads `text`, or fails if that does not end.
fn reading_in_time(text: Vec<u8>) -> Reading {
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(Box::new(reading(text))));
    *receiver.recv_timeout(PATIENCE).expect("reading ends")
}

#[test]
fn a_thread_that_panics_ends_the_others() {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let text = document(vec![op("x"); 2_000].join(","));
        let calls = AtomicU32::new(0);
        let panics = move |_, _| calls.fetch_add(1, Ordering::Relaxed) < 5 || panic!("as planned");
        let options = ReadOptions { progress: Some(Arc::new(panics)), ..pieces(100, 3) };
        let outcome = catch_unwind(AssertUnwindSafe(|| reading_with(text, &options)));
        sender.send(outcome.is_ok_and(|read| read.is_ok())).unwrap();
    });
    assert!(!receiver.recv_timeout(PATIENCE).expect("reading ends"));
}

fn filled(piece: &str) -> Vec<u8> {
    piece.repeat(SIZE / piece.len()).into_bytes()
}

/// What stands in for the events of a hostile file must not cost the good events around it.
fn assert_survives(piece: &str) {
    let text = document(
        [op("first").as_bytes(), b",", &filled(piece), b",", op("x").as_bytes(), b",", op("last").as_bytes()]
            .concat(),
    );
    let reading = reading_in_time(text);
    let names = reading.rows("ops", "name");
    assert_eq!(names.first().map(String::as_str), Some("first"), "{piece}");
    assert_eq!(names.last().map(String::as_str), Some("last"), "{piece}");
    assert_eq!(reading.meta.properties["traceName"], "t.json", "{piece}");
}

#[test]
fn floods_of_brackets_and_quotes_end() {
    for piece in
        ["{", "}", "[", "{\"", "\"", "\"a", "{}", "\\\"", "{\"a\":@}", "[\"", "]", "},{", "nan,", "\u{0}"]
    {
        // A `]` closes the events: what follows is not read as such but must be read.
        if piece == "]" {
            reading_in_time(document(filled(piece)));
        } else {
            assert_survives(piece);
        }
    }
}

#[test]
fn floods_of_broken_events_end() {
    for piece in [
        r#"},{"ph":"#,
        r#"{"ph": "X", "name": "a"b"c", "cat": "cpu_op", "pid": 1, "tid": 2, "ts": 1, "dur": 1},"#,
        r#"{"ph": "X", "name": "a, "ts": 1},"#,
        r#"{"ph": "X", "name": "a", "args": {"x": [[1, 2], "b": 1}, "ts": 1},"#,
        r#"{"ph": "X", "name": "a", "args": {"x": {"b": 1}, "ts": 1},"#,
        r#"{"ph": "X" "name": "a", "ts": 1},"#,
        r#"{"ph": "X", "name": "a"#,
        r#"{"args": {"x": ["#,
        r#"{"a": {"#,
        r#"{"a": ["},{"ph":"#,
    ] {
        assert_survives(piece);
    }
}

#[test]
fn garbage_ends() {
    let mut state = 1_u64;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let bytes: Vec<u8> = (0..SIZE).map(|_| noise()).collect();
    let json: Vec<u8> = bytes.iter().map(|b| b"{}[]\",:\\ a1\n"[usize::from(*b) % 12]).collect();
    for garbage in [bytes, json] {
        let reading = reading_in_time(document([op("first").as_bytes(), b",", &garbage].concat()));
        assert_eq!(reading.rows("ops", "name")[0], "first");
    }
}

#[test]
fn a_string_of_100_megabytes_is_read() {
    let long = "x".repeat(100 << 20);
    let named = op(&long);
    let argued = op("a").replace('}', &format!(r#", "args": {{"big": "{long}"}}}}"#));
    for (text, in_name) in [(named, true), (argued, false)] {
        let reading = reading_in_time(document([op("first"), text, op("last")].join(",")));
        let names = reading.rows("ops", "name");
        assert_eq!((names.len(), names[1].len()), (3, if in_name { long.len() } else { 1 }));
        assert!(reading.findings().is_empty());
        if !in_name {
            assert_eq!(reading.rows("extra_args", "value")[0].len(), long.len() + 2);
        }
    }
    let text = format!(r#"{{"mine": "{long}", "traceEvents": [{}]}}"#, op("a"));
    let reading = reading_in_time(text.into_bytes());
    assert_eq!(reading.rows("ops", "name"), ["a"]);
}

#[test]
fn a_string_that_never_ends_costs_one_event() {
    let long = "x".repeat(SIZE);
    let reading = reading_in_time(document(format!(r#"{}, {{"ph": "X", "name": "{long}"#, op("first"))));
    assert_eq!(reading.rows("ops", "name"), ["first"]);
    assert_eq!(reading.events(), (2, 1, 1));
}

#[test]
fn an_event_beyond_the_limit_is_dropped() {
    let long = "x".repeat(300 << 20);
    let reading = reading_in_time(document([op("first"), op(&long), op("x"), op("last")].join(",")));
    assert_eq!(reading.rows("ops", "name"), ["first", "x", "last"]);
    assert_eq!(reading.count(Code::OversizedEvent), 1);
}

#[test]
fn one_event_can_have_any_number_of_arguments() {
    let count = SIZE / 20;
    let args: Vec<_> = (0..count).map(|i| format!("\"key{i}\": {i}")).collect();
    let reading = reading_events(op("a").replace('}', &format!(r#", "args": {{{}}}}}"#, args.join(", "))));
    assert_eq!(reading.table("extra_args").num_rows(), count);
}

#[test]
fn every_event_can_have_its_own_track_and_name() {
    let count = SIZE / 100;
    let events: Vec<_> =
        (0..count).map(|i| op(&format!("name{i}")).replace("\"tid\": 8", &format!("\"tid\": {i}"))).collect();
    let reading = reading_in_time(document(events.join(",")));
    assert_eq!(reading.table("threads").num_rows(), count);
    assert_eq!(reading.rows("ops", "name tid")[count - 1], format!("name{0} | {0}", count - 1));
}

#[test]
fn a_header_without_end_costs_itself_only() {
    let events = vec![op("a"); SIZE / 100].join(",");
    for header in [r#""mine": ["#, r#""mine": {"a": "#, r#""mine": "text"#, r#""mine": [1, {"b": 2]"#] {
        let text =
            format!(r#"{{"schemaVersion": 1, {header}, "traceEvents": [{events}], "traceName": "t"}}"#);
        let reading = reading_in_time(text.into_bytes());
        assert_eq!(reading.events().1, (SIZE / 100) as u64, "{header}");
        assert_eq!(reading.meta.properties["traceName"], "t", "{header}");
    }
}
