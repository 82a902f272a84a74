//! Names of NVTX domains and categories.

use hashbrown::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::formats::sqlite::texts::Texts;
use crate::schema::{Ranges, Symbol, SymbolTable};

/// What has a number in the events and a name elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Named {
    /// Process and domain.
    Domain(Option<i64>, i64),
    /// Process, domain and category.
    Category(Option<i64>, i64, i64),
}

impl Named {
    /// What it is called if nothing names it.
    fn fallback(self) -> String {
        match self {
            Self::Domain(_, domain) => format!("domain {domain}"),
            Self::Category(_, _, category) => format!("category {category}"),
        }
    }
}

/// Names of domains and categories.
///
/// An event that gives a name may stand behind those that use it, or in a part of the table that
/// another thread reads. So rows get a stand-in, which is replaced when everything was read.
#[derive(Debug, Default)]
pub(super) struct Names(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    stand_ins: HashMap<Named, Symbol>,
    /// With the rowid of the event that gives it: the first counts.
    given: HashMap<Named, (i64, Symbol)>,
}

impl Names {
    /// Puts names in place of the stand-ins.
    pub(super) fn resolve(self, symbols: &mut SymbolTable, ranges: &mut Ranges) {
        let Known { stand_ins, given } = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let name = |(named, stand_in): (Named, Symbol)| {
            let given = given.get(&named).map(|&(_, name)| name);
            (stand_in, given.unwrap_or_else(|| symbols.intern(&named.fallback())))
        };
        let names: HashMap<Symbol, Symbol> = stand_ins.into_iter().map(name).collect();
        let replace = |symbol: Symbol| names.get(&symbol).copied().unwrap_or(symbol);
        ranges.domain.map_in_place(replace);
        ranges.category.map_in_place(replace);
    }

    /// The stand-in for a name; `met` are those that the thread has met.
    pub(super) fn stand_in(
        &self,
        met: &mut HashMap<Named, Symbol>,
        named: Named,
        texts: &Texts<'_>,
    ) -> Symbol {
        // The control character keeps it apart from every name in use.
        let new = || texts.intern_clean(&format!("\u{1}{named:?}"));
        *met.entry(named).or_insert_with(|| *self.lock().stand_ins.entry(named).or_insert_with(new))
    }

    /// Takes note of a name that the event with a rowid gives.
    pub(super) fn give(&self, named: Named, rowid: i64, name: Symbol) {
        let mut known = self.lock();
        let given = known.given.entry(named).or_insert((rowid, name));
        if rowid < given.0 {
            *given = (rowid, name);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
