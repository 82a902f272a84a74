//! Writes events as a protobuf of Perfetto: packets with track events, in nanoseconds.
//!
//! The numbers of fields are those of Perfetto's `trace_packet.proto`, `track_event.proto`, `track_descriptor.proto`
//! and `debug_annotation.proto`.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::fmt::Write as _;
use std::io::{self, Write};

use arrow_array::{Array, Int64Array, RecordBatch, StringViewArray};
use hashbrown::{HashMap, HashSet};
use serde_json::Value as Json;

use super::columns::{Columns, Value};
use super::part::{Event, Extra, Part};
use super::wire::{push_double, push_message, push_text, push_uint};
use super::writer::BUFFER_BYTES;
use crate::frame::{self, Frame};

/// Number of the only sequence of packets.
const SEQUENCE: u64 = 1;
const TIMESTAMP: u32 = 8;
const SEQUENCE_ID: u32 = 10;
const TRACK_EVENT: u32 = 11;
const INTERNED_DATA: u32 = 12;
const SEQUENCE_FLAGS: u32 = 13;
const TRACK_DESCRIPTOR: u32 = 60;

const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;

/// First number for processes and threads that have none of their own, or that of another.
const FIRST_FREE_NUMBER: u64 = 1 << 30;

/// What is written once and then referred to by number; by the number of its field in `InternedData`.
#[derive(Clone, Copy)]
enum Interned {
    Category = 1,
    Name = 2,
    Argument = 3,
}

/// Where events are drawn.
struct Track {
    uuid: u64,
    /// The number of its process or thread, which no other has.
    number: u64,
    /// Start of the last slice that has begun.
    begun: i64,
    /// Ends of the slices that have begun, from the outermost to the innermost.
    open: Vec<i64>,
}

/// Writes one file of events.
///
/// Slices of a track must nest or be disjoint, and come in the order of their starts from one part to the next.
pub struct ProtobufWriter<W: Write> {
    out: W,
    buffer: Vec<u8>,
    tracks: Vec<Track>,
    /// Positions among the tracks, by where they are drawn.
    places: HashMap<String, usize>,
    /// Where an event is drawn; kept for its memory.
    place: String,
    /// Names of tracks that have no event yet, and their places among their neighbours.
    names: HashMap<String, (String, i64)>,
    interned: [HashMap<String, u64>; 3],
    /// Numbers of threads and of processes.
    numbers: [HashSet<u64>; 2],
    is_first: bool,
}

impl<W: Write> ProtobufWriter<W> {
    /// Begins a file.
    pub fn new(out: W) -> Self {
        Self {
            out,
            buffer: Vec::with_capacity(BUFFER_BYTES + (BUFFER_BYTES >> 2)),
            tracks: Vec::new(),
            places: HashMap::new(),
            place: String::new(),
            names: HashMap::new(),
            interned: Default::default(),
            numbers: Default::default(),
            is_first: true,
        }
    }

    /// Names processes and threads; the name of a process has no thread.
    ///
    /// Columns: `pid` and `tid` or `pid_text` and `tid_text` as events have them, `name` and `order`.
    ///
    /// # Errors
    /// A column is missing.
    pub fn name(&mut self, frame: &Frame) -> frame::Result<()> {
        let [pids, tids, orders] = [frame.array("pid")?, frame.array("tid")?, frame.array("order")?]
            .map(|array: &Int64Array| array.clone());
        let [pid_texts, tid_texts, names] =
            [frame.array("pid_text")?, frame.array("tid_text")?, frame.array("name")?]
                .map(|array: &StringViewArray| array.clone());
        let number = |array: &Int64Array, at: usize| array.is_valid(at).then(|| array.value(at));
        for at in 0..frame.height() {
            let text = |array: &StringViewArray| array.is_valid(at).then(|| array.value(at).to_owned());
            let mut key = String::new();
            push_place(&mut key, text(&pid_texts).as_deref(), number(&pids, at));
            let (tid_text, tid) = (text(&tid_texts), number(&tids, at));
            if tid_text.is_some() || tid.is_some() {
                push_place(&mut key, tid_text.as_deref(), tid);
            }
            if let Some(name) = text(&names) {
                self.names.insert(key, (name, number(&orders, at).unwrap_or(i64::MAX)));
            }
        }
        Ok(())
    }

