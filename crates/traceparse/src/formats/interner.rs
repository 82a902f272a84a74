//! A thread's own view of the shared symbol table.

use std::borrow::Cow;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::schema::{Symbol, SymbolTable};

/// Text kept by one thread; beyond it the view is emptied and filled anew.
const MAX_CACHED_BYTES: usize = 16 << 20;

/// How a format writes text.
pub(crate) trait Form: Copy + Eq {
    /// What was wrong with a text.
    type Repairs: Copy;

    /// The text that bytes stand for, and what had to be repaired to read it.
    fn decode(self, raw: &[u8]) -> (Cow<'_, str>, Self::Repairs);
}

struct Entry<F: Form> {
    start: usize,
    len: usize,
    form: F,
    symbol: Symbol,
    repairs: F::Repairs,
}

/// Maps texts as they stand in a file to symbols. Names repeat about seventy times in a trace, so nearly every
/// look-up ends here, without a lock and without decoding.
pub(crate) struct Interner<'s, F: Form> {
    shared: &'s Mutex<SymbolTable>,
    hasher: DefaultHashBuilder,
    entries: HashTable<Entry<F>>,
    bytes: Vec<u8>,
}

impl<'s, F: Form> Interner<'s, F> {
    pub(crate) fn new(shared: &'s Mutex<SymbolTable>) -> Self {
        let hasher = DefaultHashBuilder::default();
        Self { shared, hasher, entries: HashTable::new(), bytes: Vec::new() }
    }

    /// The symbol of raw bytes, and what had to be repaired to read them.
    #[inline]
    pub(crate) fn intern(&mut self, raw: &[u8], form: F) -> (Symbol, F::Repairs) {
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
    fn intern_new(&mut self, raw: &[u8], form: F, hash: u64) -> (Symbol, F::Repairs) {
        let (text, repairs) = form.decode(raw);
        let symbol = self.intern_clean(&text);
        if self.bytes.len() + raw.len() > MAX_CACHED_BYTES {
            self.entries.clear();
            self.bytes.clear();
        }
        if raw.len() <= MAX_CACHED_BYTES {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(raw);
            let Self { entries, bytes, hasher, .. } = self;
            let rehash = |e: &Entry<F>| hasher.hash_one(&bytes[e.start..e.start + e.len]);
            entries.insert_unique(hash, Entry { start, len: raw.len(), form, symbol, repairs }, rehash);
        }
        (symbol, repairs)
    }

    /// The symbol of a text that is already clean.
    pub(crate) fn intern_clean(&self, text: &str) -> Symbol {
        self.symbols().intern(text)
    }

    /// The symbols of all threads; others wait as long as they are held.
    pub(crate) fn symbols(&self) -> MutexGuard<'s, SymbolTable> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
