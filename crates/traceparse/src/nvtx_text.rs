//! The texts of PyTorch's `emit_nvtx`, taken apart.
//!
//! It appends to the name of an operator what it knows of the call, which makes nearly every text
//! unique: `aten::mm, seq = 7, op_id = 42, sizes = [[2, 3], [3, 4]], input_op_ids = [(41,0)]`, each
//! part optional, always in this order.

use memchr::memchr_iter;

/// A text and what was appended to it.
#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
pub(crate) struct NvtxText<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) sequence: Option<i64>,
    pub(crate) op_id: Option<i64>,
    pub(crate) sizes: Option<&'a [u8]>,
    pub(crate) input_op_ids: Option<&'a [u8]>,
}

/// How the parts begin.
const KEYS: [&[u8]; 4] = [b", seq = ", b", op_id = ", b", sizes = ", b", input_op_ids = "];

/// Places at which a suffix is tried: each try reads the rest of the text, and a name with more of
/// these keys in it is no operator's.
const MOST_TRIES: u32 = 8;

/// Takes `text` apart. What does not have exactly the form above is a name as a whole, so that the
/// text can always be put together again.
#[inline]
pub(crate) fn parse(text: &[u8]) -> NvtxText<'_> {
    let mut tried = 0;
    for comma in memchr_iter(b',', text) {
        let (name, rest) = text.split_at(comma);
        if !KEYS.iter().any(|key| rest.starts_with(key)) {
            continue;
        }
        if let Some(parts) = suffix(rest) {
            return NvtxText { name, ..parts };
        }
        tried += 1;
        if tried == MOST_TRIES {
            break;
        }
    }
    NvtxText { name: text, ..NvtxText::default() }
}

/// The parts of a suffix, if it is one to its end.
#[inline]
fn suffix(mut rest: &[u8]) -> Option<NvtxText<'_>> {
    let mut parts = NvtxText::default();
    if let Some(after) = rest.strip_prefix(KEYS[0]) {
        (parts.sequence, rest) = number(after)?;
    }
    if let Some(after) = rest.strip_prefix(KEYS[1]) {
        (parts.op_id, rest) = number(after)?;
    }
    if let Some(after) = rest.strip_prefix(KEYS[2]) {
        (parts.sizes, rest) = list(after)?;
    }
    if let Some(after) = rest.strip_prefix(KEYS[3]) {
        (parts.input_op_ids, rest) = list(after)?;
    }
    rest.is_empty().then_some(parts)
}

/// A number at the beginning, in the one way that it is printed.
#[inline]
fn number(text: &[u8]) -> Option<(Option<i64>, &[u8])> {
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(digits);
    if digits.is_empty() || (digits.len() > 1 && digits.starts_with(b"0")) {
        return None;
    }
    let digit = |value: i64, b: &u8| value.checked_mul(10)?.checked_add(i64::from(b - b'0'));
    let value = digits.iter().try_fold(0, digit)?;
    Some((Some(value), rest))
}

/// A bracketed list at the beginning.
fn list(text: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let mut depth = 0_usize;
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'[' => depth += 1,
            b']' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            let (list, rest) = text.split_at(at + 1);
            return (at > 0).then_some((Some(list), rest));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{NvtxText, parse};
    use proptest::prelude::*;

    fn rebuilt(parts: NvtxText<'_>) -> Vec<u8> {
        let mut text = parts.name.to_vec();
        let mut add = |key: &str, value: Option<Vec<u8>>| {
            if let Some(value) = value {
                text.extend_from_slice(format!(", {key} = ").as_bytes());
                text.extend_from_slice(&value);
            }
        };
        add("seq", parts.sequence.map(|n| n.to_string().into_bytes()));
        add("op_id", parts.op_id.map(|n| n.to_string().into_bytes()));
        add("sizes", parts.sizes.map(<[u8]>::to_vec));
        add("input_op_ids", parts.input_op_ids.map(<[u8]>::to_vec));
        text
    }

    #[test]
    fn every_part_is_optional() {
        let all = parse(b"aten::mm, seq = 7, op_id = 42, sizes = [[2, 3], []], input_op_ids = [(41,0)]");
        let expected = NvtxText {
            name: b"aten::mm",
            sequence: Some(7),
            op_id: Some(42),
            sizes: Some(b"[[2, 3], []]"),
            input_op_ids: Some(b"[(41,0)]"),
        };
        assert_eq!(all, expected);
        assert_eq!(parse(b"aten::t, op_id = 3").op_id, Some(3));
        assert_eq!(parse(b"MmBackward0, seq = 0").sequence, Some(0));
        assert_eq!(parse(b"f(a, b), sizes = [[1]]").name, b"f(a, b)");
        assert_eq!(parse(b"a, op_id = 3, seq = 4").name, b"a, op_id = 3");
    }

    #[test]
    fn what_only_looks_like_it_is_a_name() {
        let texts: [&[u8]; 9] = [
            b"plain",
            b"",
            b"a, seq = ",
            b"a, seq = 007",
            b"a, seq = -1",
            b"a, op_id = 99999999999999999999",
            b"a, sizes = [[1]",
            b"a, sizes = ]",
            b"a, seq = 3 ",
        ];
        for text in texts {
            assert_eq!(parse(text).name, text);
        }
    }

    proptest! {
        #[test]
        fn the_text_can_be_rebuilt(text in "[a,]{0,3}(, (seq|op_id|sizes|input_op_ids) = ([0-9]{0,20}|\\[[\\[\\], 0-9]{0,6}\\])){0,4}") {
            prop_assert_eq!(rebuilt(parse(text.as_bytes())), text.into_bytes());
        }
    }
}
