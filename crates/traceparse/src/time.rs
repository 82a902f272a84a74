//! Decimal text to integer nanoseconds, without a float in between.

use std::ops::RangeInclusive;

/// Times that a trace can have, from long before its zero to the year 2116. Ends of slices and
/// differences of any two times stay inside of `i64`.
pub(crate) const TIMES_NS: RangeInclusive<i64> = -(1 << 61)..=1 << 62;
/// The start of GPU work that has none, until it is put into a table of its own.
pub(crate) const NO_START: i64 = i64::MIN;
/// An hour, in ns.
pub(crate) const HOUR_NS: i64 = 3_600_000_000_000;
/// Longest duration, some 36 years.
pub(crate) const LONGEST_NS: i64 = 1 << 60;

/// How the fraction of a microsecond is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Fraction {
    /// As a decimal fraction: `.5` is 500 ns.
    #[default]
    Decimal,
    /// As a count of nanoseconds without leading zeros: `.5` is 5 ns.
    /// Recorders built between 2024-03-18 and 2024-04-03 wrote this.
    Unpadded,
}

/// So many digits never exceed an `i64`.
pub(crate) const SAFE_DIGITS: usize = 18;

const ONES: u64 = 0x0101_0101_0101_0101;

/// The number that `digits` make up, at most [`SAFE_DIGITS`] of them; `None` if others are among them.
#[inline]
pub(crate) fn whole_number(digits: &[u8]) -> Option<i64> {
    let Some((high, low)) = digits.split_last_chunk() else { return eight_digits(last_eight(digits)?) };
    let low = eight_digits(u64::from_le_bytes(*low))?;
    let high = match high.split_last_chunk() {
        None if high.is_empty() => return Some(low),
        None => eight_digits(last_eight(high)?)?,
        Some((top, high)) => {
            let top = last_eight(top).map_or(Some(0), eight_digits)?;
            top * 100_000_000 + eight_digits(u64::from_le_bytes(*high))?
        }
    };
    Some(high * 100_000_000 + low)
}

/// 1 to 8 characters as a word, the last in its highest byte, with the digit zero in front of them.
#[inline]
fn last_eight(text: &[u8]) -> Option<u64> {
    let missing = 8 - text.len().min(8);
    let word = if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        // Two loads that overlap.
        u64::from(u32::from_le_bytes(*first)) << (8 * missing) | u64::from(u32::from_le_bytes(*last)) << 32
    } else {
        let [first, middle, last] = [*text.first()?, *text.get(text.len() / 2)?, *text.last()?];
        let place = |byte: u8, at: usize| u64::from(byte) << (8 * (missing + at));
        place(first, 0) | place(middle, text.len() / 2) | place(last, text.len() - 1)
    };
    let in_front = if missing == 0 { 0 } else { u64::MAX >> (64 - 8 * missing) };
    Some(word | (ONES * u64::from(b'0')) & in_front)
}

