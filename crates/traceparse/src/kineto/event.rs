//! One event: its fields as they stand in the bytes.

use super::args::{Args, KeyMap};
use super::scan::{Cursor, Kind, Raw, Stop};

/// The fields of one event, not yet interpreted.
#[derive(Debug, Default)]
pub(crate) struct RawEvent<'a> {
    pub(crate) phase: Raw<'a>,
    pub(crate) category: Raw<'a>,
    pub(crate) name: Raw<'a>,
    pub(crate) pid: Raw<'a>,
    pub(crate) tid: Raw<'a>,
    pub(crate) ts: Raw<'a>,
    pub(crate) dur: Raw<'a>,
    pub(crate) id: Raw<'a>,
    pub(crate) scope: Raw<'a>,
    pub(crate) args: Args<'a>,
    /// Keys beside those above, in order.
    pub(crate) others: Vec<(Raw<'a>, Raw<'a>)>,
    pub(crate) has_duplicate: bool,
    pub(crate) has_trailing_comma: bool,
}

impl<'a> RawEvent<'a> {
    fn clear(&mut self) {
        let empty = Raw::default();
        (self.phase, self.category, self.name) = (empty, empty, empty);
        (self.pid, self.tid, self.ts, self.dur) = (empty, empty, empty, empty);
        (self.id, self.scope) = (empty, empty);
        self.args.clear();
        self.others.clear();
        self.has_duplicate = false;
        self.has_trailing_comma = false;
    }

    /// Parses the object at the cursor; the cursor then stands behind it.
    pub(crate) fn parse(&mut self, cursor: &mut Cursor<'a>, keys: &mut KeyMap) -> Result<(), Stop> {
        self.clear();
        cursor.at += 1;
        let mut after_comma = false;
        loop {
            match cursor.next_token()? {
                b'"' => {}
                b'}' => {
                    self.has_trailing_comma |= after_comma;
                    cursor.at += 1;
                    return Ok(());
                }
                _ => return Err(Stop::Syntax),
            }
            let key = cursor.string()?;
            if cursor.next_token()? != b':' {
                return Err(Stop::Syntax);
            }
            cursor.at += 1;
            self.parse_value(key, cursor, keys)?;
            // Writers since 2026-04 put the comma on a line of its own.
            after_comma = match cursor.next_token()? {
                b',' => {
                    cursor.at += 1;
                    true
                }
                b'}' => false,
                _ => return Err(Stop::Syntax),
            };
        }
    }

    #[inline]
    fn parse_value(&mut self, key: Raw<'a>, cursor: &mut Cursor<'a>, keys: &mut KeyMap) -> Result<(), Stop> {
        let field = match key.bytes {
            b"ph" => &mut self.phase,
            b"cat" => &mut self.category,
            b"name" => &mut self.name,
            b"pid" => &mut self.pid,
            b"tid" => &mut self.tid,
            b"ts" => &mut self.ts,
            b"dur" => &mut self.dur,
            b"id" => &mut self.id,
            b"s" => &mut self.scope,
            b"args" if cursor.next_token()? == b'{' => return self.args.parse(cursor, keys),
            _ => {
                let value = cursor.value()?;
                // The binding point is `e` on every flow end and says nothing.
                if key.bytes != b"bp" {
                    self.others.push((key, value));
                }
                return Ok(());
            }
        };
        self.has_duplicate |= field.kind != Kind::Missing;
        *field = cursor.value()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_in_any_order() {
        let text =
            br#"{"args": {"correlation": 5}, "ts": 1.5, "ph": "X", "name": "k", "tts": 2, "pid": "Spans"}"#;
        let mut event = RawEvent::default();
        event.parse(&mut Cursor::new(text, 0), &mut KeyMap::default()).unwrap();
        assert_eq!(
            (event.ts.bytes, event.phase.bytes, event.pid.bytes),
            (&b"1.5"[..], &b"X"[..], &b"Spans"[..])
        );
        assert_eq!(event.others.len(), 1);
        assert_eq!(event.dur.kind, Kind::Missing);
    }

    #[test]
    fn a_quote_inside_a_name_is_a_syntax_error() {
        let text = br#"{"ph": "X", "name": "a"b", "pid": 1}"#;
        let mut event = RawEvent::default();
        assert_eq!(event.parse(&mut Cursor::new(text, 0), &mut KeyMap::default()), Err(Stop::Syntax));
    }
}
