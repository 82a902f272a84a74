//! What a caller can choose.

use crate::gpu::GPUS;

/// Byte layout of the JSON; the events are the same in each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Kineto's own writer up to early 2026: a few keys per line, one line of args.
    #[default]
    Native,
    /// Kineto's writer since 2026-04: one key per line, indented by two spaces.
    KeyPerLine,
    /// `export_chrome_trace(..., use_python_export=True)`: one event per line.
    EventPerLine,
    /// `json.dump` with the shortest separators: the whole file on one line.
    Compact,
}

impl Layout {
    /// Every layout.
    pub const ALL: [Self; 4] = [Self::Native, Self::KeyPerLine, Self::EventPerLine, Self::Compact];

    /// Name of the layout in options and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::KeyPerLine => "key-per-line",
            Self::EventPerLine => "event-per-line",
            Self::Compact => "compact",
        }
    }

    /// Layout of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|layout| layout.name() == name)
    }
}

/// What is wrong with a job, on purpose: one cause that makes its steps longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Nothing is wrong.
    Nothing,
    /// The data loader of one rank sleeps in every other step, in a Python frame of its own.
    SlowLoader,
    /// Each linear layer reads a value back from the GPU in its forward pass.
    Synchronisation,
    /// Each launch takes eight times as long.
    SlowLaunches,
    /// The compute stream waits for each sum of gradients over the ranks.
    SerialisedAllReduce,
    /// The GPU of one rank is slow.
    SlowRank,
    /// The links of one host are slow.
    SlowLink,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Self; 7] = [
        Self::Nothing,
        Self::SlowLoader,
        Self::Synchronisation,
        Self::SlowLaunches,
        Self::SerialisedAllReduce,
        Self::SlowRank,
        Self::SlowLink,
    ];

    /// Name of the cause in options and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "none",
            Self::SlowLoader => "loader",
            Self::Synchronisation => "synchronisation",
            Self::SlowLaunches => "launch",
            Self::SerialisedAllReduce => "all-reduce",
            Self::SlowRank => "slow-rank",
            Self::SlowLink => "slow-link",
        }
    }

    /// Cause of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.name() == name)
    }

    /// The smallest job that it shows in.
    fn least_ranks(self) -> u32 {
        match self {
            Self::Nothing | Self::SlowLoader | Self::Synchronisation | Self::SlowLaunches => 1,
            Self::SerialisedAllReduce | Self::SlowRank => 2,
            Self::SlowLink => 2 * GPUS,
        }
    }
}

/// Options of a demo trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemoOptions {
    /// Size to reach, in bytes of JSON before compression.
    ///
    /// Whole steps are written: the trace ends with the step in which the size is reached, so a file
    /// is at most one step larger (0.4 MB with one layer, 6 MB with 24) and some kB of metadata.
    pub size_bytes: u64,
    /// Exact number of steps, in place of `size_bytes`.
    pub steps: Option<u64>,
    /// Number of ranks of the job; 1 leaves out everything distributed.
    pub ranks: u32,
    /// Rank whose trace [`write_trace`](crate::write_trace) writes; below `ranks`.
    pub rank: u32,
    /// Seed of everything that varies.
    pub seed: u64,
    /// Byte layout of the JSON.
    pub layout: Layout,
    /// Whether to compress with gzip.
    pub gzip: bool,
    /// Transformer blocks of the model; `None` takes 1 below 4 MB and up to 24 from 1 GB.
    pub layers: Option<u32>,
    /// What is wrong with the job; `None` leaves small jobs as they are, and gives those of eight ranks and
    /// more a slow rank, a slow link and a late data loader. All else is equal with each cause.
    pub cause: Option<Cause>,
}

impl Default for DemoOptions {
    fn default() -> Self {
        Self {
            size_bytes: 100_000_000,
            steps: None,
            ranks: 2,
            rank: 0,
            seed: 0,
            layout: Layout::Native,
            gzip: false,
            layers: None,
            cause: None,
        }
    }
}

impl DemoOptions {
    /// Largest number of ranks; a collective's group is written out in full.
    pub const MAX_RANKS: u32 = 4096;
    /// Largest number of transformer blocks.
    pub const MAX_LAYERS: u32 = 128;

    /// Number of transformer blocks these options lead to.
    #[must_use]
    pub fn layer_count(&self) -> u32 {
        self.layers.unwrap_or(match self.size_bytes {
            0..4_000_000 => 1,
            4_000_000..20_000_000 => 2,
            20_000_000..100_000_000 => 4,
            100_000_000..1_000_000_000 => 12,
            _ => 24,
        })
    }

    /// Says what is wrong with the options, if anything.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn check(&self) -> Result<(), String> {
        let Self { ranks, rank, steps, .. } = *self;
        for (name, value, most) in
            [("ranks", ranks, Self::MAX_RANKS), ("layers", self.layer_count(), Self::MAX_LAYERS)]
        {
            if value == 0 || value > most {
                return Err(format!("{name} is {value}; it must be 1 to {most}"));
            }
        }
        if rank >= ranks {
            return Err(format!("rank is {rank}; it must be below ranks, {ranks}"));
        }
        if let Some(cause) = self.cause.filter(|cause| cause.least_ranks() > ranks) {
            let (name, least) = (cause.name(), cause.least_ranks());
            return Err(format!("cause {name} needs at least {least} ranks, not {ranks}"));
        }
        if steps == Some(0) {
            return Err("steps is 0; it must be at least 1".to_owned());
        }
        Ok(())
    }
}
