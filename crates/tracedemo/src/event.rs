//! Events before a layout turns them into text: their shape, and text with holes for their numbers.

/// Phase of an event (`ph`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// `X`: a slice with a duration.
    Complete,
    /// `i`: an instant, with its scope.
    Instant(&'static str),
    /// `s`: start of a flow.
    FlowStart,
    /// `f`: end of a flow.
    FlowEnd,
    /// `M`: metadata.
    Metadata,
}

/// Process or thread id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ident {
    /// A number.
    Int(i64),
    /// A text, as for the profiler's own spans.
    Text(&'static str),
}

/// Value of an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Arg {
    /// JSON text with a space after each comma and colon.
    Json(String),
    /// A number of the record.
    Hole(Hole),
}

/// An event without its numbers.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// `ph`.
    pub(crate) phase: Phase,
    /// `cat`; empty for none.
    pub(crate) category: &'static str,
    /// `name`, free of characters that JSON escapes.
    pub(crate) name: String,
    /// Number that follows the name, as in `ProfilerStep#7`.
    pub(crate) name_number: Option<Hole>,
    /// `pid`.
    pub(crate) pid: Ident,
    /// `tid`.
    pub(crate) tid: Ident,
    /// `args`, in order; none leaves them out.
    pub(crate) args: Vec<(&'static str, Arg)>,
}

impl Shape {
    /// A slice without arguments.
    pub(crate) fn slice(category: &'static str, name: &str, pid: i64, tid: i64) -> Self {
        Self {
            phase: Phase::Complete,
            category,
            name: name.to_owned(),
            name_number: None,
            pid: Ident::Int(pid),
            tid: Ident::Int(tid),
            args: Vec::new(),
        }
    }

    /// One end of a flow; the flow's id is the record's value 0.
    pub(crate) fn flow(phase: Phase, category: &'static str, pid: i64, tid: i64) -> Self {
        Self { phase, ..Self::slice(category, category, pid, tid) }
    }

    /// A metadata event.
    pub(crate) fn metadata(name: &str, pid: Ident, tid: Ident, key: &'static str, value: String) -> Self {
        let slice = Self::slice("", name, 0, 0);
        Self { phase: Phase::Metadata, pid, tid, args: vec![(key, Arg::Json(value))], ..slice }
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
    /// Index of the template in the library.
    pub(crate) template: u32,
    /// Start, ns.
    pub(crate) start_ns: i64,
    /// Duration, ns.
    pub(crate) dur_ns: i64,
    /// What `Hole::Value` refers to.
    pub(crate) values: [i64; 3],
}

/// Text of an event with holes for its numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Template {
    text: Vec<u8>,
    holes: Vec<(usize, Hole)>,
}

impl Template {
    /// Appends text.
    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.text.extend_from_slice(text.as_bytes());
        self
    }

    /// Appends a hole.
    pub(crate) fn hole(&mut self, hole: Hole) -> &mut Self {
        self.holes.push((self.text.len(), hole));
        self
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
                Hole::Bandwidth(bytes) => push_bandwidth(out, bytes, record.dur_ns),
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
    debug_assert!(ns >= 0, "the trace starts long after the base time");
    push_int(out, ns / 1000);
    let rest = (ns % 1000) as u16;
    out.extend_from_slice(&[
        b'.',
        b'0' + (rest / 100) as u8,
        b'0' + (rest / 10 % 10) as u8,
        b'0' + (rest % 10) as u8,
    ]);
}

/// Kineto prints bytes by nanoseconds as a double in shortest form.
fn push_bandwidth(out: &mut Vec<u8>, bytes: u64, dur_ns: i64) {
    let bandwidth = bytes as f64 / dur_ns as f64;
    out.extend_from_slice(bandwidth.to_string().as_bytes());
}
