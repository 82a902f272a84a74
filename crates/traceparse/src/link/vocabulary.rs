//! The texts that the link stage writes.

use super::gpu::Link;
use super::names::{Activity, module_name};
use super::phases::Phase;
use crate::schema::{Symbol, SymbolTable};

/// Symbols of the texts that the link stage writes.
pub(super) struct Vocabulary {
    phases: [Symbol; 4],
    links: [Symbol; 7],
    activities: [Symbol; 6],
    /// By symbol: the module instance that a name of a frame tells.
    modules: Vec<Option<Symbol>>,
}

impl Vocabulary {
    pub(super) fn new(symbols: &mut SymbolTable) -> Self {
        let names = symbols.classify(|text| module_name(text).map(str::to_owned));
        let modules = names.into_iter().map(|name| name.map(|name| symbols.intern(&name))).collect();
        Self {
            phases: Phase::ALL.map(|phase| symbols.intern(phase.name())),
            links: Link::ALL.map(|link| symbols.intern(link.name())),
            activities: Activity::ALL.map(|activity| symbols.intern(activity.name())),
            modules,
        }
    }

    pub(super) fn phase(&self, phase: Phase) -> Symbol {
        self.phases[phase as usize]
    }

    pub(super) fn link(&self, link: Link) -> Symbol {
        self.links[link as usize]
    }

    pub(super) fn activity(&self, activity: Activity) -> Symbol {
        self.activities[activity as usize]
    }

    /// The module instance that a frame's name tells; the name itself if it tells none.
    pub(super) fn module(&self, name: Symbol) -> Symbol {
        self.modules.get(name.index()).copied().flatten().unwrap_or(name)
    }
}
