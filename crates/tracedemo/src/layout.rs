//! The byte layouts: everything that decides how an event or the file around it is spelt.

use crate::event::{Arg, Hole, Phase, Shape, Template};
use crate::options::Layout;

/// How Kineto spells the event of each [`Phase`]. A letter behind `$` stands for category, name, process,
/// thread, start, duration, id or arguments; what is in brackets is left out without arguments.
const NATIVE: [&str; 6] = [
    r#"  {
    "ph": "X", "cat": "$c", "name": "$n", "pid": $p, "tid": $t,
    "ts": $s, "dur": $d[,
    "args": {
      $a
    }]
  }"#,
    r#"  {
    "ph": "i", "cat": "$c", "s": "t", "name": "$n",
    "pid": $p, "tid": $t,
    "ts": $s,
    "args": {
      $a
    }
  }"#,
    r#"  {
    "name": "$n", "ph": "i", "s": "g",
    "pid": $p, "tid": $t, "ts": $s
  }"#,
    r#"  {
    "ph": "s", "id": $i, "pid": $p, "tid": $t, "ts": $s,
    "cat": "$c", "name": "$n"
  }"#,
    r#"  {
    "ph": "f", "id": $i, "pid": $p, "tid": $t, "ts": $s,
    "cat": "$c", "name": "$n", "bp": "e"
  }"#,
    r#"  {
    "name": "$n", "ph": "M", "ts": $s, "pid": $p, "tid": $t,
    "args": {
      $a
    }
  }"#,
];

/// The same for the layouts whose events are all spelt alike: `~` is the break before a key, which every
/// comma brings with it, `;` a comma without it, `^` the break before the first argument.
const REGULAR: [&str; 6] = [
    r#"{~"ph":"X","cat":"$c","name":"$n","pid":$p,"tid":$t,"ts":$s,"dur":$d[~,"args":{^$a~}]"#,
    r#"{~"ph":"i",~"cat":"$c","s":"t","name":"$n","pid":$p,"tid":$t,"ts":$s~,"args":{^$a~}"#,
    r#"{~"ph":"i",~"s":"g","name":"$n","pid":$p,"tid":$t,"ts":$s~"#,
    r#"{~"ph":"s","id":$i,"pid":$p,"tid":$t,"ts":$s,"cat":"$c","name":"$n"~"#,
    r#"{~"ph":"f","id":$i,"pid":$p,"tid":$t,"ts":$s,"cat":"$c","name":"$n"~;"bp":"e""#,
    r#"{~"ph":"M","name":"$n","ts":$s,"pid":$p,"tid":$t,"args":{^$a~}"#,
];

impl Layout {
    /// Text between two events.
    pub(crate) fn separator(self) -> &'static str {
        if self == Self::Compact { "," } else { ",\n" }
    }

    /// Whether metadata events come first; Kineto wrote them last before the events were reordered.
    pub(crate) fn metadata_first(self) -> bool {
        matches!(self, Self::KeyPerLine | Self::EventPerLine)
    }

    /// Text before the first event, with the keys before `traceEvents` and their values as JSON.
    pub(crate) fn header(self, keys: &[(&str, String)]) -> String {
        let (open, indent, list) = match self {
            Self::Native => ("\n{\n", "  ", " [\n"),
            Self::KeyPerLine => (" {\n", "    ", " [\n    \n"),
            Self::EventPerLine => ("{\n", "", " [\n"),
            Self::Compact => ("{", "", "["),
        };
        let pairs = keys.iter().map(|(key, value)| match self {
            Self::Native if *key == "deviceProperties" => {
                format!("  \"{key}\": {},\n", broken_devices(value))
            }
            Self::Compact => squeeze(&format!("\"{key}\": {value},")),
            _ => format!("{indent}\"{key}\": {value},\n"),
        });
        format!("{open}{}{indent}\"traceEvents\":{list}", pairs.collect::<String>())
    }

    /// Text after the last event.
    pub(crate) fn footer(self, trace_name: &str) -> String {
        match self {
            Self::Native => format!("\n  ],\n  \"traceName\": \"{trace_name}\"\n}}"),
            Self::KeyPerLine => format!("\n  ],\"traceName\": \"{trace_name}\" }}"),
            Self::EventPerLine => format!("\n],\n\"traceName\": \"{trace_name}\"\n}}"),
            Self::Compact => format!("],\"traceName\":\"{trace_name}\"}}"),
        }
    }

    /// How an event of that phase is spelt.
    fn pattern(self, phase: Phase) -> String {
        let regular = REGULAR[phase as usize];
        match self {
            Self::Native => NATIVE[phase as usize].to_owned(),
            Self::KeyPerLine => {
                let keys = regular.replace(':', ": ").replace(',', ",~").replace(';', ", ");
                format!("  {}\n  }}", keys.replace('^', "\n      ").replace('~', "\n    "))
            }
            Self::EventPerLine | Self::Compact => {
                format!("{}}}", regular.replace(['~', '^'], "").replace(';', ","))
            }
        }
    }

    /// Prepares the text of an event.
    pub(crate) fn template(self, shape: &Shape) -> Template {
        let mut pattern = self.pattern(shape.phase);
        if let (true, Some(from), Some(to)) = (shape.args.is_empty(), pattern.find('['), pattern.find(']')) {
            pattern.replace_range(from..to, "");
        }
        let pattern = pattern.replace(['[', ']'], "");
        let mut out = Template::new(shape);
        for (index, piece) in pattern.split('$').enumerate() {
            let (letter, text) = piece.split_at(usize::from(index > 0));
            match letter {
                "" => {}
                "c" => out.text(shape.category),
                "n" => {
                    out.text(&shape.name);
                    shape.name_number.into_iter().for_each(|number| out.hole(number));
                }
                "p" => out.text(&shape.pid.to_string()),
                "t" => out.text(&shape.tid.to_string()),
                "s" => out.hole(Hole::Start),
                "d" => out.hole(Hole::Duration),
                "i" => out.hole(Hole::Value(0)),
                _ => self.args(&mut out, shape),
            }
            out.text(text);
        }
        out
    }

    /// Kineto leaves out the space after the first argument of a CPU event and puts several after that of
    /// a runtime or GPU event.
    fn args(self, out: &mut Template, shape: &Shape) {
        let is_compact = self == Self::Compact;
        let on_cpu_side = matches!(shape.category, "cpu_op" | "user_annotation");
        for (index, (key, value)) in shape.args.iter().enumerate() {
            out.text(match index {
                0 => "",
                _ if is_compact => ",",
                1 if shape.phase == Phase::Complete => {
                    if on_cpu_side {
                        ","
                    } else {
                        ",      "
                    }
                }
                _ => ", ",
            });
            out.text(&format!("\"{key}\":{}", if is_compact { "" } else { " " }));
            match value {
                Arg::Json(json) if is_compact => out.text(&squeeze(json)),
                Arg::Json(json) => out.text(json),
                Arg::Hole(hole) => out.hole(*hole),
            }
        }
    }
}

/// Kineto breaks each device over several lines, and the keys that only CUDA has over another.
fn broken_devices(value: &str) -> String {
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
