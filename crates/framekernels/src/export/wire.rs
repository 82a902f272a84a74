//! The encoding of protocol buffers.

/// Bytes of a length that is written before what it measures is known.
const LENGTH_BYTES: usize = 5;

/// Appends a field that is a whole number or a truth value.
pub(super) fn push_uint(out: &mut Vec<u8>, field: u32, value: u64) {
    push_varint(out, u64::from(field << 3));
    push_varint(out, value);
}

/// Appends a field that is a double.
pub(super) fn push_double(out: &mut Vec<u8>, field: u32, value: f64) {
    push_varint(out, u64::from(field << 3 | 1));
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a field that is a text.
pub(super) fn push_text(out: &mut Vec<u8>, field: u32, text: &str) {
    push_varint(out, u64::from(field << 3 | 2));
    push_varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Appends a field that is a message, which `write` appends.
pub(super) fn push_message(out: &mut Vec<u8>, field: u32, write: impl FnOnce(&mut Vec<u8>)) {
    push_varint(out, u64::from(field << 3 | 2));
    let start = out.len() + LENGTH_BYTES;
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    write(out);
    let length = out.len() - start;
    // A varint may be longer than it must be.
    for (at, byte) in out[start - LENGTH_BYTES..start].iter_mut().enumerate() {
        let more = if at + 1 < LENGTH_BYTES { 0x80 } else { 0 };
        *byte = (length >> (7 * at)) as u8 & 0x7f | more;
    }
}

fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
