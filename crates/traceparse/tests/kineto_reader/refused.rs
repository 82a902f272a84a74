//! Files that are no traces: what kind of error each gives, and what it says.

use std::path::Path;

use traceparse::{ErrorKind, ReadOptions, read};

use crate::reading::{document, op, reading_with};

fn refusal(content: impl AsRef<[u8]>) -> (ErrorKind, String) {
    let error = reading_with(content, &ReadOptions::default()).expect_err("no trace");
    assert!(error.path().is_some());
    let text = error.to_string();
    assert!(!text.contains('\n') && text.len() < 400, "{text:?}");
    (error.kind(), text)
}

#[test]
fn files_that_are_no_traces_are_named() {
    for (content, message) in [
        (&b""[..], "is empty"),
        (b" \n\t ", "contains only white space"),
        (b"hello world", "is not a trace"),
        (b"\x0a\xd3\x02\x08\x00\x12", "Perfetto"),
        (b"\x0a{\x08\x01\x12\x00", "Perfetto"),
        (b"PK\x03\x04abc", "zip archive"),
        (b"\xff\xfe{\0\"\0", "UTF-16"),
        (b"{\"a\": 1, \"b\": [1, 2]}", "has no traceEvents"),
        (b"[1, 2, 3]", "none of its elements is an event"),
        (b"[{\"a\": 1}, {\"b\": 2}]", "none of its elements is an event"),
        (b"{hello}", "is not a trace"),
        (
            b"{\"schema\": \"1.0.1\", \"pid\": 1, \"nodes\": [{\"name\": \"x\", \"id\": 1}]}",
            "is a PyTorch execution trace",
        ),
    ] {
        let (kind, text) = refusal(content);
        assert_eq!(kind, ErrorKind::UnknownFormat, "{text}");
        assert!(text.contains(message), "{text:?} does not say {message:?}");
    }
}

#[test]
fn paths_that_are_no_files_are_named() {
    let error = |path: &Path| read(path, &ReadOptions::default()).expect_err("no file");
    let missing = error(Path::new("/nowhere/trace.json"));
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(missing.to_string().starts_with("/nowhere/trace.json: "));
    let folder = error(Path::new(env!("CARGO_TARGET_TMPDIR")));
    assert_eq!(folder.kind(), ErrorKind::NotAFile);
    assert!(folder.to_string().contains("is a folder"));
    assert_eq!(error(Path::new("/dev/null")).kind(), ErrorKind::UnknownFormat);
}

#[test]
fn strict_reading_stops_at_the_first_loss_and_says_where() {
    let strict = ReadOptions { strict: true, ..ReadOptions::default() };
    let good = document([op("a"), op("b")].join(","));
    assert!(reading_with(&good, &strict).is_ok());
    // Repairs are no losses.
    assert!(reading_with(document(op(r#"a"b"#)), &strict).is_ok());
    for (element, message) in [
        (r#"{"ph": "X", "name": "x"}"#, "no usable timestamp"),
        ("5", "is not an object"),
        (r#"{"ph" "X"}"#, "could not be repaired"),
    ] {
        let text = document([&op("a"), element, &op("b"), element].join(","));
        let at = document("").windows(2).position(|w| w == b"[]").unwrap() + op("a").len() + 2;
        for (chunk, threads) in [(1 << 20, 2), (100, 1), (64, 3)] {
            let options = ReadOptions { chunk_bytes: Some(chunk), threads: Some(threads), ..strict.clone() };
            let error = reading_with(&text, &options).expect_err("a loss");
            assert_eq!(error.kind(), ErrorKind::Strict);
            assert_eq!(error.offset(), Some(at as u64), "{error}");
            assert!(error.to_string().contains(message), "{error}");
        }
    }
    let cut = reading_with(&good[..good.len() - 30], &strict).expect_err("cut");
    assert_eq!(cut.kind(), ErrorKind::Strict);
    assert!(cut.offset().is_some());
}

#[test]
fn a_reader_can_be_stopped() {
    let options = ReadOptions { progress: Some(std::sync::Arc::new(|_, _| false)), ..ReadOptions::default() };
    let error = reading_with(document(op("a")), &options).expect_err("interrupted");
    assert_eq!(error.kind(), ErrorKind::Interrupted);
}
