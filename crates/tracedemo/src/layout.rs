//! The byte layouts: everything that decides how an event or the file around it is spelt.

use crate::event::{Arg, Hole, Ident, Phase, Shape, Template};
use crate::options::Layout;

/// Top-level keys around the events, in order, as JSON text.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    /// Keys before `traceEvents`.
    pub(crate) before: Vec<(&'static str, String)>,
    /// Keys after it.
    pub(crate) after: Vec<(&'static str, String)>,
}

impl Layout {
    /// Text between two events.
    pub(crate) fn separator(self) -> &'static str {
        match self {
            Self::Compact => ",",
            _ => ",\n",
        }
    }

    /// Whether metadata events come first; Kineto wrote them last before the events were reordered.
    pub(crate) fn metadata_first(self) -> bool {
        matches!(self, Self::KeyPerLine | Self::EventPerLine)
    }

    /// Text before the first event.
    pub(crate) fn header(self, frame: &Frame) -> String {
        let pairs = frame.before.iter().map(|(key, value)| match self {
            Self::Native => format!("  \"{key}\": {},\n", native_devices(key, value)),
            Self::KeyPerLine => format!("    \"{key}\": {value},\n"),
            Self::EventPerLine => format!("\"{key}\": {value},\n"),
            Self::Compact => format!("\"{key}\":{},", squeeze(value)),
        });
        let pairs: String = pairs.collect();
        match self {
            Self::Native => format!("\n{{\n{pairs}  \"traceEvents\": [\n"),
            Self::KeyPerLine => format!(" {{\n{pairs}    \"traceEvents\": [\n    \n"),
            Self::EventPerLine => format!("{{\n{pairs}\"traceEvents\": [\n"),
            Self::Compact => format!("{{{pairs}\"traceEvents\":["),
        }
    }

    /// Text after the last event.
    pub(crate) fn footer(self, frame: &Frame) -> String {
        let pairs = |colon: &str, separator: &str, squeezed: bool| -> String {
            let value = |value: &str| if squeezed { squeeze(value) } else { value.to_owned() };
            let pairs = frame.after.iter();
            let pairs: Vec<String> =
                pairs.map(|(key, text)| format!("\"{key}\"{colon}{}", value(text))).collect();
            pairs.join(separator)
        };
        match self {
            Self::Native => format!("\n  ],\n  {}\n}}", pairs(": ", ",\n  ", false)),
            Self::KeyPerLine => format!("\n  ],{} }}", pairs(": ", ",", false)),
            Self::EventPerLine => format!("\n],\n{}\n}}", pairs(": ", ",\n", false)),
            Self::Compact => format!("],{}}}", pairs(":", ",", true)),
        }
    }

    /// Prepares the text of an event.
    pub(crate) fn template(self, shape: &Shape) -> Template {
        let mut out = Template::default();
        match self {
            Self::Native => native(&mut out, shape),
            Self::KeyPerLine => regular(&mut out, shape, "\n    ", " ", false),
            Self::EventPerLine => regular(&mut out, shape, "", "", false),
            Self::Compact => regular(&mut out, shape, "", "", true),
        }
        out
    }
}

/// Kineto breaks each device over several lines, and the keys that only CUDA has over another.
fn native_devices(key: &str, value: &str) -> String {
    if key != "deviceProperties" || value == "[]" {
        return value.to_owned();
    }
    let broken = value
        .replace("[{", "[\n    {\n      ")
        .replace("}, {", "\n    },\n    {\n      ")
        .replace("}]", "\n    }\n  ]")
        .replace(", \"regsPerMultiprocessor\"", "\n    , \"regsPerMultiprocessor\"");
    ["computeMajor", "maxThreadsPerBlock", "regsPerBlock", "sharedMemPerBlock"]
        .iter()
        .fold(broken, |text, key| text.replace(&format!(" \"{key}\""), &format!("\n      \"{key}\"")))
}

/// JSON text without the spaces that separate its tokens.
fn squeeze(json: &str) -> String {
    let mut inside_text = false;
    let kept = json.chars().filter(|&char| {
        inside_text ^= char == '"';
        inside_text || char != ' '
    });
    kept.collect()
}

fn native(out: &mut Template, shape: &Shape) {
    match shape.phase {
        Phase::Complete => {
            out.text("  {\n    \"ph\": \"X\", \"cat\": \"").text(shape.category).text("\", ");
            named(out, shape, ": ").text(", ");
            placed(out, shape, ": ", ", ").text(",\n    \"ts\": ").hole(Hole::Start);
            out.text(", \"dur\": ").hole(Hole::Duration);
            native_args(out, shape);
        }
        Phase::Instant(scope) if shape.category.is_empty() => {
            out.text("  {\n    ");
            named(out, shape, ": ").text(", \"ph\": \"i\", \"s\": \"").text(scope).text("\",\n    ");
            placed(out, shape, ": ", ", ").text(", \"ts\": ").hole(Hole::Start).text("\n  }");
        }
        Phase::Instant(scope) => {
            out.text("  {\n    \"ph\": \"i\", \"cat\": \"").text(shape.category);
            out.text("\", \"s\": \"").text(scope).text("\", ");
            named(out, shape, ": ").text(",\n    ");
            placed(out, shape, ": ", ", ").text(",\n    \"ts\": ").hole(Hole::Start);
            native_args(out, shape);
        }
        Phase::FlowStart | Phase::FlowEnd => {
            let end = shape.phase == Phase::FlowEnd;
            out.text("  {\n    \"ph\": \"").text(if end { "f" } else { "s" }).text("\", \"id\": ");
            out.hole(Hole::Value(0)).text(", ");
            placed(out, shape, ": ", ", ").text(", \"ts\": ").hole(Hole::Start);
            out.text(",\n    \"cat\": \"").text(shape.category).text("\", ");
            named(out, shape, ": ").text(if end { ", \"bp\": \"e\"\n  }" } else { "\n  }" });
        }
        Phase::Metadata => {
            out.text("  {\n    ");
            named(out, shape, ": ").text(", \"ph\": \"M\", \"ts\": ").hole(Hole::Start).text(", ");
            placed(out, shape, ": ", ", ");
            native_args(out, shape);
        }
    }
}

