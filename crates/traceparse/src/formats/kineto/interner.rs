//! A thread's own view of the shared symbol table.

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;
use std::sync::{Mutex, PoisonError};

use super::text::{Repairs, canonical_json, decode_string};
use crate::schema::{Symbol, SymbolTable};

/// Text kept by one thread; beyond it the view is emptied and filled anew.
const MAX_CACHED_BYTES: usize = 16 << 20;

/// What a token means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The inside of a string.
    Text,
    /// A JSON value, kept as text in one spelling.
    Json,
}

struct Entry {
    start: usize,
    len: usize,
    form: Form,
    symbol: Symbol,
    repairs: Repairs,
}

/// Maps raw tokens to symbols. Names repeat about seventy times in a trace, so nearly every
/// look-up ends here, without a lock and without decoding.
pub(crate) struct Interner<'s> {
    shared: &'s Mutex<SymbolTable>,
    hasher: DefaultHashBuilder,
    entries: HashTable<Entry>,
    bytes: Vec<u8>,
}

impl<'s> Interner<'s> {
    pub(crate) fn new(shared: &'s Mutex<SymbolTable>) -> Self {
        let hasher = DefaultHashBuilder::default();
        Self { shared, hasher, entries: HashTable::new(), bytes: Vec::new() }
    }

    /// The symbol of a raw token, and what had to be repaired to read it.
    #[inline]
    pub(crate) fn intern(&mut self, raw: &[u8], form: Form) -> (Symbol, Repairs) {
        let hash = self.hasher.hash_one(raw);
        let bytes = &self.bytes;
        let known = self.entries.find(hash, |e| {
            e.form == form && e.len == raw.len() && bytes.get(e.start..e.start + e.len) == Some(raw)
        });
        match known {
            Some(entry) => (entry.symbol, entry.repairs),
            None => self.intern_new(raw, form, hash),
        }
    }

    #[cold]
    fn intern_new(&mut self, raw: &[u8], form: Form, hash: u64) -> (Symbol, Repairs) {
        let (text, repairs) = match form {
            Form::Text => decode_string(raw),
            Form::Json => canonical_json(raw),
        };
        let symbol = self.shared.lock().unwrap_or_else(PoisonError::into_inner).intern(&text);
        if self.bytes.len() + raw.len() > MAX_CACHED_BYTES {
            self.entries.clear();
            self.bytes.clear();
        }
        if raw.len() <= MAX_CACHED_BYTES {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(raw);
            let Self { entries, bytes, hasher, .. } = self;
            let rehash = |e: &Entry| hasher.hash_one(&bytes[e.start..e.start + e.len]);
            entries.insert_unique(hash, Entry { start, len: raw.len(), form, symbol, repairs }, rehash);
        }
        (symbol, repairs)
    }

    /// What `read` makes of the text of `symbol`.
    pub(crate) fn with_text<T>(&self, symbol: Symbol, read: impl FnOnce(&str) -> T) -> T {
        read(self.shared.lock().unwrap_or_else(PoisonError::into_inner).text(symbol))
    }

    /// The symbol of a text that is already clean.
    pub(crate) fn intern_clean(&mut self, text: &str) -> Symbol {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).intern(text)
    }
}
