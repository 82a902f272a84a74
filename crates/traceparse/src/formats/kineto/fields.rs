//! Reading of single fields of an event, with a count of everything that is not as it should be.

use std::sync::PoisonError;

use super::args::Arg;
use super::number;
use super::rows::Add;
use super::scan::{Kind, Raw};
use super::text::Form;
use super::text::Repairs;
use crate::schema::Symbol;
use crate::stats::Code;
use crate::time::{LONGEST_NS, TIMES_NS, micros_to_ns};
use crate::tracks::Ident;

impl<'a> Add<'_, '_, '_, 'a> {
    pub(super) fn time(&mut self, raw: Raw<'a>) -> Option<i64> {
        match raw.kind {
            Kind::Bare => {}
            Kind::Text => self.note(Code::NumberAsText),
            _ => return None,
        }
        let ns = micros_to_ns(raw.bytes, self.builder.habits.fraction);
        // A fraction of two digits tells how the recorder pads.
        if let [.., b'.', first, second] = raw.bytes {
            self.batch.short_fractions.0 += u64::from(*second == b'0');
            self.batch.short_fractions.1 += u64::from(*first == b'0');
        }
        ns.filter(|ns| TIMES_NS.contains(ns))
    }

    pub(super) fn duration(&mut self) -> Option<i64> {
        let raw = std::mem::take(&mut self.event.dur);
        match self.time(raw) {
            Some(ns) if (0..=LONGEST_NS).contains(&ns) => return Some(ns),
            Some(..0) => self.note(Code::NegativeDuration),
            _ => self.note(Code::MissingDuration),
        }
        None
    }

    pub(super) fn track(&mut self) -> u32 {
        let (pid, tid) = (self.event.pid, self.event.tid);
        let (last_pid, last_tid, track) = &self.builder.last_track;
        let is_plain = pid.kind == Kind::Bare && tid.kind == Kind::Bare;
        if is_plain && *track != u32::MAX && last_pid == pid.bytes && last_tid == tid.bytes {
            return *track;
        }
        let key = (self.ident(pid), self.ident(tid));
        let shared = self.builder.shared_tracks;
        let track = *self
            .builder
            .tracks
            .entry(key)
            .or_insert_with(|| shared.lock().unwrap_or_else(PoisonError::into_inner).number(key));
        // Only numbers: reading a damaged id is a finding each time it occurs.
        if is_plain && matches!(key, (Ident::Int(_), Ident::Int(_))) {
            let last = &mut self.builder.last_track;
            last.0.clear();
            last.0.extend_from_slice(pid.bytes);
            last.1.clear();
            last.1.extend_from_slice(tid.bytes);
            last.2 = track;
        }
        track
    }

    pub(super) fn ident(&mut self, raw: Raw<'a>) -> Ident {
        if raw.is_null() {
            return Ident::Missing;
        }
        match number::integer(&raw) {
            Some(value) => Ident::Int(value),
            None => self.text(raw).or_else(|| self.json_value(raw)).map_or(Ident::Missing, Ident::Text),
        }
    }

    pub(super) fn device_and_stream(&mut self) -> (Option<i32>, Option<i64>) {
        let pid = number::integer(&self.event.pid);
        let device = self.small(Arg::Device).or(pid.and_then(|pid| i32::try_from(pid).ok()));
        if (pid.is_none() || device.map(i64::from) != pid) && !self.event.pid.is_null() {
            let process = self.ident(self.event.pid);
            self.batch.elsewhere.push((self.row, process));
        }
        let stream = self.int(Arg::Stream).or_else(|| {
            let tid = self.event.tid;
            // The 2021 layout writes `stream 7`.
            let digits = tid.bytes.strip_prefix(b"stream ").unwrap_or(tid.bytes);
            number::integer(&Raw { kind: tid.kind, bytes: digits })
        });
        (device, stream)
    }

    pub(super) fn integer(&mut self, raw: Raw<'a>) -> Option<i64> {
        if raw.is_null() {
            return None;
        }
        let value = number::integer(&raw);
        if value.is_none() {
            self.note(Code::BadNumber);
        } else if raw.kind == Kind::Text {
            self.note(Code::NumberAsText);
        }
        value
    }

    #[inline]
    pub(super) fn int(&mut self, arg: Arg) -> Option<i64> {
        let raw = self.event.args.take(arg);
        if raw.kind == Kind::Missing { None } else { self.integer(raw) }
    }

    /// An integer that is small in every known trace, and kept in 32 bits.
    #[inline]
    pub(super) fn small(&mut self, arg: Arg) -> Option<i32> {
        let wide = self.int(arg)?;
        let value = i32::try_from(wide).ok();
        if value.is_none() {
            self.note(Code::BadNumber);
        }
        value
    }

    /// Three whole numbers as JSON `[x, y, z]`, which some tools write as a text; anything else is left.
    #[inline]
    pub(super) fn triple(&mut self, arg: Arg) -> Option<[i32; 3]> {
        let raw = self.event.args.take(arg);
        let value = number::triple(raw.bytes);
        if value.is_none() && !raw.is_null() {
            self.event.args.put_back(arg);
        }
        value
    }

    pub(super) fn identifier(&mut self, arg: Arg) -> Option<u64> {
        self.parsed(arg, number::identifier)
    }

    pub(super) fn boolean(&mut self, arg: Arg) -> Option<bool> {
        self.parsed(arg, number::boolean)
    }

    fn parsed<T>(&mut self, arg: Arg, parse: impl Fn(&Raw<'a>) -> Option<T>) -> Option<T> {
        let raw = self.event.args.take(arg);
        let value = parse(&raw);
        if value.is_none() && !raw.is_null() {
            self.note(Code::BadNumber);
        }
        value
    }

    pub(super) fn real(&mut self, arg: Arg) -> Option<f64> {
        let raw = self.event.args.take(arg);
        if raw.is_null() {
            return None;
        }
        let value = number::real(&raw);
        if value.is_none() {
            let is_word = raw.bytes.iter().any(u8::is_ascii_alphabetic);
            self.note(if is_word { Code::BareNonFinite } else { Code::BadNumber });
        }
        value
    }

    #[inline]
    pub(super) fn symbol(&mut self, bytes: &[u8], form: Form) -> Option<Symbol> {
        let (symbol, repairs) = self.builder.interner.intern(bytes, form);
        if !repairs.is_empty() {
            for code in repairs.codes() {
                self.note(code);
            }
            if repairs.contains(Repairs::DEPTH) {
                return None;
            }
        }
        Some(symbol)
    }

    /// The text of a string token.
    #[inline]
    pub(super) fn text(&mut self, raw: Raw<'a>) -> Option<Symbol> {
        match raw.kind {
            Kind::Text | Kind::EscapedText => self.symbol(raw.bytes, Form::Text),
            _ => None,
        }
    }

    /// An argument that some recorders write as text and others as JSON; an empty text is null.
    pub(super) fn text_or_json(&mut self, arg: Arg) -> Option<Symbol> {
        let raw = self.event.args.take(arg);
        if raw.bytes.is_empty() || raw.is_null() {
            return None;
        }
        self.text(raw).or_else(|| self.json_value(raw))
    }

    /// An argument whose value is kept as JSON text.
    #[inline]
    pub(super) fn json(&mut self, arg: Arg) -> Option<Symbol> {
        let raw = self.event.args.take(arg);
        match raw.kind {
            Kind::Nested => self.symbol(raw.bytes, Form::Json),
            _ if raw.is_null() => None,
            _ => self.json_value(raw),
        }
    }

    /// Any value as JSON text.
    pub(super) fn json_value(&mut self, raw: Raw<'a>) -> Option<Symbol> {
        match raw.kind {
            Kind::Missing => None,
            Kind::Bare | Kind::Nested => self.symbol(raw.bytes, Form::Json),
            Kind::Text | Kind::EscapedText => {
                let mut quoted = Vec::with_capacity(raw.bytes.len() + 2);
                quoted.push(b'"');
                quoted.extend_from_slice(raw.bytes);
                quoted.push(b'"');
                self.symbol(&quoted, Form::Json)
            }
        }
    }
}
