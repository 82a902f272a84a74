//! The byte layouts: everything that decides how an event or the file around it is spelt.

use crate::options::Layout;
use crate::shape::{Arg, Ident, Phase, Shape};
use crate::template::{Hole, Template};

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
            Self::KeyPerLine => key_per_line(&mut out, shape),
            Self::EventPerLine => single_line(&mut out, shape, false),
            Self::Compact => single_line(&mut out, shape, true),
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

fn key_per_line(out: &mut Template, shape: &Shape) {
    const NEXT: &str = ",\n    ";
    out.text("  {\n    \"ph\": \"");
    match shape.phase {
        Phase::Complete => {
            out.text("X\",\n    \"cat\": \"").text(shape.category).text("\",\n    ");
            named(out, shape, ": ").text(NEXT);
            placed(out, shape, ": ", NEXT).text(",\n    \"ts\": ").hole(Hole::Start);
            out.text(",\n    \"dur\": ").hole(Hole::Duration);
        }
        Phase::Instant(scope) => {
            out.text("i\",\n    \n    ");
            if !shape.category.is_empty() {
                out.text("\"cat\": \"").text(shape.category).text("\",\n    ");
            }
            out.text("\"s\": \"").text(scope).text("\",\n    ");
            named(out, shape, ": ").text(NEXT);
            placed(out, shape, ": ", NEXT).text(",\n    \"ts\": ").hole(Hole::Start);
            if shape.args.is_empty() {
                out.text("\n    ");
            }
        }
        Phase::FlowStart | Phase::FlowEnd => {
            let end = shape.phase == Phase::FlowEnd;
            out.text(if end { "f" } else { "s" }).text("\",\n    \"id\": ").hole(Hole::Value(0)).text(NEXT);
            placed(out, shape, ": ", NEXT).text(",\n    \"ts\": ").hole(Hole::Start);
            out.text(",\n    \"cat\": \"").text(shape.category).text("\",\n    ");
            named(out, shape, ": ").text(if end { "\n    , \"bp\": \"e\"" } else { "\n    " });
        }
        Phase::Metadata => {
            out.text("M\",\n    ");
            named(out, shape, ": ").text(",\n    \"ts\": ").hole(Hole::Start).text(NEXT);
            placed(out, shape, ": ", NEXT);
        }
    }
    if !shape.args.is_empty() {
        let comma = if shape.phase == Phase::Metadata { "," } else { "\n    ," };
        out.text(comma).text("\n    \"args\": {\n      ");
        args(out, shape, false).text("\n    }");
    }
    out.text("\n  }");
}

/// The two layouts without line breaks inside an event; `squeezed` also drops the spaces in args.
fn single_line(out: &mut Template, shape: &Shape, squeezed: bool) {
    out.text("{\"ph\":\"");
    match shape.phase {
        Phase::Complete => {
            out.text("X\",\"cat\":\"").text(shape.category).text("\",");
            named(out, shape, ":").text(",");
            placed(out, shape, ":", ",").text(",\"ts\":").hole(Hole::Start);
            out.text(",\"dur\":").hole(Hole::Duration);
        }
        Phase::Instant(scope) => {
            out.text("i\",");
            if !shape.category.is_empty() {
                out.text("\"cat\":\"").text(shape.category).text("\",");
            }
            out.text("\"s\":\"").text(scope).text("\",");
            named(out, shape, ":").text(",");
            placed(out, shape, ":", ",").text(",\"ts\":").hole(Hole::Start);
        }
        Phase::FlowStart | Phase::FlowEnd => {
            let end = shape.phase == Phase::FlowEnd;
            out.text(if end { "f" } else { "s" }).text("\",\"id\":").hole(Hole::Value(0)).text(",");
            placed(out, shape, ":", ",").text(",\"ts\":").hole(Hole::Start);
            out.text(",\"cat\":\"").text(shape.category).text("\",");
            named(out, shape, ":").text(if end { ",\"bp\":\"e\"" } else { "" });
        }
        Phase::Metadata => {
            out.text("M\",");
            named(out, shape, ":").text(",\"ts\":").hole(Hole::Start).text(",");
            placed(out, shape, ":", ",");
        }
    }
    if !shape.args.is_empty() {
        out.text(",\"args\":{");
        args(out, shape, squeezed).text("}");
    }
    out.text("}");
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
