//! Texts of the database as symbols.

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use rusqlite::{Connection, Statement};
use std::hash::BuildHasher;
use std::sync::{Mutex, PoisonError};

use super::catalog::Catalog;
use super::cells::Cells;
use crate::schema::{Symbol, SymbolTable};
use crate::stats::Code;

/// Text kept by one thread; beyond it the view is emptied and filled anew.
const MAX_CACHED_BYTES: usize = 16 << 20;

/// A thread's own view of the shared symbols, by bytes as they stand in the database.
pub(super) struct Texts<'s> {
    shared: &'s Mutex<SymbolTable>,
    hasher: DefaultHashBuilder,
    entries: HashTable<Entry>,
    bytes: Vec<u8>,
}

struct Entry {
    start: usize,
    len: usize,
    symbol: Symbol,
    is_utf8: bool,
}

impl<'s> Texts<'s> {
    pub(super) fn new(shared: &'s Mutex<SymbolTable>) -> Self {
        let hasher = DefaultHashBuilder::default();
        Self { shared, hasher, entries: HashTable::new(), bytes: Vec::new() }
    }

    /// The symbol of a text, and whether it is valid UTF-8.
    #[inline]
    pub(super) fn intern_bytes(&mut self, raw: &[u8]) -> (Symbol, bool) {
        let hash = self.hasher.hash_one(raw);
        let bytes = &self.bytes;
        let is_known = |e: &Entry| e.len == raw.len() && bytes.get(e.start..e.start + e.len) == Some(raw);
        match self.entries.find(hash, is_known) {
            Some(entry) => (entry.symbol, entry.is_utf8),
            None => self.intern_new(raw, hash),
        }
    }

    #[cold]
    fn intern_new(&mut self, raw: &[u8], hash: u64) -> (Symbol, bool) {
        let text = String::from_utf8_lossy(raw);
        let is_utf8 = matches!(text, std::borrow::Cow::Borrowed(_));
        let symbol = self.intern(&text);
        if self.bytes.len() + raw.len() > MAX_CACHED_BYTES {
            self.entries.clear();
            self.bytes.clear();
        }
        if raw.len() <= MAX_CACHED_BYTES {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(raw);
            let Self { entries, bytes, hasher, .. } = self;
            let rehash = |e: &Entry| hasher.hash_one(&bytes[e.start..e.start + e.len]);
            entries.insert_unique(hash, Entry { start, len: raw.len(), symbol, is_utf8 }, rehash);
        }
        (symbol, is_utf8)
    }

    /// The symbol of a text of the reader's own.
    pub(super) fn intern(&self, text: &str) -> Symbol {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).intern(text)
    }

    /// The text of a symbol.
    pub(super) fn text(&self, symbol: Symbol) -> String {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).text(symbol).to_owned()
    }

    /// A name without the version that nsys appends to those of the CUDA API, and the version.
    pub(super) fn without_version(&mut self, name: Symbol) -> (Symbol, Option<i32>) {
        let mut symbols = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let split = split_version(symbols.text(name)).map(|(base, version)| (base.to_owned(), version));
        split.map_or((name, None), |(base, version)| (symbols.intern(&base), Some(version)))
    }

    /// The symbol of a cell's text.
    #[inline]
    pub(super) fn cell(&mut self, cells: &mut Cells<'_, '_>, cell: usize) -> Option<Symbol> {
        let raw = cells.text(cell)?;
        Some(self.bytes(cells, raw))
    }

    /// The symbol of a part of a cell's text.
    #[inline]
    pub(super) fn bytes(&mut self, cells: &mut Cells<'_, '_>, raw: &[u8]) -> Symbol {
        let (symbol, is_utf8) = self.intern_bytes(raw);
        if !is_utf8 {
            cells.note(Code::BadUtf8);
        }
        symbol
    }
}

/// The texts that rows refer to by number (table `StringIds`).
///
/// A full capture holds a million of them and its events use a few thousand, so each is fetched when
/// it is first met.
pub(super) struct Strings<'c> {
    fetch: Option<Statement<'c>>,
    known: HashMap<i64, Option<(Symbol, bool)>>,
    last: Option<(i64, Symbol)>,
}

impl<'c> Strings<'c> {
    pub(super) fn new(connection: &'c Connection, catalog: &Catalog, texts: &mut Texts<'_>) -> Self {
        let mut strings = Self { fetch: None, known: HashMap::new(), last: None };
        let is_keyed = catalog.table("StringIds").is_some_and(|table| table.is_key("id"));
        if catalog.has("StringIds", &["id", "value"]) && !is_keyed {
            strings.load(connection, texts);
        } else {
            strings.fetch = connection.prepare("SELECT value FROM StringIds WHERE id = ?1").ok();
        }
        strings
    }

    /// Takes every text: without a key each look-up would scan the table.
    fn load(&mut self, connection: &Connection, texts: &mut Texts<'_>) {
        let Ok(mut statement) = connection.prepare("SELECT id, value FROM StringIds") else { return };
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
    pub(super) fn cell(
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
    pub(super) fn find(&mut self, id: i64, texts: &mut Texts<'_>) -> Option<(Symbol, bool)> {
        let Self { fetch, known, .. } = self;
        *known.entry(id).or_insert_with(|| {
            let mut rows = fetch.as_mut()?.query([id]).ok()?;
            let text = rows.next().ok()??.get_ref(0).ok()?.as_bytes_or_null().ok()??;
            Some(texts.intern_bytes(text))
        })
    }
}

/// `cudaLaunchKernel_v7000` is version 7000; fewer than four digits are part of the name.
fn split_version(name: &str) -> Option<(&str, i32)> {
    let (base, digits) = name.rsplit_once("_v")?;
    let is_version = digits.len() >= 4 && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|_| is_version && !base.is_empty()).map(|version| (base, version))
}

#[cfg(test)]
mod tests {
    use super::split_version;

    #[test]
    fn versions_have_four_digits_or_more() {
        assert_eq!(split_version("cudaLaunchKernel_v7000"), Some(("cudaLaunchKernel", 7000)));
        assert_eq!(split_version("cudaLaunchKernelExC_v11060"), Some(("cudaLaunchKernelExC", 11060)));
        assert_eq!(split_version("cuMemAlloc_v2"), None);
        assert_eq!(split_version("f_v70a0"), None);
        assert_eq!(split_version("_v7000"), None);
    }
}
