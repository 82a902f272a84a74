//! The columns of a part, and how their values are written.

use arrow_array::{
    Array, BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringViewArray, UInt32Array,
    UInt64Array,
};
use serde_json::value::RawValue;

/// How a column's values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Json,
    Number,
    Micros,
}

/// A value of a column.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'a> {
    Int(i64),
    Uint(u64),
    Real(f64),
    Bool(bool),
    Text(&'a str),
    Json(&'a str),
}

/// The values of a column.
enum Values {
    I64(Int64Array),
    I32(Int32Array),
    U64(UInt64Array),
    U32(UInt32Array),
    F64(Float64Array),
    Bool(BooleanArray),
    Text(StringViewArray),
}

/// A column with the key it is written under.
struct Column {
    name: String,
    /// As it stands in JSON, with a colon.
    key: Vec<u8>,
    form: Form,
    values: Values,
}

/// The columns of a batch of events.
pub(super) struct Columns {
    rows: UInt32Array,
    fields: Vec<Column>,
    args: Vec<Column>,
    members: Option<StringViewArray>,
}

impl Columns {
    /// The columns of `batch`; what is wrong with it as text.
    pub(super) fn new(batch: &RecordBatch) -> Result<Self, String> {
        let (mut rows, mut members) = (None, None);
        let (mut fields, mut args) = (Vec::new(), Vec::new());
        for (field, array) in batch.schema().fields().iter().zip(batch.columns()) {
            let name = field.name().as_str();
            let values =
                values(array.as_ref()).ok_or_else(|| format!("{name} is of a type that is not written"))?;
            match (name, values) {
                ("row", Values::U32(values)) if values.null_count() == 0 => rows = Some(values),
                ("members", Values::Text(values)) => members = Some(values),
                ("ts" | "dur", values @ Values::I64(_)) => fields.push(column(name, Form::Micros, values)),
                ("ph" | "cat" | "name" | "s" | "bp", values) => fields.push(column(name, Form::Text, values)),
                ("pid" | "tid" | "id", values) => fields.push(column(name, Form::Number, values)),
                ("pid_text", values) => fields.push(column("pid", Form::Text, values)),
                ("tid_text", values) => fields.push(column("tid", Form::Text, values)),
                (name, values) => match name.split_once(':') {
                    Some(("s", key)) => args.push(column(key, Form::Text, values)),
                    Some(("j", key)) => args.push(column(key, Form::Json, values)),
                    Some(("n", key)) => args.push(column(key, Form::Number, values)),
                    _ => return Err(format!("{name} is no column of an event")),
                },
            }
        }
        Ok(Self { rows: rows.ok_or("row is missing, null or of another type")?, fields, args, members })
    }

    /// The value of a field of an event.
    fn field(&self, name: &str, at: usize) -> Option<Value<'_>> {
        self.fields.iter().filter(|column| column.name == name).find_map(|column| column.value(at))
    }

    /// A field that is a number.
    pub(super) fn number(&self, name: &str, at: usize) -> Option<i64> {
        match self.field(name, at)? {
            Value::Int(number) => Some(number),
            Value::Uint(number) => i64::try_from(number).ok(),
            _ => None,
        }
    }

    /// A field that is a text.
    pub(super) fn text(&self, name: &str, at: usize) -> Option<&str> {
        self.fields.iter().filter(|column| column.name == name).find_map(|column| match column.value(at)? {
            Value::Text(text) => Some(text),
            _ => None,
        })
    }

    /// The arguments of an event.
    pub(super) fn args(&self, at: usize) -> impl Iterator<Item = (&str, Value<'_>)> {
        self.args.iter().filter_map(move |column| Some((column.name.as_str(), column.value(at)?)))
    }

    /// The members of an event, JSON text that is put between its arguments as it is.
    pub(super) fn members(&self, at: usize) -> Option<&str> {
        let members = self.members.as_ref().filter(|members| members.is_valid(at))?;
        Some(members.value(at)).filter(|members| !members.is_empty())
    }

    /// The row of each event.
    pub(super) fn rows(&self) -> &[u32] {
        self.rows.values()
    }

    /// Appends the fields of an event, without arguments; each with a comma before it but the first.
    pub(super) fn push_fields(&self, at: usize, out: &mut Vec<u8>) {
        push_members(&self.fields, at, out);
    }

    /// Appends the arguments of an event in the same way.
    pub(super) fn push_args(&self, at: usize, out: &mut Vec<u8>) {
        let start = out.len();
        push_members(&self.args, at, out);
        if let Some(members) = self.members(at) {
            if out.len() > start {
                out.push(b',');
            }
            out.extend_from_slice(members.as_bytes());
        }
    }
}

