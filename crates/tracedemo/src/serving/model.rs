//! The program that is recorded: what the host does, what the GPU does, and when.

use super::options::{ServingOptions, ServingRecorder};

/// Ranks of the job, of which this is the first.
pub(super) const RANKS: i64 = 2;
/// Batch sizes that are captured; a batch is padded to the next.
const SIZES: [i64; 4] = [1, 8, 16, 32];
const LARGEST: i64 = 32;
const HIDDEN: i64 = 512;
/// When the program begins, ns.
const BEGIN_NS: i64 = 1_000_000;
/// Streams of the graph: the second runs shared experts beside attention.
pub(super) const STREAMS: [i64; 2] = [7, 23];

/// A call of an operator.
#[derive(Clone, Debug)]
pub(super) struct Op {
    pub(super) name: &'static str,
    pub(super) dims: Vec<Vec<i64>>,
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
}

/// A call of the runtime.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) what: What,
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    pub(super) correlation: i64,
    pub(super) op: Option<usize>,
    /// What is launched, where one kernel is.
    pub(super) kernel: Option<String>,
    /// Graph and node that the call creates.
    pub(super) creates: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Launch,
    BeginCapture,
    EndCapture,
    Instantiate,
    GraphLaunch,
}

/// A kernel that ran.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    pub(super) name: String,
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    pub(super) stream: i64,
    pub(super) correlation: i64,
    /// Operator that made it, in this step or in the capture.
    pub(super) op: usize,
    /// Graph and node that it replays.
    pub(super) node: Option<(u64, u64)>,
}

/// An annotation of the engine.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    pub(super) name: String,
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
}

/// A step of serving.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) start_ns: i64,
    pub(super) phase: &'static str,
    pub(super) requests: i64,
    pub(super) tokens: i64,
}

/// A message of NCCL whose kernel ran eagerly.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// Start of the kernel.
    pub(super) start_ns: i64,
    pub(super) call_start_ns: i64,
    pub(super) call_end_ns: i64,
    pub(super) bytes: i64,
}

/// Everything that happened.
#[derive(Debug, Default)]
pub(super) struct Program {
    pub(super) ops: Vec<Op>,
    pub(super) calls: Vec<Call>,
    pub(super) kernels: Vec<Kernel>,
    pub(super) marks: Vec<Mark>,
    pub(super) steps: Vec<Step>,
    pub(super) messages: Vec<Message>,
    now_ns: i64,
    gpu_ns: [i64; 2],
    correlation: i64,
}

/// A kernel of the model, and the operator that launches it.
struct Layer {
    op: &'static str,
    dims: Vec<Vec<i64>>,
    kernel: String,
    stream: usize,
    dur_ns: i64,
    bytes: Option<i64>,
}

/// Nodes of a graph, with the operators that made them.
struct Graph {
    size: i64,
    id: u64,
    nodes: Vec<(Layer, usize)>,
}

