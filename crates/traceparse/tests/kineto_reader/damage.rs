//! Traces with one kind of damage each: what is repaired, what is dropped, and how it is counted.

use traceparse::Code;

use crate::reading::{Reading, document, op, reading, reading_events};

/// Reads an event with `name` as it stands, between two good ones, and returns its name.
fn name_of(name: &str) -> (String, Reading) {
    let reading = reading_events([op("before"), op(name), op("after")].join(",\n"));
    let [before, name, after] = &reading.rows("ops", "name start_ns dur_ns pid tid")[..] else {
        panic!("{name}: {:?}", reading.rows("ops", "name"));
    };
    assert!(before.starts_with("before |") && after.starts_with("after |"));
    let name = name.strip_suffix(" | 1500 | 2000 | 7 | 8").expect(name).to_owned();
    (name, reading)
}

/// Reads `text`, which must give these operators and findings.
fn check_ops(text: impl AsRef<[u8]>, columns: &str, rows: &[&str], findings: &[&str]) -> Reading {
    let reading = reading(&text);
    let text = String::from_utf8_lossy(text.as_ref());
    assert_eq!(reading.rows("ops", columns), rows, "{text}");
    assert_eq!(reading.findings(), findings, "{text}");
    reading
}

#[test]
fn quotes_in_names_are_kept() {
    for name in [
        r#"load "train" split"#,
        r#"""#,
        r#"a"b"#,
        r#""quoted""#,
        r#"f"x",y"#,
        r#"a", b"#,
        r#"{"a": "b"}"#,
        r#"x},{"ph":"X""#,
        r#"dict["key"]"#,
    ] {
        let (read, reading) = name_of(name);
        assert_eq!(read, name);
        assert_eq!(reading.findings(), ["repaired_event"], "{name}");
    }
}

