//! Names that their writer put between quotes as they were.

use proptest::prelude::*;
use traceparse::Code;

use crate::reading::{document, pieces, reading, reading_with};

/// The keys that an event may have here.
const KEYS: [&str; 7] = ["ph", "cat", "name", "pid", "tid", "ts", "dur"];
/// A name that shows that its file's writer escapes nothing.
const ANCHOR: &str =
    r#"{"ph": "X", "cat": "cpu_op", "name": "C:\work\a.py", "pid": 7, "tid": 8, "ts": 1, "dur": 2}"#;

/// What stands before the name of the event, and behind it.
fn writers() -> impl Strategy<Value = (String, String)> {
    let spaced = prop::sample::select(vec![
        (r#"{"ph": "X", "cat": "cpu_op", "name": ""#, r#"", "pid": 7, "tid": 8, "ts": 1500, "dur": 2}"#),
        (r#"{"name": ""#, r#"", "ph": "X", "ts": 1500, "dur": 2, "tid": 8, "pid": "CPU", "cat": "cpu_op"}"#),
        (r#"{"ph": "X", "cat": "cpu_op", "pid": 7, "tid": 8, "ts": 1500, "dur": 2, "name": ""#, r#""}"#),
    ]);
    (spaced, any::<bool>()).prop_map(|((before, behind), is_compact)| {
        let written = |text: &str| if is_compact { text.replace(' ', "") } else { text.to_owned() };
        (written(before), written(behind))
    })
}

fn names() -> impl Strategy<Value = String> {
    let fragments = [
        r#"""#,
        r"\",
        ", ",
        ": ",
        "{",
        "}",
        "[",
        "]",
        "(12): run",
        "é",
        "n",
        "torch",
        "u0041",
        r#""name": "#,
        r#""ts": 1"#,
        r#""dtype": "x""#,
        r#", "cat": "y""#,
        r#""}, {"ph": "X""#,
        r#""}"#,
        "\\n",
        r"\\",
        r#"\""#,
    ];
    prop::collection::vec(prop::sample::select(fragments.to_vec()), 0..7).prop_map(|parts| parts.concat())
}

/// How many quotes in `text`, which is the rest of a file, can end the name behind `before`: what follows the quote
/// is the rest of an event, and then another or the end of all.
fn ends(before: &str, text: &str) -> usize {
    let is_end = |quote: usize| {
        let rest = format!("{before}{}", &text[quote..]);
        let mut members = 0;
        let mut values = serde_json::Deserializer::from_str(&rest).into_iter::<serde_json::Value>();
        let Some(Ok(event)) = values.next() else { return false };
        let length = values.byte_offset();
        for key in KEYS {
            members += rest[..length].matches(&format!("\"{key}\":")).count();
        }
        let event = event.as_object().unwrap();
        let is_known = event.keys().all(|key| KEYS.contains(&key.as_str()));
        let follows = rest[length..].replace([' ', '\n'], "");
        let is_followed = follows.starts_with(",{") || follows.starts_with(']');
        // A key twice is gone from the map.
        is_known && members == event.len() && is_followed
    };
    text.match_indices('"').filter(|&(quote, _)| is_end(quote)).count()
}

/// The same text with letters in place of what the scanner takes for escapes.
fn without_escapes(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut out = parts.next().unwrap_or_default().to_owned();
    let mut is_escaped = false;
    for part in parts {
        // Behind a backslash that was escaped itself nothing is.
        is_escaped = !is_escaped;
        out.push('x');
        if is_escaped && let Some(first) = part.chars().next() {
            out.push('x');
            out.push_str(&part[first.len_utf8()..]);
            is_escaped = false;
        } else {
            out.push_str(part);
        }
    }
    out
}

proptest! {
    #[test]
    fn a_name_is_as_it_was_written((before, behind) in writers(), name in names(), chunk in 20_usize..400) {
        let event = format!("{before}{name}{behind}");
        let anchors = [ANCHOR; 3].join(", ");
        let text = document(format!("{anchors}, {event}, {anchors}"));
        let found = reading(&text);
        prop_assert_eq!(&reading_with(&text, &pieces(chunk, 2)).unwrap(), &found);
        let rest = format!("{name}{behind}, {anchors}]");
        let told = found.count(Code::RepairedEvent) + found.count(Code::BadEscape);
        // What is valid but for its escapes and commas, and ends elsewhere, is what it says.
        let without = without_escapes(&event).replace(' ', "").replace(",}", "}");
        let first = serde_json::Deserializer::from_str(&without).into_iter::<serde_json::Value>().next();
        let is_json = matches!(first, Some(Ok(_)));
        let is_plain = !name.replace(r"\\", "").replace("\\\"", "").contains('"') && !name.ends_with('\\');
        if ends(&before, &rest) == 1 && (!is_json || is_plain) {
            let rows = found.rows("ops", "name start_ns dur_ns");
            let expected = format!("{name} | 1500000 | 2000");
            prop_assert!(rows.contains(&expected), "{:?} in {:?}", expected, rows);
            prop_assert_eq!(found.events(), (7, 7, 0));
            let is_odd = name.contains(['"', '\\']);
            prop_assert_eq!(told, 6 + u64::from(is_odd));
        } else if serde_json::from_str::<serde_json::Value>(&without).is_err() {
            prop_assert!(told > 6 || found.findings().len() > 1, "{:?}", found.stats);
        }
    }
}

#[test]
fn the_whole_file_tells_who_escapes() {
    let event =
        |name: &str| format!(r#"{{"ph": "X", "cat": "cpu_op", "name": "{name}", "ts": 1, "dur": 2}}"#);
    let names = |names: &[&str]| {
        let events = names.iter().map(|name| event(name)).collect::<Vec<_>>();
        reading(document(events.join(","))).rows("ops", "name")
    };
    // Alone it may be a line feed.
    assert_eq!(names(&[r"torch\nn\functional.py"]), ["torch\nn\u{c}unctional.py"]);
    let windows = [r"torch\nn\functional.py", r"torch\nn\modules\conv.py", r"\\server\tmp", r"C:\work"];
    assert_eq!(names(&windows), windows);
    // A file that was put together.
    assert_eq!(names(&[r"C:\work", r"a\\b", r"a\\c", r"a\nb"]), [r"C:\work", r"a\b", r"a\c", "a\nb"]);
    // Who leaves quotes alone does the same with backslashes.
    assert_eq!(names(&[r#"a "b" c"#, r"torch\nn"]), [r#"a "b" c"#, r"torch\nn"]);
}