/// The number that eight digits make up, the first in the lowest byte; `None` if others are among them.
#[inline]
fn eight_digits(text: u64) -> Option<i64> {
    let digits = text ^ (ONES * u64::from(b'0'));
    if (digits | (digits & (ONES * 0x7f)).wrapping_add(ONES * 0x76)) & (ONES * 0x80) != 0 {
        return None;
    }
    // Neighbours are put together in pairs, all pairs at once.
    let pairs = (digits * 10 + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    Some(((fours * 10_000 + (fours >> 32)) & 0xffff_ffff) as i64)
}

/// Nanoseconds of a decimal number of microseconds, rounded to the nearest.
///
/// `None` if `text` is no number or out of the range of `i64`.
#[inline]
pub(crate) fn micros_to_ns(text: &[u8], fraction: Fraction) -> Option<i64> {
    short_micros_to_ns(text, fraction).or_else(|| any_micros_to_ns(text, fraction))
}

/// The same for what nearly all recorders write: few digits, and at most three behind a point.
#[inline]
fn short_micros_to_ns(text: &[u8], fraction: Fraction) -> Option<i64> {
    if !(2..=SAFE_DIGITS + 8).contains(&text.len()) {
        return None;
    }
    let (high, low) = match text.split_last_chunk() {
        Some((high, low)) => (high, u64::from_le_bytes(*low)),
        None => (&[][..], last_eight(text)?),
    };
    let others = low ^ (ONES * u64::from(b'.'));
    let points = others.wrapping_sub(ONES) & !others & (ONES * 0x80);
    if points == 0 {
        return if text.len() > SAFE_DIGITS { None } else { whole_number(text)?.checked_mul(1000) };
    }
    let point = points.trailing_zeros() & !7;
    let decimals = 7 - point / 8;
    if decimals > 3 || (decimals < 3 && fraction == Fraction::Unpadded) {
        return None;
    }
    // What is before the point takes its place.
    let before = low & ((1 << point) - 1);
    let behind = low & (u64::MAX << point << 8);
    let low = eight_digits(before << 8 | behind | u64::from(b'0'))?;
    let high = if high.is_empty() { 0 } else { whole_number(high)? };
    high.checked_mul(10_000_000)?.checked_add(low)?.checked_mul(10_i64.pow(3 - decimals))
}

/// The same for any number, such as `-1.23456` or `1.5e3`.
#[cold]
fn any_micros_to_ns(text: &[u8], fraction: Fraction) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.parse::<i32>().ok()?)),
        None => (text, None),
    };
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or((1, mantissa), |rest| (-1, rest));
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.len() + part.len() == 0 {
        return None;
    }
    let is_unpadded = fraction == Fraction::Unpadded && exponent.is_none();
    let padding = if is_unpadded { 3_usize.saturating_sub(part.len()) } else { 0 };
    let mut value: i128 = 0;
    for digit in whole.bytes().chain(std::iter::repeat_n(b'0', padding)).chain(part.bytes()) {
        value = value.checked_mul(10)?.checked_add(char::from(digit).to_digit(10)?.into())?;
    }
    // Three digits from microseconds to nanoseconds.
    let decimals = i32::try_from(padding + part.len()).ok()?;
    let shift = exponent.unwrap_or(0).checked_add(3)?.checked_sub(decimals)?;
    let value = match u32::try_from(shift) {
        _ if value == 0 => 0,
        Ok(up) => value.checked_mul(10_i128.checked_pow(up)?)?,
        Err(_) => {
            let divisor = 10_i128.checked_pow(shift.unsigned_abs()).unwrap_or(i128::MAX);
            value.checked_add(divisor / 2)? / divisor
        }
    };
    i64::try_from(value).ok().map(|ns| sign * ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(text: &str) -> Option<i64> {
        micros_to_ns(text.as_bytes(), Fraction::Decimal)
    }

    #[test]
    fn decimals_are_exact() {
        assert_eq!(ns("0"), Some(0));
        assert_eq!(ns("1712195495519689.047"), Some(1_712_195_495_519_689_047));
        assert_eq!(ns("68.0"), Some(68_000));
        assert_eq!(ns("5.74"), Some(5_740));
        assert_eq!(ns("-1.5"), Some(-1_500));
        assert_eq!(ns("0.9995"), Some(1_000));
        assert_eq!(ns("0.02099999999"), Some(21));
        assert_eq!(ns(".5"), Some(500));
        assert_eq!(ns("7."), Some(7_000));
        assert_eq!(ns("00000012.25"), Some(12_250));
        assert_eq!(ns("1682726050164281"), Some(1_682_726_050_164_281_000));
        assert_eq!(ns("12345678901234567."), None);
    }

    #[test]
    fn exponents_are_exact() {
        assert_eq!(ns("1.5e3"), Some(1_500_000));
        assert_eq!(ns("17121954955196.89047E2"), Some(1_712_195_495_519_689_047));
        assert_eq!(ns("25e-4"), Some(3));
        assert_eq!(ns("1e-300"), Some(0));
        assert_eq!(ns("1e300"), None);
        assert_eq!(ns("0e99"), Some(0));
        assert_eq!(ns("184467440737095516150E-8"), Some(1_844_674_407_370_955));
    }

    #[test]
    fn digits_of_every_length_make_a_number() {
        let digits = b"987654321012345678";
        for len in 1..=SAFE_DIGITS {
            let text = &digits[..len];
            let expected = std::str::from_utf8(text).unwrap().parse().ok();
            assert_eq!(whole_number(text), expected);
            for at in 0..len {
                for wrong in [b'/', b':', b'.', b' ', 0, 0xb5] {
                    let mut text = text.to_vec();
                    text[at] = wrong;
                    assert_eq!(whole_number(&text), None, "{text:?}");
                }
            }
        }
        assert_eq!(whole_number(b""), None);
    }

    #[test]
    fn what_is_no_number_is_none() {
        for text in ["", "-", ".", "nan", "1.2.3", "12a", "1e", "0x10", "9223372036854775807"] {
            assert_eq!(ns(text), None, "{text:?}");
        }
    }

    #[test]
    fn unpadded_fractions_count_nanoseconds() {
        let ns = |text: &str| micros_to_ns(text.as_bytes(), Fraction::Unpadded);
        assert_eq!(ns("1.5"), Some(1_005));
        assert_eq!(ns("1.50"), Some(1_050));
        assert_eq!(ns("1.500"), Some(1_500));
    }
}
