//! Tracks: the (pid, tid) pairs that events are drawn on.

use std::cmp::Ordering;
use std::collections::HashMap;

use crate::schema::{Symbol, SymbolTable};

/// A process or thread id as recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ident {
    /// The event has none.
    Missing,
    /// A number, or a text that is one.
    Int(i64),
    /// Any other text.
    Text(Symbol),
}

impl Ident {
    /// The number, if it is one.
    pub fn int(self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(value),
            _ => None,
        }
    }

    /// The text, if it is one.
    pub fn text(self) -> Option<Symbol> {
        match self {
            Self::Text(symbol) => Some(symbol),
            _ => None,
        }
    }

    fn order(self, other: Self, symbols: &SymbolTable) -> Ordering {
        let class = |ident: Self| match ident {
            Self::Int(_) => 0,
            Self::Text(_) => 1,
            Self::Missing => 2,
        };
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => a.cmp(&b),
            (Self::Text(a), Self::Text(b)) => symbols.text(a).cmp(symbols.text(b)),
            _ => class(self).cmp(&class(other)),
        }
    }
}

/// A (pid, tid) pair.
pub type TrackKey = (Ident, Ident);

/// Numbers every (pid, tid) pair of a trace.
#[derive(Debug, Default)]
pub struct TrackTable {
    keys: Vec<TrackKey>,
    lookup: HashMap<TrackKey, u32>,
}

impl TrackTable {
    /// The number of `key`, new or known.
    pub fn number(&mut self, key: TrackKey) -> u32 {
        let Self { keys, lookup } = self;
        *lookup.entry(key).or_insert_with(|| {
            keys.push(key);
            (keys.len() - 1) as u32
        })
    }

    /// The pair of track `number`.
    pub fn key(&self, number: u32) -> TrackKey {
        self.keys[number as usize]
    }

    /// The same tracks, in other processes; two may be one then, until they are sorted without the unused.
    pub(crate) fn with_pids(&self, pids: &[Ident]) -> Self {
        let keys = self.keys.iter().zip(pids).map(|(&(_, tid), &pid)| (pid, tid)).collect();
        Self { keys, lookup: HashMap::new() }
    }

    /// Number of tracks.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is no track.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Renumbers the tracks by pid and tid, so that numbers do not depend on the order in which
    /// threads met them. Returns the new number of each old one.
    pub fn sort(&mut self, symbols: &SymbolTable) -> Vec<u32> {
        self.sort_used(&vec![true; self.keys.len()], symbols)
    }

    /// The same, without the tracks that are not `used`: a thread may have met them in bytes that
    /// turned out to be something else.
    pub fn sort_used(&mut self, used: &[bool], symbols: &SymbolTable) -> Vec<u32> {
        let is_used = |&number: &u32| used.get(number as usize) == Some(&true);
        let mut order: Vec<u32> = (0..self.keys.len() as u32).filter(is_used).collect();
        order.sort_by(|&a, &b| {
            let (a, b) = (self.keys[a as usize], self.keys[b as usize]);
            a.0.order(b.0, symbols).then_with(|| a.1.order(b.1, symbols))
        });
        let mut renumbered = vec![u32::MAX; self.keys.len()];
        for (new, &old) in order.iter().enumerate() {
            renumbered[old as usize] = new as u32;
        }
        self.keys = order.iter().map(|&old| self.keys[old as usize]).collect();
        self.lookup = self.keys.iter().enumerate().map(|(number, &key)| (key, number as u32)).collect();
        renumbered
    }
}
