//! When everything in a step happens, on the host and on the GPU of each rank.

use std::collections::{HashMap, VecDeque};
use std::iter;

use super::mesh::Dimension;
use super::options::{Parallel, TrainingFault, TrainingOptions};
use super::plan::{CHOICES, Exchange, Instr, Partners, Pass, Plan, SEQUENCE, SEQUENCES, Stream};
use crate::job::Rng;

/// From the end of a launch to the start of its kernel, and between two kernels of a stream, ns.
const LATENCY_NS: i64 = 3_000;
const GAP_NS: i64 = 900;
/// Calls that order streams, ns.
pub(super) const EVENT_NS: i64 = 1_000;
const UNKNOWN: i64 = i64::MIN;

/// From the first bound up to, not including, the second.
pub(super) type Extent = (i64, i64);

/// A rank that plays the steps of its stage.
pub(super) struct Rank<'a> {
    pub(super) plan: &'a Plan,
    pub(super) number: u32,
    /// Of the current step, by number: operators, launches and GPU operations.
    pub(super) ops: Vec<Extent>,
    pub(super) launches: Vec<Extent>,
    pub(super) works: Vec<Extent>,
    /// Calls that wait for the GPU.
    pub(super) waits: Vec<Extent>,
    rng: Rng,
    now_ns: i64,
    free_ns: [i64; Stream::COUNT],
    queues: [VecDeque<u32>; Stream::COUNT],
    open: Vec<u32>,
    at: usize,
}

/// A collective: how many ranks have arrived, and when the last did.
#[derive(Clone, Copy, Debug, Default)]
struct Meeting {
    arrived: u32,
    last_ns: i64,
}

/// A collective of a group, which is known by its dimension and its first rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Work(u8, u32, u32),
    /// Of the stage from this one to the next.
    Transfer(u32, u32, Pass),
}

impl<'a> Rank<'a> {
    pub(super) fn new(options: &TrainingOptions, plan: &'a Plan, number: u32, start_ns: i64) -> Self {
        let nothing = (UNKNOWN, UNKNOWN);
        Self {
            plan,
            number,
            ops: vec![nothing; plan.ops.len()],
            launches: vec![nothing; plan.works.len()],
            works: vec![nothing; plan.works.len()],
            waits: Vec::new(),
            rng: Rng::new(options.seed, 0x7a1 + u64::from(number)),
            now_ns: start_ns,
            free_ns: [0; Stream::COUNT],
            queues: Default::default(),
            open: Vec::new(),
            at: 0,
        }
    }

    fn begin(&mut self) {
        self.at = 0;
        self.waits.clear();
        self.works.fill((UNKNOWN, UNKNOWN));
    }

    /// Plays the host until it waits for the GPU; returns whether anything happened.
    fn host(&mut self) -> bool {
        let plan = self.plan;
        let before = self.at;
        while let Some(&instr) = plan.instrs.get(self.at) {
            match instr {
                Instr::Begin(op) => {
                    self.now_ns += self.rng.host(600);
                    self.ops[op as usize].0 = self.now_ns;
                    self.open.push(op);
                }
                Instr::End => {
                    self.now_ns += self.rng.host(400);
                    let op = self.open.pop().expect("it was entered");
                    self.ops[op as usize].1 = self.now_ns;
                }
                Instr::Switch => self.now_ns += self.rng.host(4_000),
                Instr::Launch(work) => {
                    let spec = &plan.works[work as usize];
                    self.now_ns += self.rng.host(500) + EVENT_NS * spec.after.len() as i64;
                    let start_ns = self.now_ns;
                    self.now_ns += self.rng.host(3_800);
                    self.launches[work as usize] = (start_ns, self.now_ns);
                    self.now_ns += if spec.is_awaited { EVENT_NS } else { 0 };
                    self.queues[spec.stream as usize].push_back(work);
                }
                Instr::Synchronise(work) => {
                    let end_ns = match work {
                        Some(work) => self.works[work as usize].1,
                        None if self.queues.iter().all(VecDeque::is_empty) => {
                            self.works.iter().map(|work| work.1).max().unwrap_or(UNKNOWN)
                        }
                        None => UNKNOWN,
                    };
                    if end_ns == UNKNOWN {
                        break;
                    }
                    let start_ns = self.now_ns + self.rng.host(500);
                    self.now_ns = end_ns.max(start_ns) + self.rng.host(2_500);
                    self.waits.push((start_ns, self.now_ns));
                }
            }
            self.at += 1;
        }
        self.at > before
    }

