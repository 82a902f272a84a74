//! Texts that rows refer to by number, and the names of kernels.

use hashbrown::HashMap;
use rusqlite::{Connection, Statement};

use crate::schema::{Symbol, SymbolTable};
use crate::sqlite::catalog::Catalog;
use crate::sqlite::cells::Cells;
use crate::stats::Code;

/// Longest mangled name that is demangled: a name can repeat its parts, which takes room.
const LONGEST_MANGLED: usize = 1 << 14;

/// The texts of the table `StringTable`, each fetched when it is first met.
pub(super) struct Strings<'c> {
    fetch: Option<Statement<'c>>,
    known: HashMap<i64, Option<(Symbol, bool)>>,
    demangled: HashMap<Symbol, Option<Symbol>>,
}

impl<'c> Strings<'c> {
    pub(super) fn new(connection: &'c Connection, catalog: &Catalog, symbols: &mut SymbolTable) -> Self {
        let mut strings = Self { fetch: None, known: HashMap::new(), demangled: HashMap::new() };
        if catalog.table("StringTable").is_some_and(|table| table.is_key("_id_")) {
            strings.fetch = connection.prepare("SELECT value FROM StringTable WHERE _id_ = ?1").ok();
        } else if catalog.has("StringTable", &["_id_", "value"]) {
            strings.load(connection, symbols);
        }
        strings
    }

    /// Takes every text: without a key each look-up would scan the table.
    fn load(&mut self, connection: &Connection, symbols: &mut SymbolTable) {
        let Ok(mut statement) = connection.prepare("SELECT _id_, value FROM StringTable") else { return };
        let Ok(mut rows) = statement.query([]) else { return };
        while let Ok(Some(row)) = rows.next() {
            let text = row.get_ref(1).ok().and_then(|value| value.as_bytes_or_null().ok().flatten());
            if let (Ok(id), Some(text)) = (row.get::<_, i64>(0), text) {
                self.known.insert(id, Some(intern(symbols, text)));
            }
        }
    }

    /// The text that a cell refers to; null without a finding for null and 0.
    pub(super) fn cell(
        &mut self,
        symbols: &mut SymbolTable,
        cells: &mut Cells<'_, '_>,
        cell: usize,
    ) -> Option<Symbol> {
        let id = cells.int(cell).filter(|&id| id != 0)?;
        let found = self.find(symbols, id);
        match found {
            None => cells.note(Code::UnknownString),
            Some((_, false)) => cells.note(Code::BadUtf8),
            Some((_, true)) => {}
        }
        found.map(|(symbol, _)| symbol)
    }

    /// The text with a number, and whether it is valid UTF-8.
    pub(super) fn find(&mut self, symbols: &mut SymbolTable, id: i64) -> Option<(Symbol, bool)> {
        let Self { fetch, known, .. } = self;
        *known.entry(id).or_insert_with(|| {
            let mut rows = fetch.as_mut()?.query([id]).ok()?;
            let text = rows.next().ok()??.get_ref(0).ok()?.as_bytes_or_null().ok()??;
            Some(intern(symbols, text))
        })
    }

    /// A kernel's name as people write it, and the one the compiler made if they differ.
    pub(super) fn kernel(&mut self, symbols: &mut SymbolTable, name: Symbol) -> (Symbol, Option<Symbol>) {
        let demangled = *self.demangled.entry(name).or_insert_with(|| {
            let text = demangle(symbols.text(name))?;
            Some(symbols.intern(&text))
        });
        demangled.map_or((name, None), |demangled| (demangled, Some(name)))
    }
}

fn intern(symbols: &mut SymbolTable, raw: &[u8]) -> (Symbol, bool) {
    let text = String::from_utf8_lossy(raw);
    (symbols.intern(&text), matches!(text, std::borrow::Cow::Borrowed(_)))
}

/// The name that a mangled one stands for.
fn demangle(name: &str) -> Option<String> {
    if !name.starts_with("_Z") || name.len() > LONGEST_MANGLED {
        return None;
    }
    cpp_demangle::Symbol::new(name).ok()?.demangle().ok()
}

#[cfg(test)]
mod tests {
    use super::demangle;

    #[test]
    fn kernels_are_called_what_people_call_them() {
        let mangled = "_ZN2at6native18elementwise_kernelILi512ELi1EZNS0_4fillEvEUliE_EEviT1_";
        let name = demangle(mangled).unwrap();
        assert!(name.starts_with("void at::native::elementwise_kernel<512, 1, "), "{name}");
        assert_eq!(demangle("_Z4gemmPf").as_deref(), Some("gemm(float*)"));
        assert_eq!(demangle("volta_sgemm_128x64_nn"), None);
        assert_eq!(demangle("_Znonsense"), None);
    }
}
