//! Turns one event into a row of the table it belongs to.

use std::collections::HashMap;
use std::sync::Mutex;

use super::args::{Arg, KeyMap};
use super::event::{Class, RawEvent};
use super::number;
use super::scan::{Kind, Raw};
use super::text::{Backslashes, Form, decode_string};
use crate::error::{Error, ErrorKind, Result};
use crate::formats::interner::Interner;
use crate::metric_names::{gpu_of_process, unit};
use crate::schema::*;
use crate::stats::{Code, Stats};
use crate::time::{Fraction, NO_START};
use crate::tracks::{Ident, TrackKey, TrackTable};

/// Tables and findings of a run of consecutive events; rows are numbered from 0.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) tables: Tables,
    pub(crate) stats: Stats,
    /// Events so far, dropped ones included: the number of the next row.
    pub(crate) rows: u32,
    /// Evidence for [`Fraction::Unpadded`]: short fractions that end in 0, and ones that begin with 0.
    pub(crate) short_fractions: (u64, u64),
    /// Those in names.
    pub(crate) backslashes: Backslashes,
    /// The processes of events of GPUs, by row, where a process is not the GPU's number.
    pub(crate) elsewhere: Vec<(u32, Ident)>,
}

impl Batch {
    /// Empties the batch and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.tables.clear();
        self.stats = Stats::default();
        self.rows = 0;
        self.short_fractions = (0, 0);
        self.backslashes = Backslashes::default();
        self.elsewhere.clear();
    }

    /// Appends the rows of `next`, renumbered to their place behind those of `self`.
    pub(crate) fn append(&mut self, next: &mut Self) -> Result<()> {
        let Some(rows) = self.rows.checked_add(next.rows) else {
            let message = "has more than 4,294,967,295 events. Split it by rank or by time";
            return Err(Error::new(ErrorKind::Damaged, message));
        };
        next.tables.shift_rows(self.rows);
        self.elsewhere.extend(next.elsewhere.drain(..).map(|(row, process)| (row + self.rows, process)));
        self.tables.append(&mut next.tables);
        self.rows = rows;
        self.short_fractions.0 += next.short_fractions.0;
        self.short_fractions.1 += next.short_fractions.1;
        self.backslashes.add(next.backslashes);
        self.stats.merge(&next.stats);
        Ok(())
    }

    /// How the recorder wrote what is in the batch.
    pub(crate) fn habits(&self) -> Habits {
        let (short_zero, leading_zero) = self.short_fractions;
        let is_unpadded = short_zero > 0 && leading_zero == 0;
        Habits {
            fraction: if is_unpadded { Fraction::Unpadded } else { Fraction::Decimal },
            escapes_nothing: self.backslashes.mislead(),
        }
    }

    /// Counts an element that is in no table.
    pub(crate) fn count_dropped(&mut self) {
        self.rows += 1;
        self.stats.seen += 1;
        self.stats.dropped += 1;
    }
}

/// What only the whole of a trace tells of how it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Habits {
    pub(crate) fraction: Fraction,
    /// Whether a backslash in a name stands for itself.
    pub(crate) escapes_nothing: bool,
}

/// What all threads that read one trace share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) symbols: Mutex<SymbolTable>,
    pub(crate) tracks: Mutex<TrackTable>,
}

/// Turns events into rows; one per thread.
pub(crate) struct RowBuilder<'s> {
    pub(crate) keys: KeyMap,
    pub(super) interner: Interner<'s, Form>,
    pub(super) shared_tracks: &'s Mutex<TrackTable>,
    pub(super) tracks: HashMap<TrackKey, u32>,
    /// Bytes of the last pid and tid, and their track; `u32::MAX` for none.
    pub(super) last_track: (Vec<u8>, Vec<u8>, u32),
    classes: HashMap<Symbol, Class>,
    last_category: Option<(Symbol, Class)>,
    pub(super) fixed: FixedSymbols,
    pub(super) habits: Habits,
}

/// Symbols of the texts that the reader itself puts into tables.
pub(super) struct FixedSymbols {
    pub(super) kernel: Symbol,
    pub(super) memcpy: Symbol,
    pub(super) memset: Symbol,
    pub(super) op: Symbol,
    pub(super) gpu_op: Symbol,
    memory: Symbol,
    out_of_memory: Symbol,
    slice: Symbol,
}

