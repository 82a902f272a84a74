//! What the ranks of a job share: seeded randomness, faults, and the times at which collectives end.

use crate::gpu::GPUS;
use crate::options::{Cause, DemoOptions};
use serde_json::{Value, json};

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

/// Largest amount by which a host's clock is off, ns.
const MOST_OFFSET_NS: u64 = 4_000_000;
/// How many times as long a slow launch takes.
const LAUNCH_FACTOR: i64 = 8;
/// Every so many steps the data loader of one rank is late.
const LATE_EVERY: u64 = 2;
/// Least and most by which it is late, ns.
const LATE_NS: (i64, u64) = (3_500_000, 2_000_000);

/// The faults of a job; all follow from the seed. One of at least one full host has all of them, and one with a
/// [`Cause`] at most that:
///
/// - the GPU of one rank is slow: it comes last to the collectives of all ranks;
/// - the links of one host are slow: its ranks' own collective takes several times as long as that of the
///   other hosts (none with fewer than two full hosts);
/// - the data loader of one rank is late in every other step;
/// - the clock of each host is off: its times are true times plus the offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    seed: u64,
    ranks: u32,
    /// Rank whose GPU is slow.
    pub slow_rank: Option<u32>,
    /// Rank whose data loader is late.
    pub late_rank: Option<u32>,
    /// Host whose links are slow.
    pub slow_host: Option<u32>,
}

impl Faults {
    /// How much slower the slow rank's GPU is, in units of 1/1024.
    pub(crate) const SLOWER: i64 = 280;
    /// How many times as long a message takes over the slow link.
    pub(crate) const LINK_FACTOR: i64 = 4;

    /// The faults of a job; without a cause, smaller ones have none.
    #[must_use]
    pub fn of(seed: u64, ranks: u32, cause: Option<Cause>) -> Option<Self> {
        if ranks < GPUS && cause.is_none() {
            return None;
        }
        let mut rng = Rng::new(seed, 0xfac7);
        let hosts = (ranks / GPUS).max(1);
        // On three hosts of their own if there are as many, so that none hides another.
        let first = rng.below(u64::from(hosts)) as u32;
        let host = |after: u32| (first + after) % hosts;
        let slow_rank = (host(1) * GPUS + rng.below(4) as u32) % ranks;
        let late_rank = (host(2) * GPUS + 4 + rng.below(4) as u32) % ranks;
        let has = |one: Cause| cause.is_none_or(|cause| cause == one);
        Some(Self {
            seed,
            ranks,
            slow_rank: has(Cause::SlowRank).then_some(slow_rank),
            late_rank: has(Cause::SlowLoader).then_some(late_rank),
            slow_host: (has(Cause::SlowLink) && hosts > 1).then_some(first),
        })
    }

    /// How late the latest data loader of the job is.
    pub(crate) fn latest_ns(&self, step: u64) -> i64 {
        if self.late_rank.is_some() && step % LATE_EVERY == 1 {
            LATE_NS.0 + Rng::new(self.seed, step ^ 0x1a7e).below(LATE_NS.1) as i64
        } else {
            0
        }
    }

    /// How far the clock of a rank's host is ahead.
    #[must_use]
    pub fn clock_offset_ns(&self, rank: u32) -> i64 {
        let mut rng = Rng::new(self.seed, 0xc10c << 16 ^ u64::from(rank / GPUS));
        rng.below(2 * MOST_OFFSET_NS) as i64 - MOST_OFFSET_NS as i64
    }

