//! Random traces, and random damage to them.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

const NAMES: [&str; 12] = [
    "aten::add",
    "ProfilerStep#3",
    "[memory]",
    "",
    "void gemm<{lambda()#1}>(int)",
    "},{\"ph\":\"X\",\"name\":\"x\"",
    "}, {\"name\": 1",
    "C:\\dir\\",
    "quote\"d",
    "caf\u{e9} \u{1f600}",
    "tab\tline\nnul\u{0}",
    "\"], \"traceName\": \"",
];

/// Categories, and keys of arguments, with commas between them.
const CATEGORIES: &str = "cpu_op,user_annotation,Operator,cuda_runtime,kernel,gpu_memcpy,gpu_memset,\
    gpu_user_annotation,cuda_sync,python_function,cuda_profiler_range,cpu_instant_event,ac2g,something else";
const KEYS: &str = "External id,external id,correlation,Input Dims,Call stack,stream,device,grid,bytes,Ev Idx,\
    finished,Python id,Collective name,ph,name,traceEvents,,my \"key\"\\";

/// One of the texts that `list` holds.
fn one_of(list: &'static str) -> impl Strategy<Value = &'static str> + Clone {
    proptest::sample::select(list.split(',').collect::<Vec<_>>())
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => proptest::sample::select(&NAMES[..]).prop_map(str::to_owned),
        1 => proptest::collection::vec(any::<char>(), 0..8).prop_map(String::from_iter),
    ]
}

fn identifier() -> impl Strategy<Value = Value> {
    prop_oneof![
        6 => (0..4_i64).prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => one_of("Spans,,stream 7,12,null").prop_map(Value::from),
        1 => Just(Value::Null),
    ]
}

/// Microseconds with three decimals, which a float of this size holds exactly.
fn time() -> impl Strategy<Value = Value> {
    prop_oneof![
        (0..1_000_000_000_i64).prop_map(|ns| Value::from(ns as f64 / 1000.0)),
        (0..1_000_000_i64).prop_map(Value::from),
    ]
}

fn argument() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1000..1000_i32).prop_map(|n| Value::from(f64::from(n) / 8.0)),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((one_of(KEYS), inner), 0..4)
                .prop_map(|members| Value::Object(object(members))),
        ]
    })
}