    /// Writes the events of `batches` in order of their starts; `extras` are in order of their rows.
    ///
    /// # Errors
    /// When a batch has columns that are not events', as invalid input; when writing fails.
    pub fn write(&mut self, batches: &[RecordBatch], extras: &[Extra]) -> io::Result<()> {
        let part = Part::new(batches, extras)?;
        // What lasts longer is around what begins with it.
        let start = |(columns, at): (&Columns, usize), row: u32| {
            (columns.number("ts", at), Reverse(columns.number("dur", at)), row)
        };
        for event in part.events(start) {
            self.event(&event);
            if self.buffer.len() >= BUFFER_BYTES {
                self.out.write_all(&self.buffer)?;
                self.buffer.clear();
            }
        }
        Ok(())
    }

    /// Ends the file and hands back what was written to.
    ///
    /// # Errors
    /// When writing fails.
    pub fn finish(mut self) -> io::Result<W> {
        for track in 0..self.tracks.len() {
            self.end_slices(track, i64::MAX);
        }
        self.out.write_all(&self.buffer)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn event(&mut self, event: &Event<'_>) {
        let Event { columns, at, .. } = *event;
        let start = columns.number("ts", at).unwrap_or_default();
        let phase = columns.text("ph", at).and_then(|phase| phase.bytes().next()).unwrap_or(b'X');
        if phase == b'M' {
            // Names are those of the tracks.
            return;
        }
        let mut place = std::mem::take(&mut self.place);
        place.clear();
        push_place(&mut place, columns.text("pid", at), columns.number("pid", at));
        let process = place.len();
        let of_process = phase == b'i' && columns.text("s", at).is_some_and(|scope| scope != "t");
        if phase != b'C' && !of_process {
            push_place(&mut place, columns.text("tid", at), columns.number("tid", at));
        }
        let track = self.track(&place, process);
        self.place = place;
        match phase {
            b'C' => self.counters(event, track, start),
            b'X' => {
                self.end_slices(track, start);
                self.track_event(track, start, SLICE_BEGIN, event);
                let end = start.saturating_add(columns.number("dur", at).unwrap_or_default());
                self.tracks[track].begun = start;
                self.tracks[track].open.push(end);
            }
            b'B' => self.track_event(track, start, SLICE_BEGIN, event),
            b'E' => self.track_event(track, start, SLICE_END, event),
            b'i' | b'I' | b'R' => self.track_event(track, start, INSTANT, event),
            phase => self.legacy_event(track, start, phase, event),
        }
    }

    /// The position of the track of a place, whose first bytes are those of its process; a new track is described.
    fn track(&mut self, place: &str, process: usize) -> usize {
        if let Some(&known) = self.places.get(place) {
            return known;
        }
        let (above, own) = place.split_at(if process < place.len() { process } else { 0 });
        let process = (!above.is_empty()).then(|| {
            let process = self.track(above, process);
            self.tracks[process].number
        });
        let own = &own[1..];
        let number = self.free_number(own, process.is_none());
        let (name, order) = self.names.remove(place).unwrap_or_else(|| (own.to_owned(), i64::MAX));
        let order = u64::from(order.clamp(0, i32::MAX.into()).unsigned_abs() as u32);
        let track = self.add_track(place.to_owned(), number);
        let uuid = self.tracks[track].uuid;
        self.describe(uuid, |out| match process {
            None => push_message(out, 3, |out| {
                push_uint(out, 1, number);
                push_text(out, 6, &name);
                push_uint(out, 3, order);
            }),
            Some(process) => push_message(out, 4, |out| {
                push_uint(out, 1, process);
                push_uint(out, 2, number);
                push_text(out, 5, &name);
                push_uint(out, 3, order);
            }),
        });
        track
    }

    /// The number of a process or a thread: its own, if it has one that no other has.
    fn free_number(&mut self, own: &str, is_process: bool) -> u64 {
        let taken = &mut self.numbers[usize::from(is_process)];
        let own = own.parse().ok().filter(|number| (1..FIRST_FREE_NUMBER).contains(number));
        let number = own.filter(|number| !taken.contains(number));
        let number = number.unwrap_or(FIRST_FREE_NUMBER + taken.len() as u64);
        taken.insert(number);
        number
    }

    fn add_track(&mut self, place: String, number: u64) -> usize {
        let track = self.tracks.len();
        // 0 is the root.
        self.tracks.push(Track { uuid: track as u64 + 1, number, begun: i64::MIN, open: Vec::new() });
        self.places.insert(place, track);
        track
    }

    fn describe(&mut self, uuid: u64, write: impl FnOnce(&mut Vec<u8>)) {
        self.packet(|out| {
            push_message(out, TRACK_DESCRIPTOR, |out| {
                push_uint(out, 1, uuid);
                write(out);
            });
        });
    }

    /// Ends the slices of a track that are over by a time.
    fn end_slices(&mut self, track: usize, by: i64) {
        let uuid = self.tracks[track].uuid;
        while let Some(end) = self.tracks[track].open.pop_if(|end| *end <= by) {
            self.packet(|out| {
                push_uint(out, TIMESTAMP, end as u64);
                push_message(out, TRACK_EVENT, |out| {
                    push_uint(out, 9, SLICE_END);
                    push_uint(out, 11, uuid);
                });
            });
        }
    }

    fn packet(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        // The first packet begins the numbering of names, on which the others rely.
        let flags = if std::mem::take(&mut self.is_first) { 1 } else { 2 };
        push_message(&mut self.buffer, 1, |out| {
            push_uint(out, SEQUENCE_ID, SEQUENCE);
            push_uint(out, SEQUENCE_FLAGS, flags);
            write(out);
        });
    }

    fn track_event(&mut self, track: usize, at: i64, kind: u64, event: &Event<'_>) {
        self.event_packet(track, at, event, |out| push_uint(out, 9, kind));
    }

    /// An event of the kinds that Perfetto reads as it does those of Chrome: arrows, and slices on no thread.
    fn legacy_event(&mut self, track: usize, at: i64, phase: u8, event: &Event<'_>) {
        let id = event.id();
        // An arrow that ends before its slice leads to the next one.
        let Track { begun, open, .. } = &self.tracks[track];
        let is_between = *begun <= at && open.iter().all(|&end| end < at);
        let binds = event.columns.text("bp", event.at) == Some("e") && !is_between;
        self.event_packet(track, at, event, |out| {
            push_message(out, 6, |out| {
                push_uint(out, 2, phase.into());
                push_uint(out, 6, id);
                if binds {
                    push_uint(out, 12, 1);
                }
            });
        });
    }

    fn event_packet(&mut self, track: usize, at: i64, event: &Event<'_>, write: impl FnOnce(&mut Vec<u8>)) {
        let uuid = self.tracks[track].uuid;
        let mut new = Vec::new();
        let category =
            event.columns.text("cat", event.at).map(|text| self.number(Interned::Category, text, &mut new));
        let name =
            event.columns.text("name", event.at).map(|text| self.number(Interned::Name, text, &mut new));
        let mut args = Vec::new();
        for (name, value) in event.columns.args(event.at) {
            let number = self.number(Interned::Argument, name, &mut new);
            push_message(&mut args, 4, |out| push_annotation(out, number, value));
        }
        for (name, value) in event.further() {
            let number = self.number(Interned::Argument, &name, &mut new);
            push_message(&mut args, 4, |out| push_annotation(out, number, Value::Json(&value)));
        }
        self.packet(|out| {
            push_uint(out, TIMESTAMP, at as u64);
            if !new.is_empty() {
                push_message(out, INTERNED_DATA, |out| out.extend_from_slice(&new));
            }
            push_message(out, TRACK_EVENT, |out| {
                push_uint(out, 11, uuid);
                category.into_iter().for_each(|number| push_uint(out, 3, number));
                name.into_iter().for_each(|number| push_uint(out, 10, number));
                write(out);
                out.extend_from_slice(&args);
            });
        });
    }

    /// The number of a text; a new one is appended to what the next packet introduces.
    fn number(&mut self, kind: Interned, text: &str, new: &mut Vec<u8>) -> u64 {
        let known = &mut self.interned[kind as usize - 1];
        if let Some(&number) = known.get(text) {
            return number;
        }
        let number = known.len() as u64 + 1;
        known.insert(text.to_owned(), number);
        push_message(new, kind as u32, |out| {
            push_uint(out, 1, number);
            push_text(out, 2, text);
        });
        number
    }

    /// The values of a counter, each on a track of its own.
    fn counters(&mut self, event: &Event<'_>, process: usize, at: i64) {
        let title = event.columns.text("name", event.at).unwrap_or_default();
        let parent = self.tracks[process].uuid;
        let args = event.columns.args(event.at).map(|(name, value)| (Cow::Borrowed(name), real(value)));
        let further = event.further().map(|(name, value)| (name, real(Value::Json(&value))));
        for (name, value) in args.chain(further) {
            let Some(value) = value else { continue };
            let place = format!("{process}\0{title}\0{name}");
            let uuid = match self.places.get(&place) {
                Some(&track) => self.tracks[track].uuid,
                None => {
                    let track = self.add_track(place, 0);
                    let uuid = self.tracks[track].uuid;
                    let name = if name == "value" { title.to_owned() } else { format!("{title} {name}") };
                    self.describe(uuid, |out| {
                        push_text(out, 2, &name);
                        push_uint(out, 5, parent);
                        push_message(out, 8, |_| {});
                    });
                    uuid
                }
            };
            self.packet(|out| {
                push_uint(out, TIMESTAMP, at as u64);
                push_message(out, TRACK_EVENT, |out| {
                    push_uint(out, 9, COUNTER);
                    push_uint(out, 11, uuid);
                    push_double(out, 44, value);
                });
            });
        }
    }
}

impl Event<'_> {
    /// Arguments in no column, as JSON text.
    fn further(&self) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        let members = self.columns.members(self.at).map(|members| format!("{{{members}}}"));
        let members: serde_json::Map<String, Json> =
            members.and_then(|members| serde_json::from_str(&members).ok()).unwrap_or_default();
        let members = members.into_iter().map(|(name, value)| (name.into(), value.to_string().into()));
        members.chain(self.extras.iter().map(|extra| (Cow::from(&extra.key), Cow::from(&extra.value))))
    }

    /// What both ends of an arrow, or of a slice on no thread, share.
    fn id(&self) -> u64 {
        let recorded = self.columns.number("id", self.at).map(|id| id as u64);
        let text = self.extras.iter().find(|extra| extra.is_field && extra.key == "id");
        // FNV-1a.
        let hash = |text: &str| {
            text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            })
        };
        recorded.or_else(|| text.map(|extra| hash(&extra.value))).unwrap_or_default()
    }
}

