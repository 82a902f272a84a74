//! What is true of a trace, known because the trace was made and not read.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Fields of a structure as members of a JSON object.
macro_rules! fields {
    ($from:ident: $($field:ident),*) => {
        [$((stringify!($field).to_owned(), json!($from.$field))),*].into_iter().collect::<Map<_, _>>()
    };
}

/// Names of the parts that a step's time falls into, in order of priority.
///
/// In turn: kernels other than collectives; copies; memsets; communication; the host inside runtime
/// and driver calls; the host inside the data loader's `__next__`; the host inside operators and other
/// annotations, `ProfilerStep#N` apart; the rest.
pub const PART_NAMES: [&str; 8] = [
    "kernel_ns",
    "memcpy_ns",
    "memset_ns",
    "communication_ns",
    "runtime_ns",
    "dataloader_ns",
    "cpu_exec_ns",
    "other_ns",
];

/// Time of one training step, in nanoseconds of the trace's clock.
///
/// The step begins where its annotation does, or where the previous step's GPU work ends if that is
/// later; it ends with its annotation or with the last GPU work that it launched, whichever is later.
/// The eight parts are disjoint and sum to `total_ns`: each is what its kind of activity covers of the
/// step, over all threads, streams and devices, less what the parts before it cover.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepTruth {
    /// Number in `ProfilerStep#N`.
    pub step: u64,
    /// Start of the annotation.
    pub host_start_ns: i64,
    /// Duration of the annotation.
    pub host_dur_ns: i64,
    /// Start of the step.
    pub start_ns: i64,
    /// Length of the step.
    pub total_ns: i64,
    /// The parts of [`PART_NAMES`]; communication is NCCL kernels.
    pub parts: [i64; 8],
    /// Units of GPU work launched in the step.
    pub gpu_ops: u64,
}

impl StepTruth {
    fn to_json(&self) -> Value {
        let parts = PART_NAMES.into_iter().zip(self.parts).map(|(name, ns)| (name.to_owned(), ns.into()));
        let mut step = fields!(self: step, host_start_ns, host_dur_ns, start_ns, total_ns);
        step.extend(parts);
        step.extend(fields!(self: gpu_ops));
        step.into()
    }
}

/// Number and summed durations of the events of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuTotals {
    /// Events.
    pub calls: u64,
    /// Sum of the durations, ns.
    pub total_ns: i64,
}

impl GpuTotals {
    pub(crate) fn add(&mut self, dur_ns: i64) {
        self.calls += 1;
        self.total_ns += dur_ns;
    }

    fn to_json(self) -> Value {
        fields!(self: calls, total_ns).into()
    }
}

/// Totals over the calls of the operators of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpTotals {
    /// Calls.
    pub calls: u64,
    /// Sum of the durations, ns.
    pub host_total_ns: i64,
    /// The same less the direct children, annotations among them, and less the operator's own
    /// runtime calls, ns.
    pub host_self_ns: i64,
    /// Sum of the durations of all GPU work launched inside, ns.
    pub device_total_ns: i64,
    /// Sum of the durations of the GPU work whose innermost operator this is, ns.
    pub device_self_ns: i64,
    /// Number of units of that work.
    pub gpu_ops: u64,
    /// Runtime calls whose innermost operator this is.
    pub launches: u64,
}

impl OpTotals {
    fn to_json(self) -> Value {
        fields!(
            self: calls, host_total_ns, host_self_ns, device_self_ns, gpu_ops, launches, device_total_ns
        )
        .into()
    }

    fn annotation_to_json(self) -> Value {
        fields!(self: calls, host_total_ns, device_total_ns).into()
    }
}

/// The totals by name as a JSON object.
fn by_name<T: Copy>(totals: &BTreeMap<String, T>, to_json: impl Fn(T) -> Value) -> Value {
    totals.iter().map(|(name, &totals)| (name.clone(), to_json(totals))).collect::<Map<_, _>>().into()
}

/// The truth of one rank's trace. All times are in nanoseconds of the trace's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Truth {
    /// Seed of the options.
    pub seed: u64,
    /// Rank of the trace.
    pub rank: u32,
    /// Ranks of the job.
    pub ranks: u32,
    /// Transformer blocks of the model.
    pub layers: u32,
    /// Name of the byte layout.
    pub layout: &'static str,
    /// Size of the JSON, before compression.
    pub json_bytes: u64,
    /// Elements of `traceEvents`.
    pub events: u64,
    /// The same by `ph` and `cat`, such as `X kernel`.
    pub events_by_kind: BTreeMap<&'static str, u64>,
    /// The same by the table that they belong to; and the rows of `collectives`, `steps`, `devices` and
    /// `process_groups`, which are no events of their own.
    pub tables: BTreeMap<&'static str, u64>,
    /// The steps.
    pub steps: Vec<StepTruth>,
    /// Time from the first step's start to the last step's end during which a kernel runs,
    /// collectives included.
    pub kernel_busy_ns: i64,
    /// Totals by kernel name.
    pub kernels: BTreeMap<String, GpuTotals>,
    /// Totals by name of the copies.
    pub memcpys: BTreeMap<String, GpuTotals>,
    /// Totals by name of the memsets.
    pub memsets: BTreeMap<String, GpuTotals>,
    /// Totals by name of the runtime and driver calls.
    pub launches: BTreeMap<String, GpuTotals>,
    /// Totals by operator name.
    pub ops: BTreeMap<String, OpTotals>,
    /// Totals by annotation name; `ProfilerStep*` for the steps. Self times are left out: whether a call
    /// made in an annotation but in no operator belongs to it is a matter of definition.
    pub annotations: BTreeMap<String, OpTotals>,
    /// Units of GPU work with a launch and an operator.
    pub gpu_ops_with_op: u64,
    /// Units of GPU work with a launch that no operator made.
    pub gpu_ops_without_op: u64,
    /// Units of GPU work launched before the trace begins.
    pub gpu_ops_without_launch: u64,
    /// Pairs of forward and backward operators joined by a flow.
    pub forward_backward_pairs: u64,
    /// Device memory at its fullest, bytes.
    pub peak_device_bytes: i64,
}

impl Truth {
    /// The truth as a JSON object.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut truth = Map::from_iter([("truth_version".to_owned(), 1.into())]);
        truth.extend(
            fields!(self: seed, rank, ranks, layers, layout, json_bytes, events, events_by_kind, tables),
        );
        truth.insert("steps".to_owned(), self.steps.iter().map(StepTruth::to_json).collect());
        truth.extend(fields!(self: kernel_busy_ns));
        for (key, totals) in [
            ("kernels", &self.kernels),
            ("memcpys", &self.memcpys),
            ("memsets", &self.memsets),
            ("launches", &self.launches),
        ] {
            truth.insert(key.to_owned(), by_name(totals, GpuTotals::to_json));
        }
        truth.insert("ops".to_owned(), by_name(&self.ops, OpTotals::to_json));
        truth.insert("annotations".to_owned(), by_name(&self.annotations, OpTotals::annotation_to_json));
        truth.extend(fields!(self: gpu_ops_with_op, gpu_ops_without_op, gpu_ops_without_launch));
        truth.extend(fields!(self: forward_backward_pairs, peak_device_bytes));
        truth.into()
    }
}
