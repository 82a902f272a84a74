//! Payloads of NVTX ranges that a schema describes, such as those with which NCCL tells of its calls.
//!
//! The export lists the schemas; values stand in bytes behind a header, if it was made with blobs. Both are taken
//! for what they are: numbers of a file.

use hashbrown::HashMap;
use rusqlite::Connection;
use serde_json::Value;

use crate::formats::sqlite::catalog::Catalog;

/// Entries of schemas and enumerations beyond are not read: NCCL has some dozens.
const MOST_ENTRIES: usize = 1 << 16;
const LONGEST_NAME: usize = 256;
/// A record begins with the numbers of its domain and schema and the sizes of its payload and of itself.
const HEADER: usize = 32;
/// Types of entries from here on are those of other schemas and enumerations.
const FIRST_SCHEMA: i64 = 1 << 24;

/// Domain and schema. Their numbers do not say of which process they are.
type SchemaId = (i64, i64);

/// What is in an entry.
#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Signed,
    Unsigned,
    Real,
    /// A number that stands for a text.
    Enum(Vec<(i64, String)>),
}

/// A value in a payload.
#[derive(Debug, Clone, PartialEq)]
struct Field {
    name: String,
    offset: usize,
    bytes: usize,
    kind: Kind,
}

/// The schemas of a recording; null for one that two processes mean differently.
#[derive(Debug, Default)]
pub(super) struct Payloads {
    schemas: HashMap<SchemaId, Option<Vec<Field>>>,
}

/// Why a payload says nothing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    UnknownSchema,
    TooShort,
}

/// An entry of a schema as the table has it.
struct Entry {
    index: i64,
    flags: i64,
    kind: i64,
    name: String,
    offset: Option<i64>,
}

impl Payloads {
    pub(super) fn read(connection: &Connection, catalog: &Catalog) -> Self {
        let enums = read_enums(connection, catalog);
        let mut entries: HashMap<SchemaId, Vec<Entry>> = HashMap::new();
        let columns = ["domainId", "schemaId", "idx", "flags", "type", "name", "offset"];
        for_each(connection, catalog, "NVTX_PAYLOAD_SCHEMA_ENTRIES", &columns, |row| {
            let entry = Entry {
                index: row.get(2)?,
                flags: row.get::<_, Option<i64>>(3)?.unwrap_or(0),
                kind: row.get(4)?,
                name: row.get::<_, String>(5)?.chars().take(LONGEST_NAME).collect(),
                offset: row.get(6)?,
            };
            entries.entry((row.get(0)?, row.get(1)?)).or_default().push(entry);
            Ok(())
        });
        let schemas = entries.into_iter().map(|(id, entries)| (id, fields(id.0, entries, &enums)));
        Self { schemas: schemas.collect() }
    }

    /// Whether any schema has a field of this name.
    pub(super) fn describe(&self, name: &str) -> bool {
        self.schemas.values().flatten().flatten().any(|field| field.name == name)
    }

    /// The values of the first payload in `bytes`, with their names.
    pub(super) fn decode(&self, bytes: &[u8]) -> Result<Vec<(&str, Value)>, Unreadable> {
        let header = bytes.get(..HEADER).ok_or(Unreadable::TooShort)?;
        let id = |at: usize| whole(&header[at..at + 4], false).ok_or(Unreadable::TooShort);
        let schema = self.schemas.get(&(id(0)?, id(8)?)).and_then(Option::as_ref);
        let fields = schema.ok_or(Unreadable::UnknownSchema)?;
        let size = whole(&header[16..24], false).and_then(|size| usize::try_from(size).ok());
        let end = size.and_then(|size| HEADER.checked_add(size)).ok_or(Unreadable::TooShort)?;
        let payload = bytes.get(HEADER..end).ok_or(Unreadable::TooShort)?;
        let value = |field: &'_ Field| {
            let end = field.offset.checked_add(field.bytes)?;
            field.kind.value(payload.get(field.offset..end)?)
        };
        let values: Option<Vec<_>> =
            fields.iter().map(|field| Some((field.name.as_str(), value(field)?))).collect();
        values.ok_or(Unreadable::TooShort)
    }
}

impl Kind {
    fn value(&self, bytes: &[u8]) -> Option<Value> {
        match self {
            Self::Signed => whole(bytes, true).map(Value::from),
            Self::Unsigned => whole(bytes, false).map(|bits| Value::from(bits.cast_unsigned())),
            Self::Real => match *bytes {
                [a, b, c, d] => Some(Value::from(f32::from_le_bytes([a, b, c, d]))),
                [a, b, c, d, e, f, g, h] => Some(Value::from(f64::from_le_bytes([a, b, c, d, e, f, g, h]))),
                _ => None,
            },
            Self::Enum(names) => {
                let number = whole(bytes, true)?;
                let name = names.iter().find(|(value, _)| *value == number);
                Some(name.map_or_else(|| Value::from(number), |(_, name)| Value::from(name.as_str())))
            }
        }
    }
}

