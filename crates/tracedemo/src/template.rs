//! Events as prepared text with holes: the text of an event rarely changes, its numbers do.

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
