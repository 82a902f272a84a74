//! Numbers single words.

use hashbrown::HashMap;

/// Numbers words in the order in which they come first.
#[derive(Debug)]
pub struct WordNumbering {
    /// Words with their numbers, by what they hash to: the two that came last, which are found at once.
    recent: Vec<[(u64, u32); 2]>,
    shift: u32,
    known: HashMap<u64, u32>,
}

impl WordNumbering {
    /// How much is kept at hand.
    const MOST_RECENT: usize = 4_096;
    /// Not the number of a word.
    const NOTHING: u32 = u32::MAX;

    /// For so many words that will be asked for.
    #[must_use]
    pub fn new(words: usize) -> Self {
        let places = words.clamp(2, Self::MOST_RECENT).next_power_of_two();
        let recent = vec![[(0, Self::NOTHING); 2]; places];
        Self { recent, shift: u64::BITS - places.trailing_zeros(), known: HashMap::new() }
    }

    /// The number of a word: the next one if it is new.
    #[inline]
    pub fn number(&mut self, word: u64) -> u32 {
        // Fibonacci hashing: the fraction of the golden ratio spreads neighbours.
        let place = (word.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize;
        let is_it = |&(known, number): &(u64, u32)| known == word && number != Self::NOTHING;
        match self.recent.get(place) {
            Some([last, _]) if is_it(last) => last.1,
            Some([_, before]) if is_it(before) => before.1,
            _ => self.look_up(word, place),
        }
    }

    #[cold]
    fn look_up(&mut self, word: u64, place: usize) -> u32 {
        let next = self.known.len() as u32;
        let number = *self.known.entry(word).or_insert(next);
        if let Some(recent) = self.recent.get_mut(place) {
            *recent = [(word, number), recent[0]];
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use super::WordNumbering;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_are_numbered_as_they_come(words in proptest::collection::vec(prop_oneof![0..9_u64, any::<u64>()], 0..60)) {
            let mut numbering = WordNumbering::new(words.len() / 8);
            let mut met: Vec<u64> = Vec::new();
            for word in words {
                if !met.contains(&word) {
                    met.push(word);
                }
                let expected = met.iter().position(|&other| other == word).map(|at| at as u32);
                prop_assert_eq!(Some(numbering.number(word)), expected);
            }
        }
    }
}