/// Plays the program.
pub(super) fn play(options: &ServingOptions, recorder: ServingRecorder) -> Program {
    let mut program = Program { now_ns: BEGIN_NS, correlation: 1, ..Program::default() };
    let mut graphs = Vec::new();
    for (size, id) in SIZES.into_iter().zip(3..) {
        program.eager(size, options.layers, recorder);
        graphs.push(program.capture(size, id, options.layers, recorder));
    }
    let mut random = Random(options.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for step in 0..i64::from(options.steps) {
        let requests = 1 + random.below(LARGEST);
        let is_prefill = random.below(5) == 0;
        program.serve(step, requests, is_prefill, options, recorder, &graphs);
    }
    program
}

impl Program {
    fn op(&mut self, layer: &Layer) -> usize {
        let (start_ns, end_ns) = (self.now_ns, self.now_ns + 9_000);
        self.ops.push(Op { name: layer.op, dims: layer.dims.clone(), start_ns, end_ns });
        self.now_ns = end_ns + 1_000;
        self.ops.len() - 1
    }

    fn call(&mut self, what: What, start_ns: i64, end_ns: i64) -> &mut Call {
        self.correlation += 1;
        let correlation = self.correlation;
        self.calls.push(Call { what, start_ns, end_ns, correlation, op: None, kernel: None, creates: None });
        self.calls.last_mut().expect("it was pushed")
    }

    /// A call of the engine itself.
    fn own_call(&mut self, what: What, dur_ns: i64) -> i64 {
        let start_ns = self.now_ns;
        self.now_ns += dur_ns + 500;
        self.call(what, start_ns, start_ns + dur_ns).correlation
    }

    fn run(
        &mut self,
        layer: &Layer,
        op: usize,
        correlation: i64,
        from_ns: i64,
        node: Option<(u64, u64)>,
    ) -> i64 {
        let start_ns = self.gpu_ns[layer.stream].max(from_ns) + 300;
        let end_ns = start_ns + layer.dur_ns;
        self.gpu_ns[layer.stream] = end_ns;
        let (name, stream) = (layer.kernel.clone(), STREAMS[layer.stream]);
        self.kernels.push(Kernel { name, start_ns, end_ns, stream, correlation, op, node });
        start_ns
    }

    /// Launches the model kernel by kernel, as engines do to warm up and for prompts.
    fn eager(&mut self, tokens: i64, layers: u32, recorder: ServingRecorder) {
        for layer in model(tokens, layers, recorder) {
            let op = self.op(&layer);
            let start_ns = self.ops[op].start_ns + 3_000;
            let call = self.call(What::Launch, start_ns, start_ns + 4_000);
            (call.op, call.kernel) = (Some(op), Some(layer.kernel.clone()));
            let correlation = call.correlation;
            let kernel_ns = self.run(&layer, op, correlation, start_ns + 4_000, None);
            if let Some(bytes) = layer.bytes {
                let (call_start_ns, call_end_ns) = (start_ns - 1_000, start_ns + 5_000);
                self.messages.push(Message { start_ns: kernel_ns, call_start_ns, call_end_ns, bytes });
            }
        }
    }

    fn capture(&mut self, size: i64, id: u64, layers: u32, recorder: ServingRecorder) -> Graph {
        let start_ns = self.now_ns;
        self.now_ns += 1_000;
        self.own_call(What::BeginCapture, 2_000);
        let mut nodes = Vec::new();
        for (layer, node) in model(size, layers, recorder).into_iter().zip(0..) {
            let op = self.op(&layer);
            let call_ns = self.ops[op].start_ns + 3_000;
            let call = self.call(What::Launch, call_ns, call_ns + 4_000);
            (call.op, call.kernel, call.creates) = (Some(op), Some(layer.kernel.clone()), Some((id, node)));
            nodes.push((layer, op));
        }
        self.own_call(What::EndCapture, 2_000);
        self.own_call(What::Instantiate, 50_000);
        let name = format!("capture_{size}_FULL");
        self.marks.push(Mark { name, start_ns, end_ns: self.now_ns });
        self.now_ns += 20_000;
        Graph { size, id, nodes }
    }

    /// A step: a prompt runs eagerly, a batch that decodes replays the graph of its size.
    fn serve(
        &mut self,
        step: i64,
        requests: i64,
        is_prefill: bool,
        options: &ServingOptions,
        recorder: ServingRecorder,
        graphs: &[Graph],
    ) {
        let start_ns = self.now_ns;
        self.now_ns += 5_000;
        let keys = requests * (100 + step);
        let (phase, requests, tokens, name) = if is_prefill {
            let tokens = 64 * (1 + requests % 4);
            self.eager(tokens, options.layers, recorder);
            let squares = tokens * tokens;
            let sums = format!("sq{tokens}sk{tokens}sqsq{squares}sqsk{squares}");
            let none = "sq0sk0sqsq0sqsk0";
            ("prefill", 1, tokens, format!("execute_{tokens}_context_1({sums})_generation_0({none})"))
        } else {
            let size = SIZES.into_iter().find(|&size| size >= requests).unwrap_or(LARGEST);
            let graph = graphs.iter().find(|graph| graph.size == size).expect("every size is captured");
            let correlation = self.own_call(What::GraphLaunch, 12_000);
            let from_ns = self.now_ns;
            for ((layer, op), node) in graph.nodes.iter().zip(0..) {
                self.run(layer, *op, correlation, from_ns, Some((graph.id, node)));
            }
            let sums = format!("sq{requests}sk{keys}sqsq{requests}sqsk{keys}");
            let none = "sq0sk0sqsq0sqsk0";
            let name = format!("execute_{requests}_context_0({none})_generation_{requests}({sums})");
            ("decode", requests, requests, name)
        };
        self.now_ns = self.now_ns.max(self.gpu_ns[0]).max(self.gpu_ns[1]) + 3_000;
        if options.marks {
            self.marks.push(Mark { name, start_ns, end_ns: self.now_ns });
        }
        self.steps.push(Step { start_ns, phase, requests, tokens });
        self.now_ns += 30_000;
    }
}

/// The kernels of the model for so many tokens, in the order of the program.
fn model(tokens: i64, layers: u32, recorder: ServingRecorder) -> Vec<Layer> {
    let gemm = |columns: i64, name: &str| match recorder {
        ServingRecorder::Rocm => format!("Cijk_Alik_Bljk_BBS_BH_MT{tokens}x{columns}x64_{name}"),
        ServingRecorder::Cuda | ServingRecorder::Nsys => {
            format!("void cutlass::gemm_{tokens}x{columns}_{name}<cutlass::bfloat16_t>(Params)")
        }
    };
    let reduce = match recorder {
        ServingRecorder::Rocm => "rcclGenericKernel_AllReduce(ncclDevKernelArgs)",
        ServingRecorder::Cuda | ServingRecorder::Nsys => {
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs)"
        }
    };
    let mm = |columns: i64, name: &str| Layer {
        op: "aten::mm",
        dims: vec![vec![tokens, HIDDEN], vec![HIDDEN, columns]],
        kernel: gemm(columns, name),
        stream: 0,
        dur_ns: 2_000 + tokens * columns / 64,
        bytes: None,
    };
    let rows = |op, kernel: &str, dur_ns| Layer {
        op,
        dims: vec![vec![tokens, HIDDEN]],
        kernel: kernel.to_owned(),
        stream: 0,
        dur_ns,
        bytes: None,
    };
    let mut found = vec![rows("aten::embedding", "void vllm::embedding_kernel<bf16>(int)", 1_500)];
    for _ in 0..layers {
        found.push(rows("vllm::rms_norm", "void vllm::rms_norm_kernel<bf16>(int)", 1_200));
        found.push(mm(3 * HIDDEN, "qkv"));
        // Beside attention, on a stream of its own.
        found.push(Layer { stream: 1, ..mm(HIDDEN, "shared_expert") });
        found.push(rows(
            "vllm::unified_attention",
            "void flash_fwd_splitkv_kernel<bf16>(int)",
            4_000 + 40 * tokens,
        ));
        found.push(mm(HIDDEN, "out"));
        let reduced = rows("vllm::all_reduce", reduce, 3_000);
        found.push(Layer { bytes: Some(2 * tokens * HIDDEN), ..reduced });
        found.push(rows("vllm::fused_moe", "fused_moe_kernel", 6_000));
    }
    found.push(rows("vllm::rms_norm", "void vllm::rms_norm_kernel<bf16>(int)", 1_200));
    found.push(mm(4 * HIDDEN, "head"));
    found.push(rows("aten::argmax", "void at::native::reduce_argmax<bf16>(int)", 1_700));
    found
}

/// A small generator of numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: i64) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33).cast_signed() % limit
    }
}
