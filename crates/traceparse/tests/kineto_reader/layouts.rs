//! One trace in the layouts of all recorders, and what is special to each.

use crate::reading::{Reading, document, op, reading, reading_events};

const EVENTS: [(&str, &str); 2] = [
    (
        r#""ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 8"#,
        r#""External id": 3, "Input Dims": [[2, 3], []]"#,
    ),
    (
        r#""ph": "X", "cat": "kernel", "name": "gemm<{lambda()#1}>", "pid": 0, "tid": 7"#,
        r#""correlation": 5"#,
    ),
];

fn native() -> String {
    let events = EVENTS.map(|(head, args)| {
        format!("  {{\n    {head},\n    \"ts\": 1.500, \"dur\": 2.000,\n    \"args\": {{\n      {args}\n    }}\n  }}")
    });
    format!(
        "{{\n  \"schemaVersion\": 1,\n  \"deviceProperties\": [\n  ],\n  \"traceEvents\": [\n{}\n  ],\n  \"traceName\": \"t.json\"\n}}\n",
        events.join(",\n")
    )
}

fn assert_same_events(layout: &str, reading: &Reading) {
    assert_eq!(
        reading.rows("ops", "row name category start_ns dur_ns external_id input_dims pid tid"),
        ["0 | aten::mm | cpu_op | 1500 | 2000 | 3 | [[2, 3], []] | 7 | 8"],
        "{layout}"
    );
    assert_eq!(
        reading.rows("gpu_ops", "row kind name device stream start_ns dur_ns correlation"),
        ["1 | kernel | gemm<{lambda()#1}> | 0 | 7 | 1500 | 2000 | 5"],
        "{layout}"
    );
    assert_eq!(reading.events(), (2, 2, 0), "{layout}");
    assert_eq!(reading.meta.properties["schemaVersion"], 1, "{layout}");
}

