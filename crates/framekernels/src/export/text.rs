//! Writes JSON tokens.

use serde_json::value::RawValue;

/// Appends `text` as a JSON string.
pub(super) fn push_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut plain = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(bytes.get(plain..at).unwrap_or_default());
        plain = at + 1;
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
        }
    }
    out.extend_from_slice(bytes.get(plain..).unwrap_or_default());
    out.push(b'"');
}

/// Appends JSON text; what is none is appended as a string.
pub(super) fn push_json(out: &mut Vec<u8>, text: &str) {
    match serde_json::from_str::<&RawValue>(text) {
        Ok(value) => out.extend_from_slice(value.get().as_bytes()),
        Err(_) => push_string(out, text),
    }
}

/// Appends nanoseconds as microseconds with all their digits.
pub(super) fn push_micros(out: &mut Vec<u8>, ns: i64) {
    if ns < 0 {
        out.push(b'-');
    }
    let ns = ns.unsigned_abs();
    push_display(out, ns / 1000);
    if !ns.is_multiple_of(1000) {
        out.extend_from_slice(format!(".{:03}", ns % 1000).as_bytes());
    }
}

/// Appends a finite number, and null for any other.
pub(super) fn push_real(out: &mut Vec<u8>, value: f64) {
    if value.is_finite() { push_display(out, value) } else { out.extend_from_slice(b"null") }
}

/// Appends what `value` is shown as.
pub(super) fn push_display(out: &mut Vec<u8>, value: impl std::fmt::Display) {
    use std::io::Write;
    // Writing into memory cannot fail.
    let _ = write!(out, "{value}");
}
