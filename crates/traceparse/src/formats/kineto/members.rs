//! Walks over the members of an object, from value to value.
//!
//! Events of one kind have their keys in one order and the same white space around them. So what
//! stands between two values, a key with all its punctuation, is learned where it is met and compared
//! as a whole the next time. Whether it was learned changes the time that a step takes and nothing else.

use super::scan::{Cursor, Kind, Raw, Stop};
use super::text::decode_string;

/// Longest text that is learned. The longest known key takes 39 bytes with its indentation.
const LONGEST: usize = 48;
const WORDS: usize = LONGEST / 8;
/// Texts that are learned behind each key: which one follows depends on the kind of the event.
const WAYS: usize = 2;
/// Stands for the end of the object.
const END: u8 = u8::MAX;

/// What follows a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Member<'a> {
    /// The value of the known key of this number, at the cursor or behind white space.
    Known(usize),
    /// The value of another key, in the same place.
    Other(Raw<'a>),
    /// The end of the object; the cursor stands behind it.
    End,
}

/// A text between two values.
#[derive(Debug, Clone, Copy)]
struct Prediction {
    text: [u64; WORDS],
    /// The bits of `text` that count.
    mask: [u64; WORDS],
    len: u8,
    /// Number of the key in it, or [`END`].
    key: u8,
}

impl Prediction {
    /// Matches nothing: no masked word is 1.
    const NONE: Self = Self { text: [1; WORDS], mask: [0; WORDS], len: 0, key: END };

    fn new(bytes: &[u8], key: u8) -> Option<Self> {
        let mut prediction = Self { text: [0; WORDS], mask: [0; WORDS], len: bytes.len() as u8, key };
        for (at, &byte) in bytes.iter().enumerate() {
            *prediction.text.get_mut(at / 8)? |= u64::from(byte) << (8 * (at % 8));
            prediction.mask[at / 8] |= 0xff << (8 * (at % 8));
        }
        Some(prediction)
    }

    #[inline]
    fn matches(&self, window: &[u8; LONGEST]) -> bool {
        let (words, _) = window.as_chunks::<8>();
        let mut difference = 0;
        for (i, &word) in words.iter().enumerate() {
            difference |= (u64::from_le_bytes(word) & self.mask[i]) ^ self.text[i];
        }
        difference == 0
    }
}

/// Rows of a [`KeyPredictor`] beside those of the known keys.
pub(super) const OTHER_ROWS: usize = 2;

/// The texts that were learned, by the known key they follow; behind them, those that follow unknown
/// keys, and those at the start of an object.
#[derive(Debug)]
pub(super) struct KeyPredictor<const ROWS: usize> {
    rows: [[Prediction; WAYS]; ROWS],
    /// Which of a row is to be replaced next.
    oldest: [u8; ROWS],
}

impl<const ROWS: usize> Default for KeyPredictor<ROWS> {
    fn default() -> Self {
        Self { rows: [[Prediction::NONE; WAYS]; ROWS], oldest: [0; ROWS] }
    }
}

impl<const ROWS: usize> KeyPredictor<ROWS> {
    /// What comes before the first member.
    pub(super) const START: usize = ROWS - 1;
    /// Any unknown key.
    pub(super) const OTHER: usize = ROWS - 2;

    /// Moves to the next value of an object.
    ///
    /// The cursor stands behind the value of `previous`, or at the brace that opens the object.
    /// `number_of` tells the number of a key, if it is known.
    #[inline]
    pub(super) fn next<'a>(
        &mut self,
        cursor: &mut Cursor<'a>,
        previous: usize,
        has_trailing_comma: &mut bool,
        number_of: impl Fn(&[u8]) -> Option<usize>,
    ) -> Result<Member<'a>, Stop> {
        if let Some(window) = cursor.bytes[cursor.at..].first_chunk() {
            for prediction in &self.rows[previous] {
                if prediction.matches(window) {
                    cursor.at += usize::from(prediction.len);
                    let is_end = prediction.key == END;
                    return Ok(if is_end { Member::End } else { Member::Known(prediction.key.into()) });
                }
            }
        }
        let from = cursor.at;
        let member = find(cursor, previous == Self::START, has_trailing_comma, number_of)?;
        let key = match member {
            Member::Known(number) => number as u8,
            Member::End if !*has_trailing_comma => END,
            _ => return Ok(member),
        };
        if let Some(prediction) = Prediction::new(&cursor.bytes[from..cursor.at], key) {
            let oldest = &mut self.oldest[previous];
            self.rows[previous][usize::from(*oldest)] = prediction;
            *oldest = (*oldest + 1) % WAYS as u8;
        }
        Ok(member)
    }
}