impl<'s> RowBuilder<'s> {
    pub(crate) fn new(shared: &'s Shared, habits: Habits) -> Self {
        let interner = Interner::new(&shared.symbols);
        let texts = ["kernel", "memcpy", "memset", "op", "gpu_op", "[memory]", "[OutOfMemory]", "X"];
        let [kernel, memcpy, memset, op, gpu_op, memory, out_of_memory, slice] =
            texts.map(|text| interner.intern_clean(text));
        let fixed = FixedSymbols { kernel, memcpy, memset, op, gpu_op, memory, out_of_memory, slice };
        Self {
            keys: KeyMap::default(),
            interner,
            shared_tracks: &shared.tracks,
            tracks: HashMap::new(),
            last_track: (Vec::new(), Vec::new(), u32::MAX),
            classes: HashMap::new(),
            last_category: None,
            fixed,
            habits,
        }
    }

    /// Adds the row of `event`, which begins at byte `offset`, to `batch`; or counts its loss.
    pub(crate) fn add(&mut self, event: &mut RawEvent<'_>, batch: &mut Batch, offset: u64) {
        let row = batch.rows;
        batch.rows += 1;
        batch.stats.seen += 1;
        let mut add = Add { builder: self, event, batch, offset, row };
        if add.dispatch() {
            add.batch.stats.kept += 1;
        } else {
            add.batch.stats.dropped += 1;
        }
    }
}

/// One event on its way into the tables.
pub(super) struct Add<'b, 's, 'e, 'a> {
    pub(super) builder: &'b mut RowBuilder<'s>,
    pub(super) event: &'e mut RawEvent<'a>,
    pub(super) batch: &'b mut Batch,
    offset: u64,
    pub(super) row: u32,
}

/// The fields that every event has.
pub(super) struct Head {
    pub(super) name: Option<Symbol>,
    pub(super) category: Option<Symbol>,
    pub(super) start_ns: i64,
}

/// What decides which table an event belongs to.
enum EventKind {
    Memory,
    Slice(Class),
    Instant,
    Flow,
    Counter,
    Span,
}

