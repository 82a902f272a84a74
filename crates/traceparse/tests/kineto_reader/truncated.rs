//! A small trace cut at every byte: everything before the cut is read, in whatever pieces.

use traceparse::{Code, ReadOptions};

use crate::reading::{document, op, pieces, reading_with};

fn assert_cut_anywhere(text: &[u8], names: &[&str]) {
    let mut kept = 0;
    for end in 1..text.len() {
        let cut = &text[..end];
        let reading = match reading_with(cut, &ReadOptions::default()) {
            Ok(reading) => reading,
            // Without a whole event, a bare array could be anything.
            Err(e) => {
                assert!(text.starts_with(b"[") && kept == 0, "{end}: {e}");
                continue;
            }
        };
        reading.check_accounts();
        assert_eq!(reading.count(Code::Truncated), 1, "{end}: {:?}", reading.findings());
        assert!(reading.stats.dropped <= 1, "{end}: {:?}", reading.events());
        let found = reading.rows("ops", "name");
        assert_eq!(found, names[..found.len()], "{end}");
        assert!(found.len() >= kept, "{end}");
        kept = found.len();
        for (chunk, threads) in [(1, 1), (7, 2), (100, 3), (1000, 2)] {
            let other = reading_with(cut, &pieces(chunk, threads)).unwrap();
            assert_eq!(reading, other, "cut at {end}, pieces of {chunk}");
        }
    }
    assert_eq!(kept, names.len());
}

#[test]
fn a_compact_trace_is_cut_at_every_byte() {
    let a = op("a").replace('}', r#", "args": {"External id": 5, "Input Dims": [[1, 2], []], "x": "}, {"}}"#);
    assert_cut_anywhere(&document([a, op("b"), op("caf\u{e9}\\n")].join(",")), &["a", "b", "caf\u{e9}\n"]);
}

#[test]
fn a_trace_with_metadata_is_cut_at_every_byte() {
    let text = format!(
        "{{\n  \"schemaVersion\": 1,\n  \"deviceProperties\": [\n    {{\"id\": 0, \"name\": \"H100\"}}\n  ],\n  \
         \"traceEvents\": [\n    {},\n    {}\n  ],\n  \"displayTimeUnit\": \"ms\", \"mine\": {{\"a\": [1, \"b\"]}}\n}}",
        op("a"),
        op("b")
    );
    assert_cut_anywhere(text.as_bytes(), &["a", "b"]);
}

#[test]
fn a_bare_array_is_cut_at_every_byte() {
    let text = format!("[{},\n{}]", op("a"), op("b"));
    assert_cut_anywhere(text.as_bytes(), &["a", "b"]);
}
