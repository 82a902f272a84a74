//! When collectives end: at the same time on every rank, though ranks are made one by one.
//!
//! Every rank first plays a few steps of an undisturbed rank, the same for all, and learns from
//! them when each collective of a step ends. The job's schedule is that, stretched a little: a rank
//! arrives early, and its collective lasts until the schedule's time. The later a rank arrives, the
//! shorter its collectives are, as with real stragglers.

use crate::facts::Facts;
use crate::rng::Rng;

/// Slack of the schedule over an undisturbed rank, percent.
const SLACK_PCT: i64 = 4;
/// The same where the slowest rank is known, so that it is seen to come last.
const SLACK_WITH_FACTS_PCT: i64 = 2;
/// From the end of the last collective of all ranks to the start of that of a host.
const HOST_GAP_NS: i64 = 1_000;
/// Slack of the collective of a host over its mean, percent.
const HOST_SLACK_PCT: i64 = 5;
/// Ranks do not leave a collective in the same nanosecond; up to this.
const END_JITTER_NS: u64 = 400;

/// The times that all ranks of a job agree on.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    seed: u64,
    ranks: u32,
    facts: Option<Facts>,
    period_ns: i64,
    collective_ends_ns: Vec<i64>,
    step_start_ns: i64,
}

impl Schedule {
    /// Schedule of a job that starts its first step at `first_step_ns`, whose undisturbed steps take
    /// `period_ns` and whose collectives end `collective_ends_ns` after the step's start.
    pub(crate) fn new(
        seed: u64,
        ranks: u32,
        facts: Option<Facts>,
        first_step_ns: i64,
        period_ns: i64,
        collective_ends_ns: &[i64],
    ) -> Self {
        let slack_pct = if facts.is_some() { SLACK_WITH_FACTS_PCT } else { SLACK_PCT };
        let stretch = |ns: i64| ns + ns * slack_pct / 100;
        let collective_ends_ns = collective_ends_ns.iter().map(|&ns| stretch(ns)).collect();
        let (period_ns, step_start_ns) = (stretch(period_ns), first_step_ns);
        Self { seed, ranks, facts, period_ns, collective_ends_ns, step_start_ns }
    }

    /// Goes on to the step after `step`.
    pub(crate) fn next(&mut self, step: u64) {
        self.step_start_ns += self.period_ns + self.latest_ns(step);
    }

    /// When that collective of `step`, the step under way, ends on every rank.
    pub(crate) fn collective_end_ns(&self, step: u64, number: u32) -> i64 {
        let after = self.collective_ends_ns.get(number as usize).copied().unwrap_or(0);
        self.step_start_ns + self.latest_ns(step) + after
    }

    /// When the collective of a rank's host ends on its ranks: it begins when that of all ranks before it,
    /// `number`, has ended, and takes `dur_ns`.
    pub(crate) fn host_collective_end_ns(&self, step: u64, number: u32, dur_ns: i64) -> i64 {
        self.collective_end_ns(step, number) + HOST_GAP_NS + dur_ns + dur_ns * HOST_SLACK_PCT / 100
    }

    /// By how much later than the others a rank leaves a collective.
    pub(crate) fn end_jitter_ns(&self, step: u64, number: u32, rank: u32) -> i64 {
        if self.facts.is_none() {
            return 0;
        }
        let salt = step << 32 ^ u64::from(number) << 20 ^ u64::from(rank) ^ 0xe4d << 48;
        Rng::new(self.seed, salt).below(END_JITTER_NS) as i64
    }

    /// How late the slowest data loader of the job is.
    fn latest_ns(&self, step: u64) -> i64 {
        if let Some(facts) = &self.facts {
            return facts.latest_ns(step);
        }
        (0..self.ranks.min(64)).map(|rank| late_ns(self.seed, step, rank)).max().unwrap_or(0)
    }
}

/// How late the data loader of a rank is: now and then some milliseconds.
pub(crate) fn late_ns(seed: u64, step: u64, rank: u32) -> i64 {
    let mut rng = Rng::new(seed, (step << 16) ^ u64::from(rank % 64) ^ 0x1a7e);
    if rng.below(24) == 0 { 1_500_000 + rng.below(4_000_000) as i64 } else { 0 }
}