#[test]
fn every_layout_gives_the_same_tables() {
    let native = native();
    let value: serde_json::Value = serde_json::from_str(&native).unwrap();
    assert_same_events("native", &reading(&native));
    assert_same_events("compact", &reading(value.to_string()));
    assert_same_events("indented", &reading(serde_json::to_string_pretty(&value).unwrap()));
    assert_same_events("windows line ends", &reading(native.replace('\n', "\r\n")));
    let one_key_a_line =
        native.replace(", \"", ",\n    \"").replace(",\n    \"args\"", "\n    ,\n    \"args\"");
    assert_same_events("one key a line", &reading(one_key_a_line));
    let one_event_a_line = native.replace('\n', "").replace("},  {", "},\n{");
    assert_same_events("one event a line", &reading(one_event_a_line));
    let args_first =
        EVENTS.map(|(head, args)| format!(r#"{{"args": {{{args}}}, "dur": 2, {head}, "ts": 1.5}}"#));
    assert_same_events("args first", &reading(document(args_first.join(","))));
    let footer = format!(r#"{{"traceEvents": {}, "schemaVersion": 1}}"#, value["traceEvents"]);
    assert_same_events("header behind the events", &reading(footer));
}

#[test]
fn the_layout_of_2021_has_texts_for_ids() {
    let reading = reading_events(
        r#"{"ph": "X", "cat": "Operator", "name": "aten::add", "pid": 25738, "tid": "25738", "ts": 10, "dur": 5,
            "args": {"Device": 25738, "External id": 4, "Input dims": [[8]]}},
           {"ph": "X", "cat": "Runtime", "name": "cudaLaunchKernel", "pid": 25738, "tid": "25738", "ts": 11, "dur": 2,
            "args": {"cbid": 211, "correlation": 9, "external id": 4, "external ts": 10}},
           {"ph": "X", "cat": "Kernel", "name": "k", "pid": 1, "tid": "stream 7", "ts": 12, "dur": 3,
            "args": {"queued": 0, "device": 1, "correlation": 9, "external id": 4}},
           {"ph": "f", "id": 9, "pid": 1, "tid": "stream 7", "ts": 12, "cat": "async", "name": "launch"},
           {"ph": "X", "cat": "Memcpy", "name": "c", "pid": 1, "tid": "stream 7", "ts": 15, "dur": 1, "args": {}},
           {"ph": "X", "cat": "Memset", "name": "s", "pid": 1, "tid": "stream 7", "ts": 16, "dur": 1, "args": {}}"#,
    );
    assert_eq!(
        reading.rows("ops", "name category pid tid start_ns external_id input_dims"),
        ["aten::add | Operator | 25738 | 25738 | 10000 | 4 | [[8]]"]
    );
    assert_eq!(
        reading.rows("launches", "name correlation external_id callback_id"),
        ["cudaLaunchKernel | 9 | 4 | 211"]
    );
    assert_eq!(
        reading.rows("gpu_ops", "kind device stream correlation external_id queued_ns"),
        ["kernel | 1 | 7 | 9 | 4 | -", "memcpy | 1 | 7 | - | - | -", "memset | 1 | 7 | - | - | -"]
    );
    assert_eq!(reading.rows("flows", "id kind pid tid"), ["9 | f | 1 | -"]);
    assert_eq!(reading.rows("extra_args", "row key value"), ["0 | Device | 25738", "1 | external ts | 10"]);
}

#[test]
fn a_bare_array_without_categories_is_read() {
    let reading = reading(
        r#"[{"name": "aten::mm", "ph": "X", "ts": 1.25, "dur": 3.5, "tid": 1, "pid": "CPU functions", "args": {}}]"#,
    );
    assert_eq!(
        reading.rows("ops", "name category pid tid start_ns dur_ns"),
        ["aten::mm | - | - | 1 | 1250 | 3500"]
    );
    assert_eq!(reading.rows("threads", "pid_text tid"), ["CPU functions | 1"]);
    assert_eq!(reading.findings(), ["bare_array"]);
}

#[test]
fn metadata_is_read_on_either_side() {
    let before = r#""baseTimeNanoseconds": 1704067200000000000, "deviceProperties": [{"id": 0, "name": "H100", "numSms": 132}],
        "distributedInfo": {"rank": 3, "pg_config": [{"pg_name": "0", "pg_size": 8, "ranks": [0, 1]}]}"#;
    let events = r#""traceEvents": [{"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "ts": 0, "args": {"name": "python"}}]"#;
    for text in [format!("{{{before}, {events}}}"), format!("{{{events}, {before}}}")] {
        let reading = reading(text);
        assert_eq!(reading.meta.base_time_ns, Some(1_704_067_200_000_000_000));
        assert_eq!(reading.rows("devices", "device name sm_count"), ["0 | H100 | 132"]);
        assert_eq!(reading.rows("process_groups", "name size ranks"), ["0 | 8 | [0,1]"]);
        assert_eq!(reading.meta.properties["distributedInfo"]["rank"], 3);
        assert_eq!(reading.rows("metadata", "name value"), ["process_name | python"]);
    }
}

#[test]
fn the_display_unit_changes_nothing() {
    for unit in ["ms", "ns"] {
        let text = format!(r#"{{"displayTimeUnit": "{unit}", "traceEvents": [{}]}}"#, op("a"));
        assert_eq!(reading(text).rows("ops", "start_ns dur_ns"), ["1500 | 2000"], "{unit}");
    }
}

#[test]
fn every_category_has_a_table() {
    let table_of = |phase: &str, category: &str, name: &str| {
        let reading = reading_events(format!(
            r#"{{"ph": "{phase}", "cat": "{category}", "name": "{name}", "pid": 1, "tid": 2, "ts": 3, "dur": 4, "args": {{"a": 1}}}}"#
        ));
        let [(table, 1)] = reading.sizes()[..] else { panic!("{category}: {:?}", reading.sizes()) };
        table
    };
    for (table, phases, categories) in [
        ("ops", "X", "cpu_op,user_annotation"),
        (
            "launches",
            "X",
            "cuda_runtime,cuda_driver,xpu_runtime,mtia_runtime,Runtime,driver,hpu_op,gcu_driver",
        ),
        ("launches", "X", "privateuse1_runtime,privateuse1_driver"),
        ("gpu_ops", "X", "kernel,gpu_memcpy,gpu_memset,GCU_MEMCPY,gcu_memset,mtia_ccp_events"),
        ("gpu_annotations", "X", "gpu_user_annotation,GCU_USER_ANNOTATION"),
        ("syncs", "X", "cuda_sync,xpu_sync,cuda_event"),
        ("python", "X", "python_function"),
        ("counters", "X", "cuda_profiler_range"),
        ("spans", "X", "overhead,Trace,mtia_insight,collective_comm,something new"),
        ("instants", "i", "cpu_op"),
        ("flows", "s,f", "cpu_op"),
        ("counters", "C", "cpu_op"),
        ("metadata", "M", "cpu_op"),
        ("spans", "b", "cpu_op"),
    ] {
        for (phase, category) in phases.split(',').flat_map(|p| categories.split(',').map(move |c| (p, c))) {
            assert_eq!(table_of(phase, category, "n"), table, "{phase} {category}");
        }
    }
    assert_eq!(table_of("X", "kernel", "metrics: gemm"), "spans");
    assert_eq!(table_of("X", "mtia_ccp_events", "event_wait"), "syncs");
    assert_eq!(table_of("X", "mtia_ccp_events", "event_record"), "syncs");
    assert_eq!(table_of("i", "cpu_instant_event", "[memory]"), "memory");
    assert_eq!(table_of("X", "cpu_instant_event", "[OutOfMemory]"), "memory");
}

#[test]
fn identifiers_use_all_their_bits() {
    let reading = reading_events(
        r#"{"ph": "X", "cat": "kernel", "name": "ncclDevKernel", "pid": 0, "tid": 7, "ts": 1, "dur": 1, "args":
             {"External id": -2147483648, "graph id": 9, "graph node id": 18446744073709551615, "Comms Id": 9223372036854775808}},
           {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": 2, "ts": 1, "args":
             {"Addr": 18446744073709551000, "Bytes": -512, "Device Type": 0, "Device Id": -1}}"#,
    );
    assert_eq!(
        reading.rows("gpu_ops", "external_id graph_id graph_node_id"),
        ["-2147483648 | 9 | 18446744073709551615"]
    );
    assert_eq!(reading.rows("collectives", "row comms_id"), ["0 | 9223372036854775808"]);
    assert_eq!(
        reading.rows("memory", "address bytes device_type device_id"),
        ["18446744073709551000 | -512 | 0 | -1"]
    );
}

#[test]
fn times_are_exact() {
    let event = |ts: &str| op("a").replace("1.5", ts);
    let reading = reading_events(
        [event("1712195495519689.047"), event("0.001"), event("1e3"), event("-1.5")].join(","),
    );
    assert_eq!(reading.rows("ops", "start_ns"), ["1712195495519689047", "1", "1000000", "-1500"]);
}

#[test]
fn fractions_without_padding_count_nanoseconds() {
    // 2.50 cannot come from a recorder that writes three digits or trims zeros.
    let event = |ts: &str| op("a").replace("1.5", ts);
    let text = document([event("1.5"), event("2.50"), event("3.500")].join(","));
    for text in [text.clone(), [b"\xef\xbb\xbf", text.as_slice()].concat()] {
        let reading = reading(text);
        assert_eq!(reading.rows("ops", "start_ns"), ["1005", "2050", "3500"]);
        assert!(reading.findings().contains(&"unpadded_fraction"));
        assert!(!reading.findings().contains(&"unreadable_metadata"));
    }
    let reading = reading(document([event("1.5"), event("2.50"), event("3.05")].join(",")));
    assert_eq!(reading.rows("ops", "start_ns"), ["1500", "2500", "3050"]);
}

#[test]
fn what_no_column_takes_is_kept() {
    let reading = reading_events(
        r#"{"ph": "X", "cat": "cpu_op", "name": "t", "pid": 1, "tid": 2, "ts": 1, "dur": 1, "id": 5, "tts": 0.5, "args":
             {"grid": "grid(100,)", "stream": "0", "mine": {"a": [1 , 2]}, "": null, "long": "x"}},
           {"ph": "C", "cat": "hw", "name": "c", "pid": "GPU 0 Counters", "tid": 0, "ts": 1, "x": 1, "args":
             {"": 0.5, "state": "idle", "stream": 3}}"#,
    );
    assert_eq!(
        reading.rows("extra_args", "row key value"),
        [
            "0 | stream | \"0\"",
            "0 | grid | \"grid(100,)\"",
            "0 | mine | {\"a\": [1, 2]}",
            "0 |  | null",
            "0 | long | \"x\"",
            "0 | id | 5",
            "0 | tts | 0.5",
            "1 | state | \"idle\"",
            "1 | x | 1",
        ]
    );
    assert_eq!(
        reading.rows("counters", "row name counter value"),
        ["1 | c |  | 0.5", "1 | c | state | -", "1 | c | stream | 3"]
    );
}

#[test]
fn several_documents_in_one_file_are_all_read() {
    let one = String::from_utf8(document(op("a"))).unwrap();
    let reading = reading(format!("{one}\n{}", one.replace("\"a\"", "\"b\"")));
    assert_eq!(reading.rows("ops", "row name"), ["0 | a", "1 | b"]);
    assert_eq!(reading.findings(), ["concatenated_documents", "repeated_trace_events"]);
}

#[test]
fn a_trace_may_have_no_events() {
    for text in [
        r#"{"schemaVersion": 1}"#,
        r#"{"schemaVersion": 1, "traceEvents": []}"#,
        r#"{"schemaVersion": 1, "traceEvents": null}"#,
        r#"{"traceEvents": [ ]}"#,
    ] {
        let reading = reading(text);
        assert_eq!(reading.events(), (0, 0, 0), "{text}");
        assert_eq!(reading.findings(), ["no_events"], "{text}");
    }
}