/// Finds the next member by reading what stands there.
#[inline(never)]
fn find<'a>(
    cursor: &mut Cursor<'a>,
    is_first: bool,
    has_trailing_comma: &mut bool,
    number_of: impl Fn(&[u8]) -> Option<usize>,
) -> Result<Member<'a>, Stop> {
    let is_separated = is_first || cursor.next_token()? == b',';
    if is_separated {
        cursor.at += 1;
    }
    match cursor.next_token()? {
        b'"' if is_separated => {}
        b'}' => {
            *has_trailing_comma |= is_separated && !is_first;
            cursor.at += 1;
            return Ok(Member::End);
        }
        _ => return Err(Stop::Syntax),
    }
    let key = cursor.string()?;
    if cursor.next_token()? != b':' {
        return Err(Stop::Syntax);
    }
    cursor.at += 1;
    cursor.next_token()?;
    let number = match key.kind {
        Kind::Text => number_of(key.bytes),
        _ => number_of(decode_string(key.bytes).0.as_bytes()),
    };
    Ok(number.map_or(Member::Other(key), Member::Known))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&[u8]; 2] = [b"a", b"b"];
    type TwoKeys = KeyPredictor<{ KEYS.len() + OTHER_ROWS }>;

    fn number_of(key: &[u8]) -> Option<usize> {
        KEYS.iter().position(|&known| known == key)
    }

    /// The known keys and the others' texts, and whether a comma stood before the end.
    fn keys(text: &str, predictor: &mut TwoKeys) -> Result<(String, bool), Stop> {
        let (mut found, mut trailing) = (String::new(), false);
        let mut cursor = Cursor::new(text.as_bytes(), 0);
        let mut previous = TwoKeys::START;
        loop {
            match predictor.next(&mut cursor, previous, &mut trailing, number_of)? {
                Member::Known(number) => {
                    found += &number.to_string();
                    previous = number;
                }
                Member::Other(key) => {
                    found += std::str::from_utf8(key.bytes).unwrap();
                    previous = TwoKeys::OTHER;
                }
                Member::End => return Ok((found, trailing)),
            }
            cursor.value()?;
        }
    }

    #[test]
    fn what_was_learned_changes_nothing() {
        let behind = " ".repeat(LONGEST);
        let texts = [
            r#"{"a": 1, "b": 2}"#,
            r#"{"a": 1,"b": 2 }"#,
            r#"{"b": 1, "a": 2, "b": 3}"#,
            r#"{"x": 1, "a": 2}"#,
            r#"{"x": 1{"a": 2}"#,
            r#"{"a": 1 "b": 2}"#,
            r#"{"a": 1, }"#,
            r#"{, "a": 1}"#,
            r#"{"a": 1, "\u0062": [2], "long enough that nobody learns what is before its value": 3}"#,
            "{}",
        ];
        let mut learned = TwoKeys::default();
        for _ in 0..3 {
            for text in texts {
                let text = text.to_owned() + &behind;
                assert_eq!(keys(&text, &mut learned), keys(&text, &mut TwoKeys::default()), "{text}");
            }
        }
    }

    #[test]
    fn members_are_found_as_they_stand() {
        let mut predictor = TwoKeys::default();
        assert_eq!(keys(r#"{"a": 1, "x": {"a": 3}, "b": 2}"#, &mut predictor), Ok(("0x1".to_owned(), false)));
        assert_eq!(keys(r#"{"b": 1 , }"#, &mut predictor), Ok(("1".to_owned(), true)));
        assert_eq!(keys(r#"{"b" 1}"#, &mut predictor), Err(Stop::Syntax));
        assert_eq!(keys(r#"{"b": 1 "a": 2}"#, &mut predictor), Err(Stop::Syntax));
        assert_eq!(keys(r#"{"b": "#, &mut predictor), Err(Stop::Incomplete));
    }
}
