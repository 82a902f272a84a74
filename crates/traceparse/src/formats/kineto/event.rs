//! One event: its fields as they stand in the bytes, and its kind.

use super::args::{self, Args, FIELDS, FieldPredictor, KeyMap};
use super::members::Member;
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
    has_args: bool,
    pub(crate) has_duplicate: bool,
    pub(crate) has_trailing_comma: bool,
    /// Whether it was rewritten from an event whose writer escapes nothing.
    pub(crate) is_unescaped: bool,
}

impl<'a> RawEvent<'a> {
    fn clear(&mut self) {
        let empty = Raw::default();
        (self.phase, self.category, self.name) = (empty, empty, empty);
        (self.pid, self.tid, self.ts, self.dur) = (empty, empty, empty, empty);
        (self.id, self.scope) = (empty, empty);
        self.args.clear();
        self.others.clear();
        self.has_args = false;
        self.has_duplicate = false;
        self.has_trailing_comma = false;
        self.is_unescaped = false;
    }

    /// Parses the object at the cursor; the cursor then stands behind it.
    pub(crate) fn parse(&mut self, cursor: &mut Cursor<'a>, keys: &mut KeyMap) -> Result<(), Stop> {
        self.clear();
        let mut previous = FieldPredictor::START;
        loop {
            let trailing = &mut self.has_trailing_comma;
            match keys.fields.next(cursor, previous, trailing, field_of)? {
                Member::Known(field) => {
                    previous = field;
                    self.parse_field(field, cursor, keys)?;
                }
                Member::Other(key) => {
                    previous = FieldPredictor::OTHER;
                    let value = cursor.value()?;
                    // The binding point is `e` on every flow end and says nothing.
                    if key.bytes != b"bp" {
                        self.has_duplicate |= args::insert(&mut self.others, key, value);
                    }
                }
                Member::End => return Ok(()),
            }
        }
    }

    #[inline]
    fn parse_field(&mut self, field: usize, cursor: &mut Cursor<'a>, keys: &mut KeyMap) -> Result<(), Stop> {
        let slot = match field {
            0 => &mut self.phase,
            1 => &mut self.category,
            2 => &mut self.name,
            3 => &mut self.pid,
            4 => &mut self.tid,
            5 => &mut self.ts,
            6 => &mut self.dur,
            7 => &mut self.id,
            8 => &mut self.scope,
            _ if cursor.next_token()? == b'{' => {
                if self.has_args {
                    self.args.clear();
                    self.has_duplicate = true;
                }
                self.has_args = true;
                return self.args.parse(cursor, keys);
            }
            _ => {
                let key = Raw { kind: Kind::Text, bytes: FIELDS[field] };
                let value = cursor.value()?;
                self.has_duplicate |= args::insert(&mut self.others, key, value);
                return Ok(());
            }
        };
        self.has_duplicate |= slot.kind != Kind::Missing;
        *slot = cursor.value()?;
        Ok(())
    }
}

/// The kind of event that a category stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Op,
    Launch,
    Kernel,
    Memcpy,
    Memset,
    GpuAnnotation,
    Sync,
    Python,
    ProfilerRange,
    /// What runs on an MTIA; names tell kernels, copies and events apart.
    MtiaDevice,
    /// What runs on an HPU, or a call of its runtime.
    Hpu,
    /// A collective, of a device if it says on which stream it ran.
    Collective,
    Span,
}

impl Class {
    /// The class of category `text`, in the spelling of any recorder version and for any device.
    pub(crate) fn of(text: &str) -> Self {
        let text = text.to_ascii_lowercase();
        match text.as_str() {
            "cpu_op" | "operator" | "user_annotation" | "python" => Self::Op,
            "runtime" | "driver" => Self::Launch,
            "kernel" => Self::Kernel,
            "memcpy" => Self::Memcpy,
            "memset" => Self::Memset,
            "mtia_ccp_events" => Self::MtiaDevice,
            "hpu_op" => Self::Hpu,
            "collective_comm" => Self::Collective,
            "cuda_event" => Self::Sync,
            "python_function" => Self::Python,
            "cuda_profiler_range" => Self::ProfilerRange,
            _ => Self::of_any_device(&text),
        }
    }

    /// The class of a category that begins with the name of a device, such as `xpu_driver`.
    fn of_any_device(text: &str) -> Self {
        let endings = [
            ("_runtime", Self::Launch),
            ("_driver", Self::Launch),
            ("_memcpy", Self::Memcpy),
            ("_memset", Self::Memset),
            ("_user_annotation", Self::GpuAnnotation),
            ("_sync", Self::Sync),
        ];
        endings.into_iter().find(|(ending, _)| text.ends_with(ending)).map_or(Self::Span, |(_, class)| class)
    }
}

/// The number of the field that `key` names.
fn field_of(key: &[u8]) -> Option<usize> {
    FIELDS.iter().position(|&field| field == key)
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
    fn keys_may_be_escaped_and_the_last_arguments_count() {
        let text = br#"{"\u0070h": "X", "args": {"a": 1}, "x": 1, "args": {"correl\u0061tion": 2}, "x": 2}"#;
        let mut event = RawEvent::default();
        event.parse(&mut Cursor::new(text, 0), &mut KeyMap::default()).unwrap();
        assert_eq!(event.phase.bytes, b"X");
        assert!(event.args.others.is_empty() && event.has_duplicate);
        assert_eq!(event.args.take(args::Arg::Correlation).bytes, b"2");
        assert_eq!(event.others.len(), 1);
        assert_eq!(event.others[0].1.bytes, b"2");
    }

    #[test]
    fn blanks_that_were_not_learned_are_skipped() {
        let mut keys = KeyMap::default();
        let padding = " ".repeat(64);
        for text in [r#"{"ts":1,"args":{"device":5}}"#, r#"{"ts":1,"args": {"device": 5} }"#] {
            let text = text.to_owned() + &padding;
            let mut event = RawEvent::default();
            event.parse(&mut Cursor::new(text.as_bytes(), 0), &mut keys).unwrap();
            assert_eq!(event.args.take(args::Arg::Device).bytes, b"5", "{text}");
            assert!(event.others.is_empty());
        }
    }

    #[test]
    fn a_quote_inside_a_name_is_a_syntax_error() {
        let text = br#"{"ph": "X", "name": "a"b", "pid": 1}"#;
        let mut event = RawEvent::default();
        assert_eq!(event.parse(&mut Cursor::new(text, 0), &mut KeyMap::default()), Err(Stop::Syntax));
    }
}
