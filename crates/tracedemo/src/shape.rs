//! What an event looks like before a layout turns it into text.

use crate::template::Hole;

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
