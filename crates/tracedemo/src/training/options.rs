//! What a caller can choose of a training job on several ranks.

/// Ranks of each dimension of parallelism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parallel {
    /// Tensor parallelism.
    pub tp: u32,
    /// Stages of the pipeline.
    pub pp: u32,
    /// Replicas of the model.
    pub dp: u32,
    /// Ranks that share the parameters of a replica.
    pub fsdp: u32,
    /// Ranks that share the experts of a layer, of those with other data.
    pub ep: u32,
}

impl Parallel {
    /// One rank.
    pub const NONE: Self = Self { tp: 1, pp: 1, dp: 1, fsdp: 1, ep: 1 };

    /// Reads `tp=2,pp=2`; dimensions that are not named have one rank.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut found = Self::NONE;
        for part in text.split(',') {
            let wrong = || format!("{part:?} is no dimension; write for example tp=2,pp=2,dp=2,fsdp=2,ep=2");
            let (name, count) = part.trim().split_once('=').ok_or_else(wrong)?;
            let count = count.parse().ok().filter(|&count| count > 0).ok_or_else(wrong)?;
            *match name {
                "tp" => &mut found.tp,
                "pp" => &mut found.pp,
                "dp" => &mut found.dp,
                "fsdp" => &mut found.fsdp,
                "ep" => &mut found.ep,
                _ => return Err(wrong()),
            } = count;
        }
        Ok(found)
    }

    /// Ranks of the job, or none if there are too many to count.
    #[must_use]
    pub fn ranks(self) -> Option<u32> {
        [self.pp, self.dp, self.fsdp].into_iter().try_fold(self.tp, u32::checked_mul)
    }
}

/// Which part of the forward pass the backward pass computes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recompute {
    /// Nothing.
    Nothing,
    /// Attention.
    Selective,
    /// Whole layers.
    Full,
}

impl Recompute {
    /// Every choice.
    pub const ALL: [Self; 3] = [Self::Nothing, Self::Selective, Self::Full];

    /// Name of the choice in options and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        ["none", "selective", "full"][self as usize]
    }
}

/// What is wrong with a training job, on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrainingFault {
    /// One stage of the pipeline has more layers than the others.
    SlowStage,
    /// The host waits for the GPU before it gathers the parameters of a layer.
    LateAllGather,
    /// The experts of one rank get most tokens.
    HotExpert,
    /// Nothing is computed beside the sums of tensor parallelism.
    ExposedTensorParallelism,
    /// Activations are computed again although there is memory for them.
    NeedlessRecomputation,
}

impl TrainingFault {
    /// Every fault.
    pub const ALL: [Self; 5] = [
        Self::SlowStage,
        Self::LateAllGather,
        Self::HotExpert,
        Self::ExposedTensorParallelism,
        Self::NeedlessRecomputation,
    ];

    /// Name of the fault in options and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        ["slow-stage", "late-all-gather", "hot-expert", "exposed-tp", "needless-recompute"][self as usize]
    }

    /// The recommendation that names it.
    pub(super) fn rule(self) -> &'static str {
        [
            "slow_stage",
            "late_all_gathers",
            "uneven_experts",
            "exposed_tensor_parallelism",
            "needless_recomputation",
        ][self as usize]
    }
}

/// Options of a training job on several ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainingOptions {
    /// Ranks of each dimension.
    pub parallel: Parallel,
    /// What is computed again.
    pub recompute: Recompute,
    /// What is wrong.
    pub fault: Option<TrainingFault>,
    /// Steps that are recorded.
    pub steps: u32,
    /// Layers of each stage.
    pub layers: u32,
    /// Micro-batches of a step; `None` takes ten for each stage of a pipeline, and two without.
    pub micro_batches: Option<u32>,
    /// Seed of everything that varies.
    pub seed: u64,
}

impl Default for TrainingOptions {
    fn default() -> Self {
        Self {
            parallel: Parallel::NONE,
            recompute: Recompute::Nothing,
            fault: None,
            steps: 3,
            layers: 4,
            micro_batches: None,
            seed: 0,
        }
    }
}

impl TrainingOptions {
    /// Largest number of ranks.
    pub const MAX_RANKS: u32 = 4096;
    /// Attention heads, which tensor parallelism divides.
    pub(super) const HEADS: u32 = 16;

    pub(super) fn micro_batches(&self) -> u32 {
        self.micro_batches.unwrap_or(if self.parallel.pp > 1 { 10 * self.parallel.pp } else { 2 })
    }

    /// Says what is wrong with the options, if anything.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn check(&self) -> Result<(), String> {
        let Parallel { tp, pp, dp, fsdp, ep } = self.parallel;
        if self.parallel.ranks().is_none_or(|ranks| ranks > Self::MAX_RANKS) {
            return Err(format!("a job has at most {} ranks", Self::MAX_RANKS));
        }
        if !Self::HEADS.is_multiple_of(tp) {
            return Err(format!("tp is {tp}; it must divide the {} attention heads", Self::HEADS));
        }
        if !(dp * fsdp).is_multiple_of(ep) {
            return Err(format!("ep is {ep}; it must divide the {} ranks of dp and fsdp", dp * fsdp));
        }
        for (name, value) in
            [("steps", self.steps), ("layers", self.layers), ("micro-batches", self.micro_batches())]
        {
            if !(1..=1000).contains(&value) {
                return Err(format!("{name} is {value}; it must be 1 to 1000"));
            }
        }
        let (is_possible, need) = match self.fault {
            None => return Ok(()),
            Some(TrainingFault::SlowStage) => (pp > 1, "pp of at least 2"),
            Some(TrainingFault::LateAllGather) => (fsdp > 3, "fsdp of at least 4"),
            Some(TrainingFault::HotExpert) => (ep > 1, "ep of at least 2"),
            Some(TrainingFault::ExposedTensorParallelism) => (tp > 1, "tp of at least 2"),
            Some(TrainingFault::NeedlessRecomputation) => {
                (self.recompute == Recompute::Full, "full recomputation")
            }
        };
        let name = self.fault.map_or("", TrainingFault::name);
        if is_possible { Ok(()) } else { Err(format!("cause {name} needs {need}")) }
    }
}