impl<'a> Add<'_, '_, '_, 'a> {
    pub(super) fn note(&mut self, code: Code) {
        self.batch.stats.note(code, Some(self.offset));
    }

    /// Adds the row; false if the event had to be dropped.
    fn dispatch(&mut self) -> bool {
        if self.event.has_duplicate || self.event.args.has_duplicate {
            self.note(Code::DuplicateKey);
        }
        if self.event.has_trailing_comma || self.event.args.has_trailing_comma {
            self.note(Code::TrailingComma);
        }
        // `convert --to perfetto` draws what overlaps elsewhere, and says where it was.
        let others = &mut self.event.args.others;
        if let Some(at) = others.iter().position(|(key, _)| key.bytes == b"recorded tid") {
            self.event.tid = others.remove(at).1;
        }
        let phase = self.phase();
        let start_ns = self.time(self.event.ts);
        if phase == Some(b'M') {
            self.metadata(start_ns);
            self.extra_args();
            return true;
        }
        let (category, class) = self.category();
        let name = self.name();
        let kind = self.kind_of_event(phase, name, class);
        self.batch.backslashes.invalid += u64::from(self.event.is_unescaped);
        let is_work = matches!(kind, EventKind::Slice(Class::Kernel | Class::Memcpy | Class::Memset));
        if start_ns.is_none() {
            self.note(if is_work { Code::UntimedWork } else { Code::MissingTime });
        }
        let Some(start_ns) = start_ns.or(is_work.then_some(NO_START)) else { return false };
        if phase.is_none() {
            self.note(Code::MissingPhase);
        }
        if name.is_none() {
            self.note(Code::MissingName);
        }
        let head = Head { name, category, start_ns };
        match kind {
            EventKind::Memory => self.memory(&head),
            EventKind::Slice(class) => self.slice(class, &head),
            EventKind::Instant => self.instant(&head),
            EventKind::Flow => self.flow(&head),
            EventKind::Counter => self.counters(&head, None),
            EventKind::Span => self.span(&head, None),
        }
        self.extra_args();
        true
    }

    fn kind_of_event(&self, phase: Option<u8>, name: Option<Symbol>, class: Class) -> EventKind {
        let fixed = &self.builder.fixed;
        let is_memory = name == Some(fixed.memory) || name == Some(fixed.out_of_memory);
        match phase {
            Some(b'X' | b'i' | b'I') if is_memory => EventKind::Memory,
            Some(b'X') | None => EventKind::Slice(self.class_of_slice(class)),
            Some(b'i' | b'I' | b'R') => EventKind::Instant,
            Some(b's' | b't' | b'f') => EventKind::Flow,
            Some(b'C') => EventKind::Counter,
            Some(_) => EventKind::Span,
        }
    }

    /// The character that `ph` holds, NUL for a longer text; `None` without any.
    fn phase(&self) -> Option<u8> {
        let raw = self.event.phase;
        match (raw.kind, raw.bytes) {
            (Kind::Text, [single]) => Some(*single),
            (Kind::Text, []) => None,
            (Kind::Text, _) => Some(0),
            (Kind::EscapedText, _) => match decode_string(raw.bytes).0.as_bytes() {
                [single] => Some(*single),
                _ => Some(0),
            },
            _ => None,
        }
    }

    fn category(&mut self) -> (Option<Symbol>, Class) {
        let raw = std::mem::take(&mut self.event.category);
        if raw.is_null() {
            return (None, Class::Op);
        }
        let Some(symbol) = self.text(raw).or_else(|| self.json_value(raw)) else {
            return (None, Class::Span);
        };
        if let Some((known, class)) = self.builder.last_category
            && known == symbol
        {
            return (Some(symbol), class);
        }
        let interner = &self.builder.interner;
        let class =
            *self.builder.classes.entry(symbol).or_insert_with(|| Class::of(interner.symbols().text(symbol)));
        self.builder.last_category = Some((symbol, class));
        (Some(symbol), class)
    }

    fn name(&mut self) -> Option<Symbol> {
        let name = self.event.name;
        if name.kind != Kind::EscapedText || self.event.is_unescaped {
            return self.text(name);
        }
        self.batch.backslashes.count(name.bytes);
        let is_unescaped = self.builder.habits.escapes_nothing;
        self.symbol(name.bytes, if is_unescaped { Form::Unescaped } else { Form::Text })
    }

    fn memory(&mut self, head: &Head) {
        // `finished: false` stands on every memory event of some recorders and means nothing;
        // one recorder writes them as slices that last to the end of the window, all others as
        // instants of their thread.
        self.event.args.take(Arg::Finished);
        (self.event.dur, self.event.scope) = (Raw::default(), Raw::default());
        let row = MemoryRow {
            row: self.row,
            name: head.name,
            track: self.track(),
            start_ns: head.start_ns,
            address: self.identifier(Arg::Address),
            bytes: self.int(Arg::MemoryBytes),
            total_allocated_bytes: self.int(Arg::TotalAllocated),
            total_reserved_bytes: self.int(Arg::TotalReserved),
            device_type: self.small(Arg::DeviceType),
            device_id: self.small(Arg::DeviceId),
            call_stack: self.text_or_json(Arg::CallStack),
            event_index: self.int(Arg::EventIndex),
            ..Default::default()
        };
        self.batch.tables.memory.push(row);
    }

    fn instant(&mut self, head: &Head) {
        let scope = std::mem::take(&mut self.event.scope);
        let scope = self.text(scope).or_else(|| if scope.is_null() { None } else { self.json_value(scope) });
        let row = InstantRow {
            row: self.row,
            name: head.name,
            category: head.category,
            scope,
            track: self.track(),
            start_ns: head.start_ns,
        };
        self.batch.tables.instants.push(row);
    }

    fn flow(&mut self, head: &Head) {
        let id = std::mem::take(&mut self.event.id);
        let id = self.integer(id);
        let kind = self.kind();
        let row = FlowRow {
            row: self.row,
            id,
            name: head.name,
            category: head.category,
            kind,
            track: self.track(),
            start_ns: head.start_ns,
        };
        self.batch.tables.flows.push(row);
    }

    pub(super) fn span(&mut self, head: &Head, dur_ns: Option<i64>) {
        let kind = self.kind();
        let row = SpanRow {
            row: self.row,
            name: head.name,
            category: head.category,
            kind,
            track: self.track(),
            start_ns: head.start_ns,
            dur_ns,
            correlation: self.int(Arg::Correlation),
            external_id: self.int(Arg::ExternalId),
            ..Default::default()
        };
        self.batch.tables.spans.push(row);
    }

    /// The phase as text; an event without one counts as a slice.
    fn kind(&mut self) -> Symbol {
        self.text(self.event.phase).unwrap_or(self.builder.fixed.slice)
    }

    fn metadata(&mut self, start_ns: Option<i64>) {
        let name = self.text(self.event.name);
        if name.is_none() {
            self.note(Code::MissingName);
        }
        let value = match self.event.args.others.first().copied() {
            Some((_, value)) => {
                self.event.args.others.remove(0);
                self.text(value).or_else(|| self.json_value(value))
            }
            None => None,
        };
        let row = MetadataRow { row: self.row, name, track: self.track(), start_ns, value };
        self.batch.tables.metadata.push(row);
    }

    /// One row per argument; an event without arguments gets one row without a value.
    pub(super) fn counters(&mut self, head: &Head, dur_ns: Option<i64>) {
        let mut values = std::mem::take(&mut self.event.args.others);
        self.event.args.drain(|key, value| values.push((key, value)));
        if values.is_empty() {
            values.push((Raw { kind: Kind::Text, bytes: b"" }, Raw::default()));
        }
        let track = self.track();
        let device = self.sampled_gpu();
        // Samples of GPU metrics are one value each, whose name is that of the event.
        let unit = device.and(head.name).and_then(|name| self.unit(name));
        values.retain(|&(key, raw)| {
            let value = number::real(&raw);
            let is_lost = value.is_none() && !raw.is_null();
            if is_lost {
                self.note(Code::BadNumber);
            }
            let Some(counter) = self.text(key) else { return true };
            let row = CounterRow {
                row: self.row,
                name: head.name,
                category: head.category,
                track,
                device,
                start_ns: head.start_ns,
                dur_ns,
                counter,
                value,
                unit,
            };
            self.batch.tables.counters.push(row);
            // What is no number stays an argument.
            is_lost
        });
        self.event.args.others = values;
    }

    /// The GPU whose metrics were sampled, which the process of the event names.
    fn sampled_gpu(&self) -> Option<i32> {
        let process = self.event.pid;
        (process.kind == Kind::Text)
            .then(|| std::str::from_utf8(process.bytes).ok())
            .flatten()
            .and_then(gpu_of_process)
    }

    /// The unit that the name of a sampled metric tells.
    fn unit(&self, name: Symbol) -> Option<Symbol> {
        let interner = &self.builder.interner;
        let found = unit(interner.symbols().text(name)).map(str::to_owned)?;
        Some(interner.intern_clean(&found))
    }

    pub(super) fn collective(&mut self, source: Symbol) {
        let row = CollectiveRow {
            row: self.row,
            source,
            name: self.text_or_json(Arg::CollectiveName),
            dtype: self.text_or_json(Arg::DType),
            in_elements: self.int(Arg::InElements),
            out_elements: self.int(Arg::OutElements),
            in_split: self.text_or_json(Arg::InSplit),
            out_split: self.text_or_json(Arg::OutSplit),
            group_size: self.int(Arg::GroupSize),
            process_group: self.text_or_json(Arg::GroupName),
            process_group_description: self.text_or_json(Arg::GroupDescription),
            process_group_ranks: self.text_or_json(Arg::GroupRanks),
            rank: self.int(Arg::Rank),
            source_rank: self.int(Arg::SourceRank),
            destination_rank: self.int(Arg::DestinationRank),
            sequence: self.int(Arg::CollectiveSequence),
            comms_id: self.identifier(Arg::CommsId),
            is_async: self.boolean(Arg::IsAsync),
            ..Default::default()
        };
        self.batch.tables.collectives.push(row);
    }

    /// Keeps every argument and every field that no column took.
    fn extra_args(&mut self) {
        let event = &mut *self.event;
        let fields: [(&[u8], Raw<'a>); 4] =
            [(b"cat", event.category), (b"dur", event.dur), (b"id", event.id), (b"s", event.scope)];
        let has_field = fields.iter().any(|(_, raw)| raw.kind != Kind::Missing);
        if !has_field && event.args.is_empty() && event.others.is_empty() {
            return;
        }
        let mut extra: Vec<(Raw<'a>, Raw<'a>)> = Vec::new();
        event.args.drain(|key, value| extra.push((key, value)));
        extra.append(&mut event.args.others);
        for (key, value) in fields.into_iter().filter(|(_, raw)| raw.kind != Kind::Missing) {
            extra.push((Raw { kind: Kind::Text, bytes: key }, value));
        }
        extra.append(&mut event.others);
        for (key, raw) in extra {
            let Some(key) = self.text(key) else { continue };
            let Some(value) = self.json_value(raw) else { continue };
            self.batch.tables.extra_args.push(ExtraArgRow { row: self.row, key, value });
        }
    }
}