#[test]
fn backslashes_that_escape_nothing_are_kept() {
    for (written, meant) in [
        (r"C:\Users\q", r"C:\Users\q"),
        (r"a\", r"a\"),
        (r"\", r"\"),
        (r"\u12", r"\u12"),
        (r"\x41", r"\x41"),
        (r"C:\new", "C:\new"),
    ] {
        let (read, reading) = name_of(written);
        assert_eq!(read, meant);
        let repairs = reading.count(Code::BadEscape) + reading.count(Code::RepairedEvent);
        assert_eq!(repairs > 0, !meant.contains('\n'), "{written}");
    }
}

#[test]
fn control_characters_and_bad_utf8_are_kept_or_replaced() {
    let controls = "\t\u{1}\u{0}\nb";
    check_ops(document(op(controls)), "name", &[controls], &["control_character"]);
    let mut text = document([op("a@b"), op("caf\u{e9}")].join(","));
    let at = text.iter().position(|&b| b == b'@').unwrap();
    text[at] = 0xff;
    check_ops(text, "name", &["a\u{fffd}b", "caf\u{e9}"], &["bad_utf8"]);
}

#[test]
fn slashed_quotes_in_metadata_are_kept_as_text() {
    for value in [r#""say /"hi/" now""#, r#""a"b""#, r#""{/"rank/": 3}""#, r#"["a", "b"c"]"#] {
        let text = format!(
            r#"{{"schemaVersion": 1, "mine": {value}, "host_name": "h", "traceEvents": [{}], "traceName": "t"}}"#,
            op("a")
        );
        let reading = check_ops(text, "name", &["a"], &["bad_metadata"]);
        let meant = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
        if let Some(meant) = meant {
            assert_eq!(reading.meta.properties["mine"], meant);
        }
        assert_eq!(reading.meta.properties["host_name"], "h", "{value}");
        assert_eq!(reading.meta.properties["traceName"], "t", "{value}");
    }
}

#[test]
fn damaged_metadata_costs_itself_only() {
    for (value, meant) in [
        ("NaN", Some("NaN")),
        ("{\"a\": nan, \"b\": 1}", None),
        ("\"tab\there\"", Some("tab\there")),
        ("", None),
        ("[1, 2", None),
        ("{\"a\": {\"b\": 1}", None),
        ("@@", Some("@@")),
    ] {
        for is_before in [true, false] {
            let (member, events) = (format!("\"mine\": {value}"), format!("\"traceEvents\": [{}]", op("a")));
            let text = if is_before {
                format!("{{\"schemaVersion\": 1, {member}, {events}}}")
            } else {
                format!("{{\"schemaVersion\": 1, {events}, {member}}}")
            };
            let reading = reading(&text);
            assert_eq!(reading.rows("ops", "name"), ["a"], "{text}");
            assert!(!reading.findings().is_empty(), "{text}");
            if let Some(meant) = meant {
                assert_eq!(reading.meta.properties["mine"], meant, "{text}");
            }
        }
    }
}

#[test]
fn nan_and_inf_are_null_or_text() {
    let reading = reading_events(
        r#"{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 1, "args":
            {"blocks per SM": inf, "warps per SM": NaN, "scale": -Infinity, "list": [nan, 1]}},
           {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 0, "tid": 7, "ts": 1, "dur": nan}"#,
    );
    assert_eq!(reading.rows("gpu_ops", "blocks_per_sm warps_per_sm"), ["- | -"]);
    assert_eq!(reading.rows("extra_args", "key value"), ["scale | \"-Infinity\"", "list | [\"nan\", 1]"]);
    assert_eq!(reading.rows("ops", "name dur_ns"), ["a | -"]);
    assert_eq!(reading.count(Code::BareNonFinite), 4);
    assert_eq!(reading.count(Code::MissingDuration), 1);
}

#[test]
fn commas_too_many_and_too_few() {
    for (separator, findings) in [(",,", &["trailing_comma"][..]), (" ", &["missing_comma"]), ("\n,\n", &[])]
    {
        check_ops(document([op("a"), op("b")].join(separator)), "name", &["a", "b"], findings);
    }
    for text in [
        document(op("a") + ","),
        document(op("a").replace('}', ",}")),
        document(op("a").replace('}', r#", "args": {"x": [1, 2,],}}"#)),
        document(",".to_owned() + &op("a")),
    ] {
        check_ops(text, "name dur_ns", &["a | 2000"], &["trailing_comma"]);
    }
}

#[test]
fn numbers_as_text_are_numbers() {
    let reading = reading_events(
        r#"{"ph": "X", "cat": "cuda_runtime", "name": "c", "pid": "7", "tid": "8", "ts": "1.5", "dur": "2",
            "args": {"correlation": "9", "cbid": 4.0}}"#,
    );
    assert_eq!(
        reading.rows("launches", "pid tid start_ns dur_ns correlation callback_id"),
        ["7 | 8 | 1500 | 2000 | 9 | 4"]
    );
    assert_eq!(reading.count(Code::NumberAsText), 3);
}

#[test]
fn numbers_out_of_range_are_null() {
    let reading = reading_events(
        r#"{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 9e18,
            "args": {"correlation": 99999999999999999999, "context": 4294967296, "bytes": 1.5}},
           {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 9e18, "dur": 1}"#,
    );
    assert_eq!(reading.rows("gpu_ops", "dur_ns correlation context bytes"), ["- | - | - | -"]);
    assert_eq!(reading.count(Code::BadNumber), 3);
    assert_eq!(reading.count(Code::MissingDuration), 1);
    assert_eq!(reading.count(Code::UntimedWork), 1);
    assert_eq!(reading.rows("untimed_gpu_ops", "name recorded_start_ns recorded_dur_ns"), ["k | - | 1000"]);
    assert_eq!(reading.events(), (2, 2, 0));
}

#[test]
fn only_gpu_work_is_kept_without_a_time() {
    let untimed = |category: &str, name: &str, args: &str| {
        let event =
            r#"{"ph": "X", "cat": "CAT", "name": "NAME", "pid": 0, "tid": 7, "dur": 1, "args": {ARGS}}"#;
        let event = event.replace("CAT", category).replace("NAME", name).replace("ARGS", args);
        let reading = reading_events(event);
        let kept = reading.count(Code::UntimedWork);
        assert_eq!(reading.rows("untimed_gpu_ops", "name").len() as u64, kept);
        assert_eq!(kept + reading.count(Code::MissingTime), 1);
        assert_eq!(reading.events(), (1, kept, 1 - kept));
        kept == 1
    };
    for (category, name, args) in [
        ("kernel", "k", ""),
        ("gpu_memcpy", "Memcpy HtoD", ""),
        ("gpu_memset", "Memset", ""),
        ("mtia_ccp_events", "matmul", ""),
        ("hpu_op", "gemm", r#""HW event name": "MME""#),
        ("collective_comm", "all_reduce", r#""stream": 3"#),
    ] {
        assert!(untimed(category, name, args), "{category} {name}");
    }
    for (category, name, args) in [
        ("kernel", "[memory]", ""),
        ("kernel", "metrics: k", ""),
        ("mtia_ccp_events", "event_wait", ""),
        ("hpu_op", "synLaunch", ""),
        ("collective_comm", "all_reduce", ""),
        ("cuda_runtime", "cudaLaunchKernel", ""),
        ("gpu_user_annotation", "step", ""),
    ] {
        assert!(!untimed(category, name, args), "{category} {name}");
    }
}

#[test]
fn host_events_at_zero_without_a_duration_have_no_time() {
    let at_zero = |category: &str| {
        let event =
            r#"{"ph": "X", "cat": "CAT", "name": "e", "pid": 0, "tid": 7, "ts": 0, "dur": 0, "args": {}}"#;
        let reading = reading_events(format!("{}, {}", event.replace("CAT", category), op("a")));
        assert_eq!(reading.events(), (2, 2, 0));
        (reading.findings().join(" "), reading.rows("untimed_events", "kind name").concat())
    };
    for (category, code, kind) in [
        ("cpu_op", "untimed_operators", "operator | e"),
        ("user_annotation", "untimed_annotations", "annotation | e"),
        ("cuda_runtime", "untimed_calls", "call | e"),
        ("python_function", "untimed_frames", "frame | e"),
        ("kernel", "untimed_work", ""),
    ] {
        assert_eq!(at_zero(category), (code.to_owned(), kind.to_owned()), "{category}");
    }
}

#[test]
fn moments_at_zero_have_no_time_where_all_others_are_far_away() {
    let events = |other: &str| {
        let memory = r#"{"ph": "i", "s": "t", "name": "[memory]", "pid": 7, "tid": 7, "ts": 0, "args": {}}"#;
        reading_events(format!("{memory}, {}", op("a").replace("\"ts\": 1.5", other)))
    };
    assert_eq!(events("\"ts\": 1.5").rows("memory", "start_ns"), ["0"]);
    let far = events("\"ts\": 1700000000000000.5");
    assert_eq!(far.rows("untimed_events", "kind recorded_start_ns"), ["memory | 0"]);
    assert_eq!(far.findings(), ["untimed_memory"]);
}

#[test]
fn missing_fields() {
    let without = |field: &str| {
        let fields = ["ph", "cat", "name", "pid", "tid", "ts", "dur"];
        let value: serde_json::Value = serde_json::from_str(&op("a")).unwrap();
        let kept = fields.iter().filter(|f| **f != field).map(|f| format!("\"{f}\": {}", value[*f]));
        reading_events(format!("{{{}}}", Vec::from_iter(kept).join(", ")))
    };
    let columns = "name category pid tid start_ns dur_ns";
    let op = |field| without(field).rows("ops", columns);
    assert_eq!(op("ph"), ["a | cpu_op | 7 | 8 | 1500 | 2000"]);
    assert_eq!(op("cat"), ["a | - | 7 | 8 | 1500 | 2000"]);
    assert_eq!(op("name"), ["- | cpu_op | 7 | 8 | 1500 | 2000"]);
    assert_eq!(op("pid"), ["a | cpu_op | - | 8 | 1500 | 2000"]);
    assert_eq!(op("tid"), ["a | cpu_op | 7 | - | 1500 | 2000"]);
    assert_eq!(op("dur"), ["a | cpu_op | 7 | 8 | 1500 | -"]);
    assert_eq!(without("ts").events(), (1, 0, 1));
    let findings = ["ph", "name", "dur", "ts"].map(|field| without(field).findings().join(" "));
    assert_eq!(findings, ["missing_phase", "missing_name", "missing_duration", "missing_time"]);
}

#[test]
fn negative_durations_are_null() {
    let text = document(op("a").replace("\"dur\": 2", "\"dur\": -2"));
    check_ops(text, "name dur_ns", &["a | -"], &["negative_duration"]);
}

#[test]
fn the_last_of_two_equal_keys_counts() {
    for (text, meant) in [
        (op("a").replace("\"pid\"", "\"name\": \"b\", \"pid\""), "b | -"),
        (op("a").replace('}', r#", "args": {"External id": 1, "External id": 2}}"#), "a | 2"),
        (op("a").replace('}', r#", "args": {"x": 1}, "args": {"External id": 3}}"#), "a | 3"),
    ] {
        let reading = check_ops(document(text), "name external_id", &[meant], &["duplicate_key"]);
        assert_eq!(reading.table("extra_args").num_rows(), 0);
    }
}

#[test]
fn elements_that_are_no_objects_are_dropped() {
    for element in ["null", "5", "\"text\"", "[1, {\"ph\": \"X\"}]", "[]", "true"] {
        let text = document([&op("a"), element, &op("b")].join(", "));
        let reading = check_ops(text, "row name", &["0 | a", "2 | b"], &["event_is_no_object"]);
        assert_eq!(reading.events(), (3, 2, 1), "{element}");
    }
}

#[test]
fn an_event_beyond_repair_costs_itself_only() {
    for broken in [
        r#"{"ph": "X", "name" "a", "ts": 1}"#,
        r#"{"ph": "X", "name": "a", "ts": 1, "args": {"x": [1, 2}"#,
        r#"{"ph": "X", "name": "a", "ts": 1, "args": {"x": [[1, 2], "y": 3}}"#,
        r#"{"ph": "X", "name": "a"#,
        r#"{"ph": "X", "name": "a", "ts"#,
        r#"{"ph": "X", "name": "print("}, {")", "ts": 1}"#,
        r#"{{"ph": "X"}"#,
        "garbage",
        "\"garbage",
        "}",
        "\u{0}\u{0}\u{0}",
        "{",
        "",
    ] {
        let reading = reading_events([&op("a"), broken, &op("b"), &op("c")].join(", "));
        let names = reading.rows("ops", "name");
        assert!(names.contains(&"a".to_owned()), "{broken}: {names:?}");
        assert!(names.ends_with(&["b".to_owned(), "c".to_owned()]), "{broken}: {names:?}");
        assert!(reading.stats.dropped <= 2, "{broken}: {:?}", reading.events());
        assert_eq!(reading.meta.properties["traceName"], "t.json", "{broken}");
        assert_eq!(reading.count(Code::Truncated), 0, "{broken}");
    }
}

#[test]
fn a_broken_last_event_does_not_cost_the_footer() {
    for broken in [r#"{"ph": "X", "name": "a, "ts": 1}"#, r#"{"ph" @}"#, "garbage"] {
        let reading = reading_events([&op("a"), broken].join(", "));
        assert_eq!(reading.rows("ops", "name"), ["a"], "{broken}");
        assert_eq!(reading.events(), (2, 1, 1), "{broken}");
        assert_eq!(reading.meta.properties["traceName"], "t.json", "{broken}");
    }
}

#[test]
fn a_bracket_too_many_does_not_end_the_events() {
    for middle in [", ], ", "], ", "]}, "] {
        let reading = reading_events([op("a") + middle, op("b") + ", ", op("c")].concat());
        assert_eq!(reading.rows("ops", "name"), ["a", "b", "c"], "{middle}");
        assert!(reading.findings().contains(&"stray_bracket"), "{middle}: {:?}", reading.findings());
    }
}

#[test]
fn a_bracket_too_few_does_not_swallow_the_rest() {
    let broken = r#"{"ph": "X", "cat": "cpu_op", "name": "x", "ts": 1, "args": {"a": [[[1, 2], "b": 2}}"#;
    let events: Vec<_> = (0..3000).map(|i| if i % 1000 == 5 { broken.to_owned() } else { op("a") }).collect();
    let reading = reading_events(events.join(",\n"));
    assert_eq!(reading.events().0, 3000);
    assert!(reading.stats.dropped <= 3, "{:?}", reading.events());
}

#[test]
fn arguments_that_are_no_json_are_kept_as_text() {
    let text = document(op("a").replace('}', r#", "args": {"Input Dims": [1 2}, "x": {"a" 1]}}"#));
    let reading = check_ops(text, "name input_dims", &["a | \"[1 2}\""], &["bad_value"]);
    assert_eq!(reading.rows("extra_args", "key value"), ["x | \"{\\\"a\\\" 1]\""]);
}

#[test]
fn deep_nesting_is_dropped_from_the_event_and_no_more() {
    let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    for depth in [200_usize, 1000, 500_000] {
        for text in [
            op("a").replace('}', &format!(r#", "args": {{"x": {}, "y": 1}}}}"#, deep(depth))),
            op("a").replace('}', &format!(r#", "x": {}, "y": 1}}"#, deep(depth))),
        ] {
            let reading = reading_events([text, op("b")].join(","));
            assert_eq!(reading.rows("ops", "name"), ["a", "b"], "{depth}");
            assert_eq!(reading.count(Code::DeepNesting), u64::from(depth > 256), "{depth}");
            assert!(reading.rows("extra_args", "key value").contains(&"y | 1".to_owned()), "{depth}");
        }
    }
    let unclosed = op("a").replace('}', &format!(r#", "args": {{"x": {}, "y": 1}}}}"#, "[".repeat(100_000)));
    let reading = reading_events([op("b"), unclosed, op("c")].join(","));
    assert_eq!(reading.rows("ops", "name").first().map(String::as_str), Some("b"));
}

#[test]
fn deep_metadata_is_kept_as_text() {
    for depth in [100_usize, 200, 100_000] {
        let deep = "[".repeat(depth) + &"]".repeat(depth);
        let text = format!(r#"{{"mine": {deep}, "traceEvents": [{}]}}"#, op("a"));
        let reading = reading(text);
        assert_eq!(reading.rows("ops", "name"), ["a"], "{depth}");
        assert_eq!(reading.meta.properties["mine"].is_array(), depth <= 128, "{depth}");
    }
}

#[test]
fn a_byte_order_mark_is_skipped() {
    let text = [b"\xef\xbb\xbf", document(op("a")).as_slice()].concat();
    check_ops(text, "name", &["a"], &["byte_order_mark"]);
}

#[test]
fn bytes_behind_the_document_are_ignored() {
    for garbage in ["x", ",", "}", "]", "\0\0\0", "\"abc", "hello {\"a\": 1}"] {
        let text = [&document(op("a")), garbage.as_bytes()].concat();
        check_ops(text, "name", &["a"], &["trailing_garbage"]);
    }
}