fn object(members: Vec<(&'static str, Value)>) -> Map<String, Value> {
    members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn event() -> impl Strategy<Value = Value> {
    let phase = prop_oneof![
        8 => Just("X"),
        4 => one_of("i,s,f,M,C,b,e"),
    ];
    let category = prop_oneof![8 => one_of(CATEGORIES).prop_map(Some), 1 => Just(None)];
    let args = proptest::collection::vec((one_of(KEYS), argument()), 0..5);
    let head = (phase, category, text(), identifier(), identifier());
    (head, time(), time(), proptest::option::weighted(0.8, args)).prop_flat_map(
        |((phase, category, name, pid, tid), ts, dur, args)| {
            let mut members =
                vec![("ph", json!(phase)), ("name", json!(name)), ("pid", pid), ("tid", tid), ("ts", ts)];
            members.extend(category.map(|category| ("cat", json!(category))));
            members.extend(args.map(|args| ("args", Value::Object(object(args)))));
            if phase == "X" {
                members.push(("dur", dur));
            } else {
                members.extend([("id", dur), ("s", json!("t"))]);
            }
            let native = Just(members.clone());
            prop_oneof![2 => native, 1 => Just(members).prop_shuffle()]
                .prop_map(|members| Value::Object(object(members)))
        },
    )
}

/// A document: its events, and its other members by whether they stand before them.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    pub(crate) events: Vec<Value>,
    members: Vec<(bool, &'static str, Value)>,
    is_bare: bool,
    style: Style,
}

/// How JSON is spelled.
#[derive(Debug, Clone, Copy)]
struct Style {
    space: &'static str,
    line: &'static str,
    escapes: bool,
}

pub(crate) fn documents(events: std::ops::Range<usize>) -> impl Strategy<Value = Document> {
    let member = (
        any::<bool>(),
        one_of("schemaVersion,deviceProperties,mine,traceName,baseTimeNanoseconds"),
        argument(),
    );
    let style = (
        proptest::sample::select(&["", " ", "\n    ,\n  "][..]),
        proptest::sample::select(&["", "\n", "\r\n\t\t", "\n            "][..]),
        proptest::bool::weighted(0.1),
    );
    let style = style.prop_map(|(space, line, escapes)| Style { space, line, escapes });
    (
        proptest::collection::vec(event(), events),
        proptest::collection::vec(member, 0..4),
        proptest::bool::weighted(0.1),
        style,
    )
        .prop_map(|(events, members, is_bare, style)| Document { events, members, is_bare, style })
}

impl Document {
    /// The document as text, its events so many times over.
    pub(crate) fn text(&self, times: usize) -> String {
        let style = self.style;
        let mut events = String::new();
        for (i, event) in self.events.iter().cycle().take(self.events.len() * times).enumerate() {
            events.push_str(if i > 0 { "," } else { "" });
            events.push_str(style.line);
            style.write(event, &mut events);
        }
        if self.is_bare {
            return format!("[{events}{}]", style.line);
        }
        let side = |is_before: bool| {
            let mut out = String::new();
            for (_, key, value) in self.members.iter().filter(|member| member.0 == is_before) {
                style.write_member(key, value, &mut out);
                out.push(',');
            }
            out
        };
        let (before, after) = (side(true), side(false));
        let after =
            if after.is_empty() { String::new() } else { format!(",{}", after.trim_end_matches(',')) };
        format!("{{{before}{0}\"traceEvents\":{1}[{events}{0}]{after}{0}}}", style.line, style.blank())
    }
}

impl Style {
    /// White space between the tokens of a member.
    fn blank(self) -> &'static str {
        if self.space == " " { " " } else { "" }
    }

    fn write(self, value: &Value, out: &mut String) {
        match value {
            Value::Array(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    out.push_str(if i > 0 { "," } else { "" });
                    out.push_str(self.blank());
                    self.write(item, out);
                }
                out.push(']');
            }
            Value::Object(members) => {
                out.push('{');
                for (i, (key, value)) in members.iter().enumerate() {
                    let comma = if self.space.contains(',') { self.space } else { "," };
                    out.push_str(if i > 0 { comma } else { "" });
                    self.write_member(key, value, out);
                }
                out.push_str(self.blank());
                out.push('}');
            }
            Value::String(text) => self.write_text(text, out),
            other => out.push_str(&other.to_string()),
        }
    }

    fn write_member(self, key: &str, value: &Value, out: &mut String) {
        out.push_str(self.line);
        self.write_text(key, out);
        out.push(':');
        out.push_str(self.blank());
        self.write(value, out);
    }

    fn write_text(self, text: &str, out: &mut String) {
        if !self.escapes {
            out.push_str(&Value::from(text).to_string());
            return;
        }
        out.push('"');
        for unit in text.encode_utf16() {
            out.push_str(&format!("\\u{unit:04x}"));
        }
        out.push('"');
    }
}

/// One change to the bytes of a file: where, how many bytes go, and what comes in their place.
pub(crate) type Damage = (proptest::sample::Index, usize, Vec<u8>);

pub(crate) fn damages() -> impl Strategy<Value = Vec<Damage>> {
    const SNIPPETS: [&[u8]; 22] = [
        b"",
        b"\"",
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\0",
        b"\xff",
        b"nan",
        b"x",
        b" ",
        b"},{\"ph\":\"X\"",
        b"}, {\"name\": \"",
        b"\"traceEvents\": [",
        b"], \"traceName\": ",
        b"]}",
        b"[[[[",
        b"{\"",
        b"                                                                                     ",
    ];
    let snippet = prop_oneof![
        8 => proptest::sample::select(&SNIPPETS[..]).prop_map(<[u8]>::to_vec),
        1 => (100..2000_usize).prop_map(|n| vec![b' '; n]),
        1 => proptest::collection::vec(any::<u8>(), 1..4),
    ];
    let deleted = prop_oneof![4 => 0..2_usize, 1 => 0..200_usize];
    proptest::collection::vec((any::<proptest::sample::Index>(), deleted, snippet), 1..6)
}

/// `text` with `damages` done to it.
pub(crate) fn damaged(text: &str, damages: &[Damage]) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for (place, deleted, inserted) in damages {
        let at = place.index(bytes.len() + 1);
        let end = (at + deleted).min(bytes.len());
        bytes.splice(at..end, inserted.iter().copied());
    }
    bytes
}