    /// Plays the streams as far as launches and other ranks allow; returns whether anything happened.
    fn device(&mut self, job: &Job<'_>, step: u64, meetings: &mut HashMap<Key, Meeting>) -> bool {
        let plan = self.plan;
        let mut moved = false;
        for stream in 0..Stream::COUNT {
            while let Some(&work) = self.queues[stream].front() {
                let (index, spec) = (work as usize, &plan.works[work as usize]);
                let ends = spec.after.iter().map(|&other| self.works[other as usize].1);
                let after_ns = ends.clone().max().unwrap_or(0);
                if ends.clone().any(|end_ns| end_ns == UNKNOWN) {
                    break;
                }
                let is_new = self.works[index].0 == UNKNOWN;
                if is_new {
                    let launched_ns = self.launches[index].1 + LATENCY_NS;
                    self.works[index].0 =
                        launched_ns.max(self.free_ns[stream] + GAP_NS).max(after_ns + GAP_NS);
                    moved = true;
                }
                let start_ns = self.works[index].0;
                let mut dur_ns = i64::from(spec.kernel.dur_ns);
                if let Some(exchange) = spec.exchange {
                    dur_ns = job.loaded(dur_ns, self.number, step, exchange, spec.collective.is_some());
                }
                let end_ns = match spec.collective {
                    None => start_ns + self.rng.gpu(dur_ns as u32),
                    Some(collective) => {
                        let group = job.parallel().group(self.number, collective.dimension);
                        let (key, ranks) = match collective.partners {
                            Partners::Group => {
                                (Key::Work(collective.dimension as u8, group[0], work), group.len() as u32)
                            }
                            Partners::Stage { other, pass } => {
                                let own = job.parallel().place(self.number).pp;
                                (Key::Transfer(group[0], own.min(other), pass), 2)
                            }
                        };
                        let meeting = meetings.entry(key).or_default();
                        if is_new {
                            meeting.arrived += 1;
                            meeting.last_ns = meeting.last_ns.max(start_ns);
                        }
                        if meeting.arrived < ranks {
                            break;
                        }
                        meeting.last_ns + dur_ns
                    }
                };
                self.works[index].1 = end_ns;
                self.free_ns[stream] = end_ns;
                self.queues[stream].pop_front();
                moved = true;
            }
        }
        moved
    }

    /// When each pass is computed.
    pub(super) fn slots(&self) -> HashMap<Pass, Extent> {
        let mut slots: HashMap<Pass, Extent> = HashMap::new();
        for (spec, &(start_ns, end_ns)) in iter::zip(&self.plan.works, &self.works) {
            if let Some(pass) = spec.pass {
                let slot = slots.entry(pass).or_insert((start_ns, end_ns));
                *slot = (slot.0.min(start_ns), slot.1.max(end_ns));
            }
        }
        slots
    }
}

/// What the ranks of a job share.
pub(super) struct Job<'a> {
    pub(super) options: &'a TrainingOptions,
}

impl Job<'_> {
    pub(super) fn parallel(&self) -> Parallel {
        self.options.parallel
    }

    /// The stage with too many layers.
    pub(super) fn slow_stage(&self) -> Option<u32> {
        let stages = u64::from(self.parallel().pp);
        let is_slow = self.options.fault == Some(TrainingFault::SlowStage);
        is_slow.then(|| Rng::new(self.options.seed, 0x51).below(stages) as u32)
    }

    /// The place of the rank with most tokens among the ranks that share experts.
    pub(super) fn hot_expert(&self) -> Option<u32> {
        let ranks = u64::from(self.parallel().ep);
        let is_hot = self.options.fault == Some(TrainingFault::HotExpert);
        is_hot.then(|| Rng::new(self.options.seed, 0x407).below(ranks) as u32)
    }

    /// Plays a step of all ranks.
    pub(super) fn play(&self, ranks: &mut [Rank<'_>], step: u64) {
        let mut meetings = HashMap::new();
        ranks.iter_mut().for_each(Rank::begin);
        loop {
            let mut moved = false;
            for rank in &mut *ranks {
                moved |= rank.host();
                moved |= rank.device(self, step, &mut meetings);
            }
            if !moved {
                break;
            }
        }
        assert!(ranks.iter().all(|rank| rank.at == rank.plan.instrs.len()), "no rank waits for ever");
    }

    /// Tokens that each rank sends to each, of the group of a rank.
    pub(super) fn tokens(&self, rank: u32, step: u64, number: u32) -> Vec<Vec<i64>> {
        let ranks = i64::from(self.parallel().ep);
        let first = self.parallel().group(rank, Dimension::Ep)[0];
        // Ranks of tensor parallelism have the same tokens.
        let salt = u64::from(first / self.parallel().tp) << 40 ^ step << 24 ^ u64::from(number);
        let mut rng = Rng::new(self.options.seed, salt ^ 0x70_4e25);
        let sent = SEQUENCES * SEQUENCE / 2 * CHOICES;
        let hot = self.hot_expert();
        let row = |rng: &mut Rng| {
            let weights: Vec<i64> = (0..ranks)
                .map(|to| {
                    let weight = 10_000 + rng.below(200) as i64 - 100;
                    // The hot rank gets 1.6 times its share.
                    if hot == Some(to as u32) {
                        weight * 16 * (ranks - 1) / (10 * ranks - 16)
                    } else {
                        weight
                    }
                })
                .collect();
            let sum: i64 = weights.iter().sum();
            let mut row: Vec<i64> = weights.iter().map(|weight| sent * weight / sum).collect();
            row[0] += sent - row.iter().sum::<i64>();
            row
        };
        (0..ranks).map(|_| row(&mut rng)).collect()
    }

    /// How long something takes with the tokens of a rank, or of the rank with most if ranks exchange them.
    fn loaded(&self, dur_ns: i64, rank: u32, step: u64, exchange: Exchange, is_shared: bool) -> i64 {
        let tokens = self.tokens(rank, step, exchange.number);
        let received = |to: usize| tokens.iter().map(|row| row[to]).sum::<i64>();
        let own = self.place_of(rank);
        let most = (0..tokens.len()).map(received).max().unwrap_or(0);
        let count = if is_shared { most } else { received(own) };
        dur_ns * count / tokens[0].iter().sum::<i64>()
    }

    /// The place of a rank among the ranks that share experts with it.
    pub(super) fn place_of(&self, rank: u32) -> usize {
        let group = self.parallel().group(rank, Dimension::Ep);
        group.iter().position(|&other| other == rank).expect("a rank is in its group")
    }
}