    /// The faults as a JSON object; the steps are those from `first_step` on.
    #[must_use]
    pub fn to_json(&self, first_step: u64, steps: u64) -> Value {
        let host = |rank: u32| format!("node{:02}", rank / GPUS);
        let late: Vec<_> = (first_step..first_step + steps)
            .filter(|&step| self.latest_ns(step) > 0)
            .map(|step| json!({"step": step, "late_ns": self.latest_ns(step)}))
            .collect();
        let link = self.slow_host.map(|slow| {
            let ranks: Vec<u32> = (slow * GPUS..(slow + 1) * GPUS).collect();
            json!({"host": host(slow * GPUS), "ranks": ranks, "factor": Self::LINK_FACTOR, "process_group": "1"})
        });
        let offsets: Vec<i64> = (0..self.ranks).map(|rank| self.clock_offset_ns(rank)).collect();
        let slower_by = Self::SLOWER as f64 / 1024.0;
        let slow =
            self.slow_rank.map(|rank| json!({"rank": rank, "host": host(rank), "gpu_slower_by": slower_by}));
        let loader = self.late_rank.map(|rank| json!({"rank": rank, "host": host(rank), "steps": late}));
        json!({
            "truth_version": 1,
            "seed": self.seed,
            "ranks": self.ranks,
            "slow_rank": slow,
            "slow_link": link,
            "late_data_loader": loader,
            "clock_offsets_ns": offsets,
        })
    }
}

/// Slack of the schedule over an undisturbed rank, percent.
const SLACK_PCT: i64 = 4;
/// The same where the slowest rank is known, so that it is seen to come last.
const SLACK_WITH_FAULTS_PCT: i64 = 2;
/// From the end of the last collective of all ranks to the start of that of a host.
const HOST_GAP_NS: i64 = 1_000;
/// Slack of the collective of a host over its mean, percent.
const HOST_SLACK_PCT: i64 = 5;
/// Ranks do not leave a collective in the same nanosecond; up to this.
const END_JITTER_NS: u64 = 400;

/// A job and what is wrong with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) seed: u64,
    ranks: u32,
    pub(crate) cause: Option<Cause>,
    pub(crate) faults: Option<Faults>,
}

impl Job {
    /// The job of those options.
    pub(crate) fn of(options: &DemoOptions) -> Self {
        let DemoOptions { seed, ranks, cause, .. } = *options;
        Self { seed, ranks, cause, faults: Faults::of(seed, ranks, cause) }
    }

    /// How much slower a rank's GPU is because of a fault, in units of 1/1024.
    pub(crate) fn slower(&self, rank: u32) -> i64 {
        if self.faults.is_some_and(|faults| faults.slow_rank == Some(rank)) { Faults::SLOWER } else { 0 }
    }

    /// How many times as long a launch takes.
    pub(crate) fn launch_factor(&self) -> i64 {
        if self.cause == Some(Cause::SlowLaunches) { LAUNCH_FACTOR } else { 1 }
    }

    /// How many times as long the collective of a rank's host takes.
    pub(crate) fn link_factor(&self, rank: u32) -> i64 {
        let is_slow = self.faults.is_some_and(|faults| faults.slow_host == Some(rank / GPUS));
        if is_slow { Faults::LINK_FACTOR } else { 1 }
    }

    /// How late the data loader of a rank is: without faults, now and then some milliseconds.
    pub(crate) fn late_ns(&self, step: u64, rank: u32) -> i64 {
        if let Some(faults) = self.faults {
            return if faults.late_rank == Some(rank) { faults.latest_ns(step) } else { 0 };
        }
        let mut rng = Rng::new(self.seed, (step << 16) ^ u64::from(rank % 64) ^ 0x1a7e);
        if rng.below(24) == 0 { 1_500_000 + rng.below(4_000_000) as i64 } else { 0 }
    }

    /// By how much later than the others a rank leaves a collective.
    pub(crate) fn end_jitter_ns(&self, step: u64, number: u32, rank: u32) -> i64 {
        if self.faults.is_none() {
            return 0;
        }
        let salt = step << 32 ^ u64::from(number) << 20 ^ u64::from(rank) ^ 0xe4d << 48;
        Rng::new(self.seed, salt).below(END_JITTER_NS) as i64
    }

    /// How late the slowest data loader of the job is.
    fn latest_ns(&self, step: u64) -> i64 {
        match self.faults {
            Some(faults) => faults.latest_ns(step),
            None => (0..self.ranks.min(64)).map(|rank| self.late_ns(step, rank)).max().unwrap_or(0),
        }
    }
}

