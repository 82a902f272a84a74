//! Texts of the database as symbols.

use std::borrow::Cow;

use hashbrown::HashMap;
use rusqlite::{Connection, Statement};

use super::catalog::Catalog;
use super::cells::Cells;
use crate::formats::interner::{Form, Interner};
use crate::schema::Symbol;
use crate::stats::Code;

/// A thread's own view of the shared symbols.
pub(crate) type Texts<'s> = Interner<'s, Stored>;

/// A text as it stands in a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stored;

impl Form for Stored {
    /// Whether it is valid UTF-8.
    type Repairs = bool;

    fn decode(self, raw: &[u8]) -> (Cow<'_, str>, bool) {
        let text = String::from_utf8_lossy(raw);
        let is_utf8 = matches!(text, Cow::Borrowed(_));
        (text, is_utf8)
    }
}

impl Texts<'_> {
    /// The symbol of a text, and whether it is valid UTF-8.
    #[inline]
    pub(crate) fn intern_bytes(&mut self, raw: &[u8]) -> (Symbol, bool) {
        self.intern(raw, Stored)
    }

    /// The text of a symbol.
    pub(crate) fn text(&self, symbol: Symbol) -> String {
        self.symbols().text(symbol).to_owned()
    }

    /// The symbol that `derive` makes of a text, if it makes any.
    pub(crate) fn derive<T>(
        &self,
        from: Symbol,
        derive: impl Fn(&str) -> Option<(String, T)>,
    ) -> Option<(Symbol, T)> {
        let mut symbols = self.symbols();
        let (text, beside) = derive(symbols.text(from))?;
        Some((symbols.intern(&text), beside))
    }

    /// The symbol of a cell's text.
    #[inline]
    pub(crate) fn cell(&mut self, cells: &mut Cells<'_, '_>, cell: usize) -> Option<Symbol> {
        let raw = cells.text(cell)?;
        Some(self.bytes(cells, raw))
    }

    /// The symbol of a part of a cell's text.
    #[inline]
    pub(crate) fn bytes(&mut self, cells: &mut Cells<'_, '_>, raw: &[u8]) -> Symbol {
        let (symbol, is_utf8) = self.intern_bytes(raw);
        if !is_utf8 {
            cells.note(Code::BadUtf8);
        }
        symbol
    }
}

/// The texts that rows refer to by number.
///
/// A full capture holds a million of them and its events use a few thousand, so each is fetched when
/// it is first met.
pub(crate) struct Strings<'c> {
    fetch: Option<Statement<'c>>,
    known: HashMap<i64, Option<(Symbol, bool)>>,
    last: Option<(i64, Symbol)>,
}

impl<'c> Strings<'c> {
    /// Texts of `table`, whose column `key` numbers those of its column `value`.
    pub(crate) fn new(
        connection: &'c Connection,
        catalog: &Catalog,
        (table, key): (&str, &str),
        texts: &mut Texts<'_>,
    ) -> Self {
        let mut strings = Self { fetch: None, known: HashMap::new(), last: None };
        let is_keyed = catalog.table(table).is_some_and(|table| table.is_key(key));
        if catalog.has(table, &[key, "value"]) && !is_keyed {
            strings.load(connection, &format!("SELECT {key}, value FROM {table}"), texts);
        } else {
            strings.fetch = connection.prepare(&format!("SELECT value FROM {table} WHERE {key} = ?1")).ok();
        }
        strings
    }

    /// Takes every text: without a key each look-up would scan the table.
    fn load(&mut self, connection: &Connection, sql: &str, texts: &mut Texts<'_>) {
        let Ok(mut statement) = connection.prepare(sql) else { return };
        let Ok(mut rows) = statement.query([]) else { return };
        // A damaged page ends the list; texts behind it count as unknown.
        while let Ok(Some(row)) = rows.next() {
            let text = row.get_ref(1).ok().and_then(|value| value.as_bytes_or_null().ok().flatten());
            if let (Ok(id), Some(text)) = (row.get::<_, i64>(0), text) {
                self.known.insert(id, Some(texts.intern_bytes(text)));
            }
        }
    }

    /// The text that a cell refers to.
    #[inline]
    pub(crate) fn cell(
        &mut self,
        texts: &mut Texts<'_>,
        cells: &mut Cells<'_, '_>,
        cell: usize,
    ) -> Option<Symbol> {
        let id = cells.int(cell)?;
        if let Some((known, symbol)) = self.last
            && known == id
        {
            return Some(symbol);
        }
        let found = self.find(id, texts);
        match found {
            None => cells.note(Code::UnknownString),
            Some((_, false)) => cells.note(Code::BadUtf8),
            Some((symbol, true)) => self.last = Some((id, symbol)),
        }
        found.map(|(symbol, _)| symbol)
    }

    /// The text with a number, and whether it is valid UTF-8.
    #[inline]
    pub(crate) fn find(&mut self, id: i64, texts: &mut Texts<'_>) -> Option<(Symbol, bool)> {
        let Self { fetch, known, .. } = self;
        *known.entry(id).or_insert_with(|| {
            let mut rows = fetch.as_mut()?.query([id]).ok()?;
            let text = rows.next().ok()??.get_ref(0).ok()?.as_bytes_or_null().ok()??;
            Some(texts.intern_bytes(text))
        })
    }
}