/// A whole number of up to eight bytes, the lowest first, by its bits.
fn whole(bytes: &[u8], is_signed: bool) -> Option<i64> {
    let fill = if is_signed && bytes.last()? & 0x80 != 0 { 0xff } else { 0 };
    let mut all = [fill; 8];
    all.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(i64::from_le_bytes(all))
}

/// Where the fields of a schema are; none if two entries claim one place in it.
fn fields(domain: i64, mut entries: Vec<Entry>, enums: &HashMap<SchemaId, Enum>) -> Option<Vec<Field>> {
    entries.sort_by_key(|entry| entry.index);
    entries.dedup_by(|second, first| {
        let same = |a: &Entry, b: &Entry| {
            (a.index, a.flags, a.kind, a.offset) == (b.index, b.flags, b.kind, b.offset) && a.name == b.name
        };
        same(first, second)
    });
    if entries.windows(2).any(|pair| pair[0].index == pair[1].index) {
        return None;
    }
    let mut fields = Vec::new();
    // Behind the last field; unknown behind one of unknown size.
    let mut next = Some(0_usize);
    for entry in entries {
        let known = scalar(domain, entry.kind, enums).filter(|_| entry.flags == 0);
        let bytes = known.as_ref().map(|(_, bytes)| *bytes);
        // No offset, and 0 behind the first field, is the next place that fits.
        let given = entry.offset.filter(|&offset| offset > 0).map(usize::try_from);
        let offset = match given {
            Some(offset) => offset.ok(),
            None => next.zip(bytes).map(|(next, bytes)| next.next_multiple_of(bytes)),
        };
        next = offset.zip(bytes).and_then(|(offset, bytes)| offset.checked_add(bytes));
        if let (Some(offset), Some((kind, bytes))) = (offset, known) {
            fields.push(Field { name: entry.name, offset, bytes, kind });
        }
    }
    Some(fields)
}

/// What a type of an entry is, and its bytes. Source: NVTX, nvToolsExtPayload.h; `long` is that of Linux.
fn scalar(domain: i64, kind: i64, enums: &HashMap<SchemaId, Enum>) -> Option<(Kind, usize)> {
    Some(match kind {
        1 | 11 => (Kind::Signed, 1),
        2 | 12 => (Kind::Unsigned, 1),
        3 | 13 => (Kind::Signed, 2),
        4 | 14 => (Kind::Unsigned, 2),
        5 | 15 => (Kind::Signed, 4),
        6 | 16 => (Kind::Unsigned, 4),
        7 | 9 | 17 => (Kind::Signed, 8),
        8 | 10 | 18 | 22 | 23 => (Kind::Unsigned, 8),
        19 => (Kind::Real, 4),
        20 => (Kind::Real, 8),
        FIRST_SCHEMA.. => {
            let Enum { bytes, names } = enums.get(&(domain, kind))?;
            (Kind::Enum(names.clone()), *bytes)
        }
        _ => return None,
    })
}

/// An enumeration: its size and the names of its values.
struct Enum {
    bytes: usize,
    names: Vec<(i64, String)>,
}

/// Bytes of an enumeration of C, where the file does not say.
const ENUM_BYTES: usize = 4;

fn read_enums(connection: &Connection, catalog: &Catalog) -> HashMap<SchemaId, Enum> {
    let mut enums: HashMap<SchemaId, Enum> = HashMap::new();
    let columns = ["domainId", "schemaId", "name", "value"];
    for_each(connection, catalog, "NVTX_PAYLOAD_ENUM_ENTRIES", &columns, |row| {
        let id = (row.get(0)?, row.get(1)?);
        let name: String = row.get::<_, String>(2)?.chars().take(LONGEST_NAME).collect();
        let of = enums.entry(id).or_insert(Enum { bytes: ENUM_BYTES, names: Vec::new() });
        let value = row.get(3)?;
        if !of.names.iter().any(|(known, _)| *known == value) {
            of.names.push((value, name));
        }
        Ok(())
    });
    for_each(connection, catalog, "NVTX_PAYLOAD_ENUMS", &["domainId", "schemaId", "size"], |row| {
        let size: i64 = row.get(2)?;
        if let Some(of) = enums.get_mut(&(row.get(0)?, row.get(1)?))
            && matches!(size, 1 | 2 | 4 | 8)
        {
            of.bytes = size as usize;
        }
        Ok(())
    });
    enums
}

