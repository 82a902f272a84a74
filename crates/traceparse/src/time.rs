//! Decimal text to integer nanoseconds, without a float in between.

use std::ops::RangeInclusive;

/// Times that a trace can have, from long before its zero to the year 2116. Ends of slices and
/// differences of any two times stay inside of `i64`.
pub(crate) const TIMES_NS: RangeInclusive<i64> = -(1 << 61)..=1 << 62;
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

/// The number that `digits` make up, at most [`SAFE_DIGITS`] of them; `None` if others are among them.
#[inline]
pub(crate) fn whole_number(digits: &[u8]) -> Option<i64> {
    // Without a way out of the loop, which costs more than the few digits behind one that is none.
    let (mut value, mut highest) = (0_i64, 0);
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        highest = digit.max(highest);
        value = value.wrapping_mul(10).wrapping_add(i64::from(digit));
    }
    (highest <= 9 && !digits.is_empty()).then_some(value)
}

/// Nanoseconds of a decimal number of microseconds, rounded to the nearest.
///
/// `None` if `text` is no number or out of the range of `i64`.
#[inline]
pub(crate) fn micros_to_ns(text: &[u8], fraction: Fraction) -> Option<i64> {
    // Nearly all recorders write nanoseconds as three digits.
    if text.len() <= SAFE_DIGITS
        && let Some((whole, [b'.', part @ ..])) = text.split_last_chunk::<4>()
        && let (Some(micros), Some(ns)) = (whole_number(whole), whole_number(part))
    {
        return Some(micros * 1000 + ns);
    }
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let mut value: i64 = 0;
    let mut at = 0;
    while let Some(&digit) = digits.get(at) {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        let Some(longer) = value.checked_mul(10).and_then(|value| value.checked_add(i64::from(digit))) else {
            // An exponent may make it small again.
            return scientific_to_ns(text);
        };
        value = longer;
        at += 1;
    }
    let ns = match digits.get(at) {
        None if at > 0 => value.checked_mul(1000)?,
        Some(b'.') => {
            let tail = &digits[at + 1..];
            if at + tail.len() == 0 || !tail.iter().all(u8::is_ascii_digit) {
                return scientific_to_ns(text);
            }
            value.checked_mul(1000)?.checked_add(fraction_to_ns(tail, fraction))?
        }
        _ => return scientific_to_ns(text),
    };
    Some(if negative { -ns } else { ns })
}

#[inline]
fn fraction_to_ns(digits: &[u8], fraction: Fraction) -> i64 {
    let digit = |i: usize| digits.get(i).map_or(0, |d| i64::from(d - b'0'));
    if fraction == Fraction::Unpadded && digits.len() < 3 {
        return digits.iter().fold(0, |n, d| n * 10 + i64::from(d - b'0'));
    }
    let round_up = digits.get(3).is_some_and(|&d| d >= b'5');
    digit(0) * 100 + digit(1) * 10 + digit(2) + i64::from(round_up)
}

/// The same for a number with an exponent, such as `1.5e3`.
fn scientific_to_ns(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let (mantissa, exponent) = text.split_once(['e', 'E'])?;
    let exponent: i32 = exponent.parse().ok()?;
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, mantissa),
    };
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.len() + part.len() == 0 || whole.len() + part.len() > 30 {
        return None;
    }
    let mut value: i128 = 0;
    for digit in whole.bytes().chain(part.bytes()) {
        value = value * 10 + i128::from(char::from(digit).to_digit(10)?);
    }
    // Three digits from microseconds to nanoseconds.
    let shift = exponent.checked_add(3)?.checked_sub(i32::try_from(part.len()).ok()?)?;
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
