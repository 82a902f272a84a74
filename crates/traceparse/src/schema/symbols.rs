//! Interned text: names and other repeated strings are stored once and referred to by number.

use arrow_array::types::UInt32Type;
use arrow_array::{ArrayRef, DictionaryArray, PrimitiveArray, StringArray};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;
use std::sync::Arc;

/// A reference to a text in a [`SymbolTable`].
///
/// Numbers depend on the order in which threads met the texts, so they never leave the crate:
/// export renumbers each column by first appearance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Symbol(u32);

impl Symbol {
    /// The position of the text in its table.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Every distinct text of a trace, back to back in one buffer.
#[derive(Debug, Clone, Default)]
pub struct SymbolTable {
    text: String,
    ends: Vec<usize>,
    lookup: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl SymbolTable {
    /// The symbol of `text`, new or known.
    pub fn intern(&mut self, text: &str) -> Symbol {
        let hash = self.hasher.hash_one(text);
        let Self { text: all, ends, lookup, hasher } = self;
        let known = lookup.find(hash, |&id| slice(all, ends, id as usize) == text);
        if let Some(&id) = known {
            return Symbol(id);
        }
        let id = ends.len() as u32;
        all.push_str(text);
        ends.push(all.len());
        lookup.insert_unique(hash, id, |&id| hasher.hash_one(slice(all, ends, id as usize)));
        Symbol(id)
    }

    /// The symbol of `text` if it was interned.
    pub fn find(&self, text: &str) -> Option<Symbol> {
        let hash = self.hasher.hash_one(text);
        self.lookup.find(hash, |&id| slice(&self.text, &self.ends, id as usize) == text).map(|&id| Symbol(id))
    }

    /// The text of `symbol`.
    pub fn text(&self, symbol: Symbol) -> &str {
        slice(&self.text, &self.ends, symbol.index())
    }

    /// Number of distinct texts.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether no text was interned.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Hands every distinct text with its symbol to `visit`.
    pub fn for_each(&self, mut visit: impl FnMut(Symbol, &str)) {
        (0..self.len()).for_each(|id| visit(Symbol(id as u32), slice(&self.text, &self.ends, id)));
    }

    /// Evaluates `property` once per distinct text; index the result with [`Symbol::index`].
    pub fn classify<T>(&self, property: impl Fn(&str) -> T) -> Vec<T> {
        (0..self.len()).map(|id| property(slice(&self.text, &self.ends, id))).collect()
    }
}

fn slice<'a>(text: &'a str, ends: &[usize], id: usize) -> &'a str {
    let start = if id == 0 { 0 } else { ends[id - 1] };
    &text[start..ends[id]]
}

/// Turns symbol columns into Arrow dictionaries that hold only the texts the column uses.
pub struct DictionaryBuilder<'a> {
    symbols: &'a SymbolTable,
    /// Scratch: symbol -> position in the current column's dictionary, `u32::MAX` for unused.
    renumbered: Vec<u32>,
}

impl<'a> DictionaryBuilder<'a> {
    /// A builder over the texts of `symbols`.
    pub fn new(symbols: &'a SymbolTable) -> Self {
        Self { symbols, renumbered: vec![u32::MAX; symbols.len()] }
    }

    /// The dictionary array of `column`, its entries in order of first appearance.
    pub fn encode(&mut self, column: Vec<Symbol>, nulls: Option<NullBuffer>) -> ArrayRef {
        let Self { symbols, renumbered } = self;
        let mut used: Vec<u32> = Vec::new();
        // A map over the symbols themselves: the codes are written where they stood.
        let mut row = 0;
        let codes: Vec<u32> = column
            .into_iter()
            .map(|symbol| {
                let at = row;
                row += 1;
                if nulls.as_ref().is_some_and(|n| n.is_null(at)) {
                    return 0;
                }
                let code = &mut renumbered[symbol.index()];
                if *code == u32::MAX {
                    *code = used.len() as u32;
                    used.push(symbol.0);
                }
                *code
            })
            .collect();
        let texts: StringArray = used.iter().map(|&id| Some(symbols.text(Symbol(id)))).collect();
        for id in used {
            renumbered[id as usize] = u32::MAX;
        }
        let keys = PrimitiveArray::<UInt32Type>::new(ScalarBuffer::from(codes), nulls);
        Arc::new(DictionaryArray::new(keys, Arc::new(texts)))
    }
}
