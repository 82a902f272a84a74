//! Layer-wise NVTX ranges: serving engines and other programs push a range around each call of a module whose text
//! is a Python dictionary, `{'Module': 'model.layers.0.mlp', 'Inputs': [[32, 4096]], ...}`.
//!
//! They stay in `ranges`, as all that was pushed does. They also are frames of modules, and where no operators were
//! recorded, the operators that launched work. Each distinct text is taken apart once, as data.

use hashbrown::HashMap;

use crate::options::ReadOptions;
use crate::schema::{OpRow, PythonRow, Symbol, SymbolTable, Table, Tables};

/// How such a text begins.
const BEGIN: &str = "{'Module':";
/// Longer texts are taken for names.
const LONGEST: usize = 1 << 16;
const DEEPEST: usize = 16;

/// What a text says, as texts of the trace.
#[derive(Clone, Copy)]
struct Layer {
    frame: Symbol,
    name: Symbol,
    input_dims: Option<Symbol>,
}

/// Adds frames of modules, and operators where the trace has none.
pub(super) fn add(tables: &mut Tables, symbols: &mut SymbolTable, options: &ReadOptions) {
    let Tables { ops, ranges, python, .. } = tables;
    if ranges.is_empty() {
        return;
    }
    let parsed = symbols.classify(module_and_inputs);
    let mut layers: HashMap<usize, Layer> = HashMap::new();
    for (at, found) in parsed.into_iter().enumerate() {
        if let Some((module, inputs)) = found {
            let frame = symbols.intern(&format!("nn.Module: {module}"));
            let input_dims = inputs.map(|inputs| symbols.intern(&inputs));
            layers.insert(at, Layer { frame, name: symbols.intern(&module), input_dims });
        }
    }
    if layers.is_empty() {
        return;
    }
    let push_pop = symbols.find("push_pop");
    let category = symbols.intern("nvtx_module");
    let adds_frames = options.wants("python") && python.is_empty();
    let adds_ops = options.wants("ops") && ops.is_empty();
    for at in 0..ranges.len() {
        let layer = ranges.name.get(at).and_then(|name| layers.get(&name.index()));
        let is_pushed = Some(ranges.kind.values()[at]) == push_pop && ranges.end_tid.get(at).is_none();
        let Some(layer) = layer.filter(|_| is_pushed) else { continue };
        let (row, track) = (ranges.row.values()[at], ranges.track.values()[at]);
        let (start_ns, dur_ns) = (ranges.start_ns.values()[at], ranges.dur_ns.get(at));
        if adds_frames {
            let name = Some(layer.frame);
            python.push(PythonRow { row, name, track, start_ns, dur_ns, ..Default::default() });
        }
        if adds_ops {
            ops.push(OpRow {
                row,
                name: Some(layer.name),
                category: Some(category),
                track,
                start_ns,
                dur_ns,
                input_dims: layer.input_dims,
                ..Default::default()
            });
        }
    }
}

/// The module that a text names, and the shapes of its inputs as JSON; none if it is no dictionary of a module.
fn module_and_inputs(text: &str) -> Option<(String, Option<String>)> {
    if !text.starts_with(BEGIN) || text.len() > LONGEST {
        return None;
    }
    let mut literal = Literal { rest: text.trim_end() };
    let Value::Dict(items) = literal.value(0)? else { return None };
    if !literal.rest.is_empty() {
        return None;
    }
    let mut module = None;
    let mut inputs = None;
    for (key, value) in items {
        match (key, value) {
            (Value::Text("Module"), Value::Text(name)) if !name.is_empty() => module = Some(name.to_owned()),
            (Value::Text("Inputs"), value) => inputs = shapes(&value),
            _ => {}
        }
    }
    module.map(|module| (module, inputs))
}

/// Shapes as operators have them: a list of them, or one alone.
fn shapes(value: &Value<'_>) -> Option<String> {
    let Value::List(items) = value else { return None };
    let is_one = !items.is_empty() && items.iter().all(|item| matches!(item, Value::Number(_)));
    let mut json = String::new();
    write_json(value, &mut json)?;
    Some(if is_one { format!("[{json}]") } else { json })
}

/// Writes whole numbers and lists; an input that is no tensor is an empty shape.
fn write_json(value: &Value<'_>, json: &mut String) -> Option<()> {
    match value {
        Value::Number(number) => json.push_str(&number.parse::<i64>().ok()?.to_string()),
        Value::List(items) => {
            json.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    json.push_str(", ");
                }
                write_json(item, json)?;
            }
            json.push(']');
        }
        Value::Text(_) | Value::Word | Value::Dict(_) => json.push_str("[]"),
    }
    Some(())
}

