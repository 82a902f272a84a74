use std::collections::HashMap;

use proptest::prelude::*;

use super::Numbering;

proptest! {
    #[test]
    fn rows_have_one_number_if_they_agree(
        rows in proptest::collection::vec(proptest::collection::vec(proptest::option::of(0i64..9), 3), 0..120),
        columns in 1usize..4,
        part in 1usize..20,
    ) {
        let mut numbering = Numbering::default();
        let mut found: Vec<u32> = Vec::new();
        for rows in rows.chunks(part) {
            let mut numbers = Vec::new();
            for column in 0..columns {
                numbering.add_column(column, rows.iter().map(|row| row[column]), &mut numbers);
            }
            numbering.end_part(&numbers);
            found.extend(numbers);
        }
        let mut known: HashMap<&[Option<i64>], u32> = HashMap::new();
        let mut firsts: Vec<u32> = Vec::new();
        for (index, row) in (0_u32..).zip(&rows) {
            let next = known.len() as u32;
            let number = *known.entry(&row[..columns]).or_insert(next);
            if number == next {
                firsts.push(index);
            }
            prop_assert_eq!(found[index as usize], number);
        }
        prop_assert_eq!(numbering.firsts(), &firsts[..]);
    }
}
