//! Turns number tokens into numbers.

use super::scan::{Kind, Raw};
use super::text::decode_string;
use crate::time::{SAFE_DIGITS, whole_number};

/// The integer that `raw` holds, as a number or as a text; `None` if it is none or out of range.
#[inline]
pub(crate) fn integer(raw: &Raw<'_>) -> Option<i64> {
    match raw.kind {
        Kind::Bare | Kind::Text => parse_integer(raw.bytes),
        Kind::EscapedText => parse_integer(decode_string(raw.bytes).0.as_bytes()),
        Kind::Missing | Kind::Nested => None,
    }
}

#[inline]
fn parse_integer(text: &[u8]) -> Option<i64> {
    let (sign, digits) = text.strip_prefix(b"-").map_or((1, text), |digits| (-1, digits));
    if digits.len() <= SAFE_DIGITS
        && let Some(value) = whole_number(digits)
    {
        return Some(sign * value);
    }
    let (whole, part) = digits.split_at(digits.iter().position(|&b| b == b'.').unwrap_or(digits.len()));
    // Tools that load numbers as floats write `7.0`.
    if !whole.iter().all(u8::is_ascii_digit) || part.iter().skip(1).any(|&b| b != b'0') {
        return None;
    }
    let value: i64 = std::str::from_utf8(whole).ok()?.parse().ok()?;
    Some(sign * value)
}

/// The numbers of `[x, y, z]`.
pub(crate) fn triple(text: &[u8]) -> Option<[i32; 3]> {
    let inner = text.trim_ascii().strip_prefix(b"[")?.strip_suffix(b"]")?;
    let mut parts = inner.split(|&byte| byte == b',');
    let mut next = || i32::try_from(parse_integer(parts.next()?.trim_ascii())?).ok();
    let numbers = [next()?, next()?, next()?];
    parts.next().is_none().then_some(numbers)
}

/// The unsigned 64-bit identifier that `raw` holds; a negative one is taken as its bits.
pub(crate) fn identifier(raw: &Raw<'_>) -> Option<u64> {
    match integer(raw) {
        Some(value) => Some(value as u64),
        None => std::str::from_utf8(raw.bytes).ok()?.parse().ok(),
    }
}

/// The finite number that `raw` holds.
pub(crate) fn real(raw: &Raw<'_>) -> Option<f64> {
    match raw.kind {
        Kind::Bare | Kind::Text => short_real(raw.bytes).or_else(|| {
            std::str::from_utf8(raw.bytes).ok()?.parse().ok().filter(|value: &f64| value.is_finite())
        }),
        _ => None,
    }
}

/// The number that few digits with a point make up.
///
/// All integers up to 2^53 and powers of ten up to 10^22 are floats, and a quotient of two is rounded once.
#[inline]
fn short_real(text: &[u8]) -> Option<f64> {
    const EXACT_DIGITS: usize = 15;
    if text.len() > EXACT_DIGITS {
        return None;
    }
    let point = text.iter().position(|&byte| byte == b'.');
    let (whole, part) = text.split_at(point.unwrap_or(text.len()));
    let whole = whole_number(whole)?;
    let Some(part) = part.get(1..) else { return Some(whole as f64) };
    let scale = 10_i64.pow(part.len() as u32);
    Some((whole * scale + whole_number(part)?) as f64 / scale as f64)
}

/// The truth value that `raw` holds, as a word or as 0 or 1.
pub(crate) fn boolean(raw: &Raw<'_>) -> Option<bool> {
    match raw.bytes {
        b"true" | b"True" | b"1" => Some(true),
        b"false" | b"False" | b"0" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_numbers_are_three_and_whole() {
        assert_eq!(triple(b"[80, 1,\n 2]"), Some([80, 1, 2]));
        for text in
            [&b"[80, 1]"[..], b"[1, 2, 3, 4]", b"[1, 2.5, 3]", b"[1, 2, 3000000000]", b"[1,,2]", b"7", b""]
        {
            assert_eq!(triple(text), None);
        }
    }

    fn bare(text: &str) -> Raw<'_> {
        Raw { kind: Kind::Bare, bytes: text.as_bytes() }
    }

    #[test]
    fn integers_of_every_spelling() {
        assert_eq!(integer(&bare("42")), Some(42));
        assert_eq!(integer(&bare("-1")), Some(-1));
        assert_eq!(integer(&bare("7.0")), Some(7));
        assert_eq!(integer(&Raw { kind: Kind::Text, bytes: b"25738" }), Some(25738));
        for text in ["", "-", "7.5", ".0", "1e3", "nan", "99999999999999999999"] {
            assert_eq!(integer(&bare(text)), None, "{text:?}");
        }
    }

    #[test]
    fn identifiers_use_all_64_bits() {
        assert_eq!(identifier(&bare("18446744073709551615")), Some(u64::MAX));
        assert_eq!(identifier(&bare("-1")), Some(u64::MAX));
        assert_eq!(identifier(&bare("x")), None);
    }

    #[test]
    fn only_finite_reals_count() {
        for text in
            ["0.848485", "62", "39.555557", "0.009259259", "123456789.12345", "-0.0", "1e5", "7.", ".5"]
        {
            assert_eq!(real(&bare(text)).map(f64::to_bits), text.parse().ok().map(f64::to_bits), "{text}");
        }
        assert_eq!(real(&bare("inf")), None);
        assert_eq!(real(&bare("nan")), None);
    }
}
