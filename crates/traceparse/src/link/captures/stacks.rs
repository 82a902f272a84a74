//! Where in the program an op or a call of a capture stands: the modules and the lines of source around it.

use hashbrown::HashMap;

use crate::link::NONE;
use crate::link::names::module_name;
use crate::link::order::{Extents, TrackOrder, innermost_containers};
use crate::schema::{Column, Symbol, SymbolTable, Tables};

/// Frames further up are left out: texts grow with the depth.
const MOST_LEVELS: usize = 256;
const LONGEST_NAME: usize = 1024;
/// Text that the stacks of one capture may take; those beyond are unknown.
const MOST_TEXT: usize = 1 << 26;

/// What stands around a frame.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Place {
    pub(super) module_path: Option<Symbol>,
    pub(super) call_stack: Option<Symbol>,
}

/// Finds places, once for each Python frame.
pub(super) struct Places<'a> {
    tables: &'a Tables,
    order: TrackOrder,
    extents: Extents<'a>,
    tracks: usize,
    known: HashMap<u32, Place>,
    room: usize,
}

impl<'a> Places<'a> {
    pub(super) fn new(tables: &'a Tables, tracks: usize) -> Self {
        let python = &tables.python;
        let extents = Extents::new(&python.start_ns, &python.dur_ns);
        let order = TrackOrder::new(python.track.values(), tracks, extents, |_| true);
        Self { tables, order, extents, tracks, known: HashMap::new(), room: MOST_TEXT }
    }

    /// The places of the rows of another table that `keep` selects, by index.
    pub(super) fn of_rows(
        &mut self,
        track: &Column<u32>,
        extents: Extents<'_>,
        keep: impl Fn(u32) -> bool,
        symbols: &mut SymbolTable,
    ) -> HashMap<u32, Place> {
        let rows = TrackOrder::new(track.values(), self.tracks, extents, keep);
        let reach = |row| extents.of(row);
        let frames = innermost_containers(&self.order, self.extents, |_| true, &rows, reach, extents.len());
        let placed = rows.indices().iter().filter(|&&row| frames[row as usize] != NONE);
        placed.map(|&row| (row, self.of_frame(frames[row as usize], symbols))).collect()
    }

    fn of_frame(&mut self, frame: u32, symbols: &mut SymbolTable) -> Place {
        if let Some(place) = self.known.get(&frame) {
            return *place;
        }
        let python = &self.tables.python;
        let rows = python.row.values();
        let (mut modules, mut lines): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        let mut next = Some(frame);
        // A bound, for frames of a hostile file may be deeper than any program.
        for _ in 0..1 << 14 {
            let Some(at) = next else { break };
            if let Some(name) = python.name.get(at as usize).map(|name| symbols.text(name)) {
                let list = if module_name(name).is_some() { &mut modules } else { &mut lines };
                if list.len() < MOST_LEVELS && (module_name(name).is_some() || is_source_line(name)) {
                    let name: String = module_name(name).unwrap_or(name).chars().take(LONGEST_NAME).collect();
                    list.push(name.replace(';', ","));
                }
            }
            let parent = python.parent_row.get(at as usize);
            next = parent.and_then(|row| rows.binary_search(&row).ok()).map(|at| at as u32);
        }
        modules.reverse();
        let mut text = |parts: &[String], separator: &str| {
            let text = parts.join(separator);
            if text.is_empty() || text.len() > self.room {
                return None;
            }
            if symbols.find(&text).is_none() {
                self.room -= text.len();
            }
            Some(symbols.intern(&text))
        };
        let place = Place { module_path: text(&modules, "/"), call_stack: text(&lines, ";") };
        self.known.insert(frame, place);
        place
    }
}

/// Whether the name of a frame tells file, line and function: `layers/linear.py(121): forward`.
fn is_source_line(name: &str) -> bool {
    let mut rest = name;
    while let Some(at) = rest.find("): ") {
        let before = &rest[..at];
        let digits = before.len() - before.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        if digits > 0 && before[..before.len() - digits].ends_with('(') {
            return true;
        }
        rest = &rest[at + 3..];
    }
    false
}

#[cfg(test)]
mod tests {
    use super::is_source_line;

    #[test]
    fn lines_of_source() {
        assert!(is_source_line("a/b.py(12): f"));
        assert!(is_source_line("x): (3): f"));
        for other in ["<built-in function len>", "a(): f", "a(1)", "(x1): f", ""] {
            assert!(!is_source_line(other), "{other}");
        }
    }
}