/// Hands the first rows of a table to `take`; those that it refuses, and those behind a damaged page, are left out.
fn for_each(
    connection: &Connection,
    catalog: &Catalog,
    table: &str,
    columns: &[&str],
    mut take: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<()>,
) {
    if !catalog.has(table, columns) {
        return;
    }
    let sql = format!("SELECT \"{}\" FROM {table} LIMIT {MOST_ENTRIES}", columns.join("\", \""));
    let Ok(mut statement) = connection.prepare(&sql) else { return };
    let Ok(mut rows) = statement.query([]) else { return };
    while let Ok(Some(row)) = rows.next() {
        // An entry without a name or type is none.
        let _ = take(row);
    }
}

#[cfg(test)]
mod tests {
    use super::{Entry, Enum, Payloads, Unreadable, fields};
    use hashbrown::HashMap;
    use proptest::prelude::*;
    use serde_json::json;

    fn entry(index: i64, kind: i64, name: &str, offset: Option<i64>) -> Entry {
        Entry { index, flags: 0, kind, name: name.to_owned(), offset }
    }

    fn payloads(entries: Vec<Entry>) -> Payloads {
        let names = vec![(0, "sum".to_owned()), (4, "avg".to_owned())];
        let enums = HashMap::from_iter([((1, 1 << 24), Enum { bytes: 4, names })]);
        Payloads { schemas: HashMap::from_iter([((1, 77), fields(1, entries, &enums))]) }
    }

    fn record(domain: u64, schema: u64, payload: &[u8]) -> Vec<u8> {
        let size = payload.len() as u64;
        let header = [domain, schema, size, size + 32].map(u64::to_le_bytes).concat();
        [header, payload.to_vec()].concat()
    }

    #[test]
    fn fields_are_read_where_the_schema_says() {
        let known = payloads(vec![
            entry(2, 5, "rank", None),
            entry(0, 18, "id", None),
            entry(1, 12, "byte", Some(0)),
            entry(3, 1 << 24, "op", Some(20)),
            entry(4, 11, "last", Some(16)),
        ]);
        let mut payload = u64::MAX.to_le_bytes().to_vec();
        payload.extend([200, 0, 0, 0]);
        payload.extend((-3_i32).to_le_bytes());
        payload.extend([0xfe, 0, 0, 0, 4, 0, 0, 0]);
        let values = known.decode(&record(1, 77, &payload)).unwrap();
        let expected = [
            ("id", json!(u64::MAX)),
            ("byte", json!(200)),
            ("rank", json!(-3)),
            ("op", json!("avg")),
            ("last", json!(-2)),
        ];
        assert_eq!(values, expected);
    }

    #[test]
    fn what_no_schema_describes_is_not_guessed() {
        let known = payloads(vec![entry(0, 18, "id", None)]);
        assert_eq!(known.decode(&record(1, 78, &[0; 8])), Err(Unreadable::UnknownSchema));
        assert_eq!(known.decode(&record(2, 77, &[0; 8])), Err(Unreadable::UnknownSchema));
        assert_eq!(known.decode(&record(1, 77, &[0; 7])), Err(Unreadable::TooShort));
        assert_eq!(known.decode(&[0; 31]), Err(Unreadable::TooShort));
        // Two processes registered other schemas under one number.
        let two = payloads(vec![entry(0, 18, "id", None), entry(0, 5, "id", None)]);
        assert_eq!(two.decode(&record(1, 77, &[0; 8])), Err(Unreadable::UnknownSchema));
        // Behind a field of unknown size nothing has a place of its own.
        let unknown = payloads(vec![entry(0, 99, "text", None), entry(1, 5, "rank", None)]);
        assert_eq!(unknown.decode(&record(1, 77, &[0; 8])), Ok(vec![]));
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(
            bytes in proptest::collection::vec(any::<u8>(), 0..80),
            kinds in proptest::collection::vec((0i64..30, proptest::option::of(any::<i64>())), 0..5),
            sizes in any::<[u64; 2]>(),
        ) {
            let entries = kinds.into_iter().zip(0..).map(|((kind, offset), at)| entry(at, kind, "x", offset));
            let known = payloads(entries.collect());
            let _ = known.decode(&bytes);
            let header = [1, 77, sizes[0], sizes[1]].map(u64::to_le_bytes).concat();
            let _ = known.decode(&[header, bytes].concat());
        }
    }
}
