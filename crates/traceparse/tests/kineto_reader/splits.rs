//! What is read does not depend on how the bytes are cut into chunks, nor on the number of threads;
//! of a file that is cut, it is everything before the cut.

use proptest::prelude::*;
use traceparse::{Code, ReadOptions};

use crate::reading::{TraceFile, document, op, pieces, reading_of, reading_with};
use crate::writer::{damaged, damages, documents};

/// Sizes of chunks: mostly of the order of an event, or of what is looked at around a cut.
fn chunk_sizes() -> impl Strategy<Value = Vec<usize>> {
    let size = prop_oneof![1..40_usize, 40..1200_usize, 1200..5000_usize, 5000..100_000_usize];
    proptest::collection::vec(size, 2)
}

fn assert_same_in_pieces(text: &[u8], sizes: &[usize], threads: usize) -> Result<(), TestCaseError> {
    let file = TraceFile::new(text);
    let whole = reading_of(file.path(), &pieces(text.len() + 1, 1));
    if let Ok(whole) = &whole {
        whole.check_accounts();
    }
    for (i, &size) in sizes.iter().enumerate() {
        let options = pieces(size, 1 + (threads + i) % 4);
        match (&whole, reading_of(file.path(), &options)) {
            (Ok(whole), Ok(parts)) => prop_assert!(
                *whole == parts,
                "pieces of {}: {:?} {:?}\nnot as {:?} {:?}\nbut for {:?}\nfrom {}",
                size,
                parts.stats,
                parts.meta,
                whole.stats,
                whole.meta,
                whole.difference(&parts),
                text.escape_ascii()
            ),
            (Err(whole), Err(parts)) => prop_assert_eq!(whole.to_string(), parts.to_string()),
            (whole, parts) => prop_assert!(false, "{:?}\n{:?}", whole, parts),
        }
    }
    Ok(())
}

fn assert_strict_same_in_pieces(text: &[u8], sizes: &[usize]) -> Result<(), TestCaseError> {
    let file = TraceFile::new(text);
    let strict = |size, threads| {
        let options = ReadOptions { strict: true, ..pieces(size, threads) };
        reading_of(file.path(), &options).map(|_| ()).map_err(|e| (e.kind(), e.offset(), e.to_string()))
    };
    let whole = strict(text.len() + 1, 1);
    for &size in sizes {
        prop_assert_eq!(&whole, &strict(size, 3), "pieces of {} from {}", size, text.escape_ascii());
    }
    Ok(())
}

proptest! {
    #[test]
    fn valid_traces(document in documents(0..30), sizes in chunk_sizes(), threads in 0..4_usize) {
        assert_same_in_pieces(document.text(1).as_bytes(), &sizes, threads)?;
    }

    #[test]
    fn damaged_traces(
        document in documents(1..20),
        damages in damages(),
        sizes in chunk_sizes(),
        threads in 0..4_usize,
    ) {
        let text = damaged(&document.text(1), &damages);
        assert_same_in_pieces(&text, &sizes, threads)?;
        assert_strict_same_in_pieces(&text, &sizes)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 4))]

    #[test]
    fn large_damaged_traces(
        document in documents(5..20),
        times in 10..60_usize,
        damages in damages(),
        sizes in chunk_sizes(),
        threads in 0..4_usize,
    ) {
        let sizes: Vec<_> = sizes.into_iter().map(|size| size + 100).collect();
        assert_same_in_pieces(&damaged(&document.text(times), &damages), &sizes, threads)?;
    }
}

/// Everything before a cut is read, in whatever pieces.
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