/// A literal of Python.
#[derive(Debug)]
enum Value<'a> {
    Text(&'a str),
    Number(&'a str),
    /// A list or a tuple.
    List(Vec<Self>),
    Dict(Vec<(Self, Self)>),
    /// None, True, False, or another name.
    Word,
}

struct Literal<'a> {
    rest: &'a str,
}

impl<'a> Literal<'a> {
    fn take(&mut self, begin: char) -> bool {
        self.rest = self.rest.trim_start();
        let after = self.rest.strip_prefix(begin);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    fn value(&mut self, depth: usize) -> Option<Value<'a>> {
        if depth > DEEPEST {
            return None;
        }
        self.rest = self.rest.trim_start();
        let first = self.rest.chars().next()?;
        match first {
            '\'' | '"' => self.text(first).map(Value::Text),
            '[' | '(' => self.list(if first == '[' { ']' } else { ')' }, depth).map(Value::List),
            '{' => self.dict(depth).map(Value::Dict),
            _ => {
                let is_of_word = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
                let end = self.rest.find(|c| !is_of_word(c)).unwrap_or(self.rest.len());
                let (word, rest) = self.rest.split_at(end);
                self.rest = rest;
                let is_number = word.trim_start_matches('-').starts_with(|c: char| c.is_ascii_digit());
                let value = if is_number { Value::Number(word) } else { Value::Word };
                (!word.is_empty()).then_some(value)
            }
        }
    }

    /// A text without escapes: names of modules have none.
    fn text(&mut self, quote: char) -> Option<&'a str> {
        let (text, rest) = self.rest[1..].split_once(quote)?;
        self.rest = rest;
        (!text.contains('\\')).then_some(text)
    }

    fn list(&mut self, end: char, depth: usize) -> Option<Vec<Value<'a>>> {
        self.rest = &self.rest[1..];
        let mut items = Vec::new();
        while !self.take(end) {
            items.push(self.value(depth + 1)?);
            if !self.take(',') && !self.rest.starts_with(end) {
                return None;
            }
        }
        Some(items)
    }

    fn dict(&mut self, depth: usize) -> Option<Vec<(Value<'a>, Value<'a>)>> {
        self.rest = &self.rest[1..];
        let mut items = Vec::new();
        while !self.take('}') {
            let key = self.value(depth + 1)?;
            if !self.take(':') {
                return None;
            }
            items.push((key, self.value(depth + 1)?));
            if !self.take(',') && !self.rest.starts_with('}') {
                return None;
            }
        }
        Some(items)
    }
}

#[cfg(test)]
mod tests {
    use super::module_and_inputs;
    use proptest::prelude::*;

    fn found(text: &str) -> Option<(String, String)> {
        module_and_inputs(text).map(|(module, inputs)| (module, inputs.unwrap_or_default()))
    }

    #[test]
    fn modules_and_shapes() {
        for (text, module, inputs) in [
            (
                "{'Module': 'model.layers.0.mlp', 'Inputs': [[32, 4096]]}",
                "model.layers.0.mlp",
                "[[32, 4096]]",
            ),
            (
                "{'Module': 'a', 'TrainableParams': {'weight': (8, 4)}, 'Inputs': [[2, 3], 'x', None]}",
                "a",
                "[[2, 3], [], []]",
            ),
            ("{'Module': 'a', 'Inputs': [2, 3], 'Outputs': [[1]]}", "a", "[[2, 3]]"),
            ("{'Module': \"a.b\", 'Bias': True, 'eps': 1e-06,}", "a.b", ""),
            ("{'Module': 'a', 'Inputs': ((1, 2), (3,))}", "a", "[[1, 2], [3]]"),
            ("{'Module': 'a', 'Inputs': 'unknown'}", "a", ""),
        ] {
            assert_eq!(found(text), Some((module.to_owned(), inputs.to_owned())), "{text}");
        }
        for other in [
            "{'Module': }",
            "{'Module': 'a'",
            "{'Module': 'a'} x",
            "{'Module': 3}",
            "{'Module': ''}",
            "{'mod': 'torch'}",
            "{'Module': 'a' 'b'}",
        ] {
            assert_eq!(found(other), None, "{other}");
        }
        let deep = format!("{{'Module': 'a', 'Inputs': {}{}}}", "[".repeat(60_000), "]".repeat(5_000));
        assert_eq!(found(&deep), None);
    }

    proptest! {
        #[test]
        fn no_text_breaks_it(rest in "[\\[\\](){}',: 0-9a-zé\"\\\\-]{0,40}") {
            let _ = module_and_inputs(&format!("{{'Module': 'a'{rest}"));
        }
    }
}
