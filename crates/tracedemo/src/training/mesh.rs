//! The ranks of a job and their process groups.

use super::options::Parallel;

/// A dimension of parallelism that ranks communicate in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dimension {
    Tp,
    Pp,
    Dp,
    Fsdp,
    Ep,
}

impl Dimension {
    pub(super) const ALL: [Self; 5] = [Self::Tp, Self::Pp, Self::Dp, Self::Fsdp, Self::Ep];

    pub(super) fn name(self) -> &'static str {
        ["tp", "pp", "dp", "fsdp", "ep"][self as usize]
    }
}

/// Place of a rank in each dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) tp: u32,
    pub(super) pp: u32,
    pub(super) dp: u32,
    pub(super) fsdp: u32,
}

/// Ranks in the order of Megatron and torchtitan: those of tensor parallelism are next to each other, stages far apart.
impl Parallel {
    pub(super) fn place(self, rank: u32) -> Place {
        let Self { tp, dp, fsdp, .. } = self;
        Place { tp: rank % tp, fsdp: rank / tp % fsdp, dp: rank / tp / fsdp % dp, pp: rank / tp / fsdp / dp }
    }

    fn rank(self, Place { tp, pp, dp, fsdp }: Place) -> u32 {
        ((pp * self.dp + dp) * self.fsdp + fsdp) * self.tp + tp
    }

    /// The ranks that a rank communicates with in a dimension, with itself.
    pub(super) fn group(self, rank: u32, dimension: Dimension) -> Vec<u32> {
        let place = self.place(rank);
        let all = |count: u32, at: &dyn Fn(u32) -> Place| (0..count).map(|it| self.rank(at(it))).collect();
        match dimension {
            Dimension::Tp => all(self.tp, &|tp| Place { tp, ..place }),
            Dimension::Pp => all(self.pp, &|pp| Place { pp, ..place }),
            Dimension::Dp => all(self.dp, &|dp| Place { dp, ..place }),
            Dimension::Fsdp => all(self.fsdp, &|fsdp| Place { fsdp, ..place }),
            Dimension::Ep => {
                let data = place.dp * self.fsdp + place.fsdp;
                let first = data - data % self.ep;
                all(self.ep, &|it| {
                    let data = first + it;
                    Place { dp: data / self.fsdp, fsdp: data % self.fsdp, ..place }
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Dimension, Parallel};

    #[test]
    fn each_rank_is_in_its_groups_and_all_of_a_group_agree() {
        let parallel = Parallel { tp: 2, pp: 3, dp: 2, fsdp: 2, ep: 2 };
        let ranks = parallel.ranks().expect("few");
        for rank in 0..ranks {
            assert_eq!(parallel.rank(parallel.place(rank)), rank);
            for dimension in Dimension::ALL {
                let group = parallel.group(rank, dimension);
                assert!(group.contains(&rank) && group.is_sorted());
                assert!(group.iter().all(|&other| parallel.group(other, dimension) == group));
            }
        }
        assert_eq!(parallel.group(5, Dimension::Tp), [4, 5]);
        assert_eq!(parallel.group(5, Dimension::Pp), [5, 13, 21]);
        assert_eq!(parallel.group(5, Dimension::Ep), [5, 7]);
    }
}