fn native_args(out: &mut Template, shape: &Shape) {
    if !shape.args.is_empty() {
        out.text(",\n    \"args\": {\n      ");
        args(out, shape, false).text("\n    }");
    }
    out.text("\n  }");
}

/// Writes the layouts whose events are all spelt alike; `gap` stands before each key, and `space` after
/// each colon.
fn regular(out: &mut Template, shape: &Shape, gap: &str, space: &str, squeezed: bool) {
    let (next, colon) = (format!(",{gap}"), format!(":{space}"));
    let (open, close) = if gap.is_empty() { ("{", "}") } else { ("  {", "\n  }") };
    let key = |key: &str, value: &str| format!("\"{key}\"{colon}\"{value}\"{next}");
    let time = format!("{next}\"ts\"{colon}");
    let category = if shape.category.is_empty() { String::new() } else { key("cat", shape.category) };
    out.text(open).text(gap);
    match shape.phase {
        Phase::Complete => {
            out.text(&key("ph", "X")).text(&category);
            named(out, shape, &colon).text(&next);
            placed(out, shape, &colon, &next).text(&time).hole(Hole::Start);
            out.text(&format!("{next}\"dur\"{colon}")).hole(Hole::Duration);
        }
        Phase::Instant(scope) => {
            out.text(&key("ph", "i")).text(gap).text(&category).text(&key("s", scope));
            named(out, shape, &colon).text(&next);
            placed(out, shape, &colon, &next).text(&time).hole(Hole::Start);
            if shape.args.is_empty() {
                out.text(gap);
            }
        }
        Phase::FlowStart | Phase::FlowEnd => {
            let end = shape.phase == Phase::FlowEnd;
            out.text(&key("ph", if end { "f" } else { "s" })).text(&format!("\"id\"{colon}"));
            out.hole(Hole::Value(0)).text(&next);
            placed(out, shape, &colon, &next).text(&time).hole(Hole::Start);
            out.text(&next).text(&category);
            named(out, shape, &colon).text(gap);
            if end {
                out.text(&format!(",{space}\"bp\"{colon}\"e\""));
            }
        }
        Phase::Metadata => {
            out.text(&key("ph", "M"));
            named(out, shape, &colon).text(&time).hole(Hole::Start).text(&next);
            placed(out, shape, &colon, &next);
        }
    }
    if !shape.args.is_empty() {
        out.text(if shape.phase == Phase::Metadata { "" } else { gap });
        out.text(&format!("{next}\"args\"{colon}{{")).text(if gap.is_empty() { "" } else { "\n      " });
        args(out, shape, squeezed).text(gap).text("}");
    }
    out.text(close);
}

fn named<'a>(out: &'a mut Template, shape: &Shape, colon: &str) -> &'a mut Template {
    out.text("\"name\"").text(colon).text("\"").text(&shape.name);
    if let Some(number) = shape.name_number {
        out.hole(number);
    }
    out.text("\"")
}

fn placed<'a>(out: &'a mut Template, shape: &Shape, colon: &str, comma: &str) -> &'a mut Template {
    let text = |ident: Ident| match ident {
        Ident::Int(number) => number.to_string(),
        Ident::Text(text) => format!("\"{text}\""),
    };
    out.text("\"pid\"").text(colon).text(&text(shape.pid)).text(comma);
    out.text("\"tid\"").text(colon).text(&text(shape.tid))
}

/// Kineto leaves out the space after the first argument of a CPU event and puts several after that of
/// a runtime or GPU event.
fn args<'a>(out: &'a mut Template, shape: &Shape, squeezed: bool) -> &'a mut Template {
    let on_cpu_side = matches!(shape.category, "cpu_op" | "user_annotation");
    let after_first = if on_cpu_side { "," } else { ",      " };
    for (index, (key, value)) in shape.args.iter().enumerate() {
        let comma = match index {
            0 => "",
            _ if squeezed => ",",
            1 if shape.phase == Phase::Complete => after_first,
            _ => ", ",
        };
        out.text(comma).text("\"").text(key).text(if squeezed { "\":" } else { "\": " });
        match value {
            Arg::Json(json) if squeezed => out.text(&squeeze(json)),
            Arg::Json(json) => out.text(json),
            Arg::Hole(hole) => out.hole(*hole),
        };
    }
    out
}
