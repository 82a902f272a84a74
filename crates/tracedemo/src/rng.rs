//! Seeded randomness with integer arithmetic only, so that all machines agree.

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// Generator of one purpose: equal seeds with different salts are unrelated.
    pub(crate) fn new(seed: u64, salt: u64) -> Self {
        let mut rng = Self(seed ^ salt.wrapping_mul(0xd6e8_feb8_6659_fd93));
        rng.next();
        rng
    }

    /// Next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Host time around `mean_ns`: -12 to +12 %, and now and then a hiccup. At least 1 ns, so that
    /// intervals nest strictly.
    pub(crate) fn host(&mut self, mean_ns: u32) -> i64 {
        let bits = self.next();
        let mut permille = 880 + i64::from(bits as u32 % 241);
        if (bits >> 32).is_multiple_of(768) {
            permille += 1800;
        }
        (i64::from(mean_ns) * permille / 1000).max(1)
    }

    /// GPU time around `mean_ns`: -2 to +4 %.
    pub(crate) fn gpu(&mut self, mean_ns: u32) -> i64 {
        let permille = 980 + i64::from(self.next() as u32 % 61);
        (i64::from(mean_ns) * permille / 1000).max(1)
    }
}
