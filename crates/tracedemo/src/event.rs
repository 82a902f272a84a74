//! Events before a layout turns them into text: their shape, and text with holes for their numbers.

use serde_json::Value;

/// What an event is (`ph`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// `X`: a slice with a duration.
    Complete,
    /// `i`: an instant on a thread.
    Instant,
    /// `i`: an instant of the whole trace, without category and arguments.
    GlobalInstant,
    /// `s`: start of a flow.
    FlowStart,
    /// `f`: end of a flow.
    FlowEnd,
    /// `M`: metadata.
    Metadata,
}

/// Kinds of events by `ph` and `cat`, and the table that they belong to.
pub(crate) const KINDS: [(&str, &str); 19] = [
    ("X cpu_op", "ops"),
    ("X user_annotation", "ops"),
    ("X gpu_user_annotation", "gpu_annotations"),
    ("X kernel", "gpu_ops"),
    ("X gpu_memcpy", "gpu_ops"),
    ("X gpu_memset", "gpu_ops"),
    ("X cuda_runtime", "launches"),
    ("X cuda_driver", "launches"),
    ("X cuda_sync", "syncs"),
    ("X python_function", "python"),
    ("i cpu_instant_event", "memory"),
    ("s ac2g", "flows"),
    ("f ac2g", "flows"),
    ("s fwdbwd", "flows"),
    ("f fwdbwd", "flows"),
    ("X overhead", "spans"),
    ("X Trace", "spans"),
    ("i", "instants"),
    ("M", "metadata"),
];

/// Value of an argument.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Arg {
    /// JSON text with a space after each comma and colon.
    Json(String),
    /// A number of the record.
    Hole(Hole),
}

/// An event without its numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) phase: Phase,
    /// `cat`; empty for none.
    pub(crate) category: &'static str,
    /// `name`, free of characters that JSON escapes.
    pub(crate) name: String,
    /// Number that follows the name, as in `ProfilerStep#7`.
    pub(crate) name_number: Option<Hole>,
    /// `pid`; a text for the profiler's own spans.
    pub(crate) pid: Value,
    /// `tid`; the same.
    pub(crate) tid: Value,
    /// `args`, in order; none leaves them out.
    pub(crate) args: Vec<(&'static str, Arg)>,
}

impl Shape {
    /// A slice without arguments.
    pub(crate) fn slice(
        category: &'static str,
        name: &str,
        pid: impl Into<Value>,
        tid: impl Into<Value>,
    ) -> Self {
        let (phase, pid, tid) = (Phase::Complete, pid.into(), tid.into());
        Self { phase, category, name: name.to_owned(), name_number: None, pid, tid, args: Vec::new() }
    }

    /// One end of a flow; the flow's id is the record's value 0.
    pub(crate) fn flow(phase: Phase, category: &'static str, pid: i64, tid: i64) -> Self {
        Self { phase, ..Self::slice(category, category, pid, tid) }
    }

    /// Adds an argument of JSON text.
    #[expect(clippy::needless_pass_by_value, reason = "calls pass literals and temporaries")]
    pub(crate) fn json(mut self, key: &'static str, value: impl ToString) -> Self {
        self.args.push((key, Arg::Json(value.to_string())));
        self
    }

    /// Adds an argument that is a number of the record.
    pub(crate) fn hole(mut self, key: &'static str, hole: Hole) -> Self {
        self.args.push((key, Arg::Hole(hole)));
        self
    }

    /// Place among the [`KINDS`].
    fn kind(&self) -> usize {
        let letter = match self.phase {
            Phase::Complete => "X",
            Phase::Instant | Phase::GlobalInstant => "i",
            Phase::FlowStart => "s",
            Phase::FlowEnd => "f",
            Phase::Metadata => "M",
        };
        let kind = format!("{letter} {}", self.category);
        KINDS.iter().position(|(known, _)| *known == kind.trim_end()).unwrap_or(KINDS.len() - 1)
    }
}

/// Quotes a text that needs no escapes.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

/// A list as Kineto prints it: `[1, 2]`.
pub(crate) fn list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    format!("[{}]", items.join(", "))
}

/// What goes into a hole of a [`Template`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Hole {
    /// Start, as microseconds with three decimals.
    Start,
    /// Duration, as microseconds with three decimals.
    Duration,
    /// One of the record's values.
    Value(u8),
    /// Running number over all events that the profiler's CPU side collects.
    EventIndex,
    /// Those bytes by the record's duration, in GB/s.
    Bandwidth(u64),
}

/// The numbers of one event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    /// Number of its shape in the library.
    pub(crate) shape: u32,
    /// Start, ns.
    pub(crate) start_ns: i64,
    /// Duration, ns.
    pub(crate) dur_ns: i64,
    /// What `Hole::Value` refers to.
    pub(crate) values: [i64; 3],
}

/// Text of an event with holes for its numbers.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    /// Place among the [`KINDS`].
    pub(crate) kind: usize,
    text: Vec<u8>,
    holes: Vec<(usize, Hole)>,
}

impl Template {
    pub(crate) fn new(shape: &Shape) -> Self {
        Self { kind: shape.kind(), text: Vec::new(), holes: Vec::new() }
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
    }

    pub(crate) fn hole(&mut self, hole: Hole) {
        self.holes.push((self.text.len(), hole));
    }

    /// Writes the event with the numbers of `record`.
    pub(crate) fn render(&self, out: &mut Vec<u8>, record: &Record, event_index: &mut i64) {
        let mut from = 0;
        for &(at, hole) in &self.holes {
            out.extend_from_slice(&self.text[from..at]);
            from = at;
            match hole {
                Hole::Start => push_micros(out, record.start_ns),
                Hole::Duration => push_micros(out, record.dur_ns),
                Hole::Value(index) => push_int(out, record.values[usize::from(index)]),
                Hole::EventIndex => {
                    push_int(out, *event_index);
                    *event_index += 1;
                }
                // Kineto prints a double in shortest form.
                Hole::Bandwidth(bytes) => {
                    let bandwidth = bytes as f64 / record.dur_ns as f64;
                    out.extend_from_slice(bandwidth.to_string().as_bytes());
                }
            }
        }
        out.extend_from_slice(&self.text[from..]);
    }
}

fn push_int(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Kineto prints nanoseconds as microseconds with exactly three decimals.
fn push_micros(out: &mut Vec<u8>, ns: i64) {
    assert!(ns >= 0, "the trace starts long after the base time");
    push_int(out, ns / 1000);
    let digit = |divisor: i64| b'0' + (ns / divisor % 10) as u8;
    out.extend_from_slice(&[b'.', digit(100), digit(10), digit(1)]);
}