/// Appends where something is drawn: a text, or else a number.
fn push_place(key: &mut String, text: Option<&str>, number: Option<i64>) {
    // Writing into memory cannot fail.
    let _ = match (text, number) {
        (Some(text), _) => write!(key, "\0{text}"),
        (None, Some(number)) => write!(key, "\0{number}"),
        (None, None) => write!(key, "\0events"),
    };
}

/// Appends the members of an annotation.
fn push_annotation(out: &mut Vec<u8>, name: u64, value: Value<'_>) {
    push_uint(out, 1, name);
    match value {
        Value::Bool(is_true) => push_uint(out, 2, is_true.into()),
        Value::Uint(number) => push_uint(out, 3, number),
        Value::Int(number) => push_uint(out, 4, number as u64),
        Value::Real(number) => push_double(out, 5, number),
        Value::Text(text) => push_text(out, 6, text),
        Value::Json(text) => match serde_json::from_str(text) {
            Ok(Json::Bool(is_true)) => push_uint(out, 2, is_true.into()),
            Ok(Json::Number(number)) => match number.as_i64() {
                Some(whole) => push_uint(out, 4, whole as u64),
                None => push_double(out, 5, number.as_f64().unwrap_or(f64::NAN)),
            },
            Ok(Json::String(text)) => push_text(out, 6, &text),
            Ok(Json::Array(_) | Json::Object(_)) => push_text(out, 9, text),
            Ok(Json::Null) | Err(_) => push_text(out, 6, text),
        },
    }
}

/// The value of a counter; none for what is no number.
fn real(value: Value<'_>) -> Option<f64> {
    match value {
        Value::Int(number) => Some(number as f64),
        Value::Uint(number) => Some(number as f64),
        Value::Real(number) => Some(number),
        Value::Json(text) => serde_json::from_str(text).ok(),
        Value::Bool(_) | Value::Text(_) => None,
    }
}