/// When each collective of a step ends on the ranks of each host, after the job's start.
pub(crate) type Meetings = Vec<Vec<i64>>;

/// The times that all ranks of a job agree on.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    job: Job,
    period_ns: i64,
    collective_ends_ns: Vec<i64>,
    step_start_ns: i64,
}

impl Schedule {
    /// Schedule of a job that starts its first step at `step_start_ns`, whose undisturbed steps take
    /// `period_ns` and whose collectives end `collective_ends_ns` after the step's start.
    pub(crate) fn new(job: Job, step_start_ns: i64, period_ns: i64, collective_ends_ns: &[i64]) -> Self {
        let slack_pct = if job.faults.is_some() { SLACK_WITH_FAULTS_PCT } else { SLACK_PCT };
        let stretch = |ns: i64| ns + ns * slack_pct / 100;
        let collective_ends_ns = collective_ends_ns.iter().map(|&ns| stretch(ns)).collect();
        Self { job, period_ns: stretch(period_ns), collective_ends_ns, step_start_ns }
    }

    /// Goes on to the step after `step`.
    pub(crate) fn next(&mut self, step: u64) {
        self.step_start_ns += self.period_ns + self.job.latest_ns(step);
    }

    /// When that collective of `step`, the step under way, ends on every rank.
    pub(crate) fn collective_end_ns(&self, step: u64, number: u32) -> i64 {
        let after = self.collective_ends_ns.get(number as usize).copied().unwrap_or(0);
        self.step_start_ns + self.job.latest_ns(step) + after
    }

    /// When the collective of a rank's host ends on its ranks: it begins when that of all ranks before it,
    /// `number`, has ended, and takes `dur_ns`.
    pub(crate) fn host_collective_end_ns(&self, step: u64, number: u32, dur_ns: i64) -> i64 {
        self.collective_end_ns(step, number) + HOST_GAP_NS + dur_ns + dur_ns * HOST_SLACK_PCT / 100
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_jobs_have_none() {
        assert_eq!(Faults::of(0, 7, None), None);
        assert_eq!(Faults::of(0, 8, None).and_then(|faults| faults.slow_host), None);
    }

    #[test]
    fn faults_are_on_hosts_of_their_own() {
        for seed in 0..50 {
            let faults = Faults::of(seed, 64, None).expect("large enough");
            let [slow, late] = [faults.slow_rank, faults.late_rank].map(|rank| rank.expect("a rank"));
            let hosts = [slow / 8, late / 8, faults.slow_host.expect("several hosts")];
            assert!(hosts[0] != hosts[1] && hosts[1] != hosts[2] && hosts[0] != hosts[2]);
            assert!(hosts.iter().all(|&host| host < 8));
            assert_eq!(Faults::of(seed, 64, None), Some(faults));
        }
    }

    #[test]
    fn a_cause_is_the_only_fault() {
        let found = |cause, ranks| {
            let faults = Faults::of(5, ranks, Some(cause)).expect("a cause");
            [faults.slow_rank.is_some(), faults.late_rank.is_some(), faults.slow_host.is_some()]
        };
        assert_eq!(found(Cause::SlowRank, 2), [true, false, false]);
        assert_eq!(found(Cause::SlowLoader, 1), [false, true, false]);
        assert_eq!(found(Cause::SlowLink, 16), [false, false, true]);
        assert_eq!(found(Cause::Nothing, 64), [false; 3]);
    }

    #[test]
    fn a_clock_is_that_of_a_host() {
        let faults = Faults::of(3, 64, None).expect("large enough");
        assert_eq!(faults.clock_offset_ns(8), faults.clock_offset_ns(15));
        assert_ne!(faults.clock_offset_ns(8), faults.clock_offset_ns(16));
        assert!((0..64).all(|rank| faults.clock_offset_ns(rank).unsigned_abs() <= MOST_OFFSET_NS));
    }
}
