//! Decimal microseconds to nanoseconds against the same in integers of 128 bits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use traceparse::fuzzing;

/// Digits that the reference can hold.
const MOST_DIGITS: usize = 30;

fuzz_target!(|text: &[u8]| {
    let fast = fuzzing::micros_to_ns(text);
    if let Ok(text) = std::str::from_utf8(text)
        && text.len() <= MOST_DIGITS
    {
        assert_eq!(fast, reference(text), "{text:?}");
    }
});

/// Sign, digits with at most one point among them, and a power of ten; rounded half away from zero.
fn reference(text: &str) -> Option<i64> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (sign, digits) = match mantissa.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, mantissa),
    };
    let decimals = digits.split_once('.').map_or(0, |(_, decimals)| decimals.len() as i64);
    let digits = digits.replacen('.', "", 1);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let mut value: i128 = digits.parse().ok()?;
    let shift = i64::from(exponent) + 3 - decimals;
    for _ in 0..shift.clamp(0, 40) {
        value = value.checked_mul(10)?;
    }
    // What is left of 30 digits behind 40 more is zero, also when rounded.
    let down = u32::try_from((-shift).clamp(0, 38)).ok()?;
    let divisor = 10_i128.pow(down);
    let rounded = (value + divisor / 2) / divisor;
    i64::try_from(rounded).ok().map(|ns| sign * ns)
}