fn push_members(columns: &[Column], at: usize, out: &mut Vec<u8>) {
    let start = out.len();
    for (column, value) in columns.iter().filter_map(|column| Some((column, column.value(at)?))) {
        if out.len() > start {
            out.push(b',');
        }
        out.extend_from_slice(&column.key);
        match value {
            Value::Int(ns) if column.form == Form::Micros => push_micros(out, ns),
            Value::Int(number) => push_display(out, number),
            Value::Uint(number) => push_display(out, number),
            Value::Real(number) => push_real(out, number),
            Value::Bool(is_true) => push_display(out, is_true),
            Value::Text(text) => push_string(out, text),
            Value::Json(text) => push_json(out, text),
        }
    }
}

fn column(key: &str, form: Form, values: Values) -> Column {
    let mut written = Vec::with_capacity(key.len() + 3);
    push_string(&mut written, key);
    written.push(b':');
    Column { name: key.to_owned(), key: written, form, values }
}

fn values(array: &dyn Array) -> Option<Values> {
    let any = array.as_any();
    let none = || any.downcast_ref::<StringViewArray>().cloned().map(Values::Text);
    any.downcast_ref::<Int64Array>()
        .cloned()
        .map(Values::I64)
        .or_else(|| any.downcast_ref::<Int32Array>().cloned().map(Values::I32))
        .or_else(|| any.downcast_ref::<UInt64Array>().cloned().map(Values::U64))
        .or_else(|| any.downcast_ref::<UInt32Array>().cloned().map(Values::U32))
        .or_else(|| any.downcast_ref::<Float64Array>().cloned().map(Values::F64))
        .or_else(|| any.downcast_ref::<BooleanArray>().cloned().map(Values::Bool))
        .or_else(none)
}

impl Column {
    fn value(&self, at: usize) -> Option<Value<'_>> {
        match &self.values {
            Values::I64(values) => values.is_valid(at).then(|| Value::Int(values.value(at))),
            Values::I32(values) => values.is_valid(at).then(|| Value::Int(values.value(at).into())),
            Values::U64(values) => values.is_valid(at).then(|| Value::Uint(values.value(at))),
            Values::U32(values) => values.is_valid(at).then(|| Value::Uint(values.value(at).into())),
            Values::F64(values) => values.is_valid(at).then(|| Value::Real(values.value(at))),
            Values::Bool(values) => values.is_valid(at).then(|| Value::Bool(values.value(at))),
            Values::Text(values) if !values.is_valid(at) => None,
            Values::Text(values) if self.form == Form::Json => Some(Value::Json(values.value(at))),
            Values::Text(values) => Some(Value::Text(values.value(at))),
        }
    }
}

/// Appends `text` as a JSON string.
pub(super) fn push_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut plain = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(bytes.get(plain..at).unwrap_or_default());
        plain = at + 1;
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
        }
    }
    out.extend_from_slice(bytes.get(plain..).unwrap_or_default());
    out.push(b'"');
}

/// Appends JSON text; what is none is appended as a string.
pub(super) fn push_json(out: &mut Vec<u8>, text: &str) {
    match serde_json::from_str::<&RawValue>(text) {
        Ok(value) => out.extend_from_slice(value.get().as_bytes()),
        Err(_) => push_string(out, text),
    }
}

/// Appends nanoseconds as microseconds with all their digits.
fn push_micros(out: &mut Vec<u8>, ns: i64) {
    if ns < 0 {
        out.push(b'-');
    }
    let ns = ns.unsigned_abs();
    push_display(out, ns / 1000);
    if !ns.is_multiple_of(1000) {
        out.extend_from_slice(format!(".{:03}", ns % 1000).as_bytes());
    }
}

/// Appends a finite number, and null for any other.
fn push_real(out: &mut Vec<u8>, value: f64) {
    if value.is_finite() { push_display(out, value) } else { out.extend_from_slice(b"null") }
}

/// Appends what `value` is shown as.
fn push_display(out: &mut Vec<u8>, value: impl std::fmt::Display) {
    use std::io::Write;
    // Writing into memory cannot fail.
    let _ = write!(out, "{value}");
}
