//! The operators of a layer and their gradients.

use super::builder::Builder;
use super::options::{Parallel, TrainingFault, TrainingOptions};
use super::plan::{CHOICES, Exchange, HIDDEN, Inputs, Kind, SEQUENCE, Taped};
use crate::gpu::{Kernel, stream_ns};
use crate::model::kernels::{elementwise, flash, gemm, norm, small};

/// Experts of a rank, and their width.
const EXPERTS: i64 = 4;
const EXPERT_WIDTH: i64 = 2 * HIDDEN;
const VOCABULARY: i64 = 32_000;
const HEAD: i64 = 128;
const ADD: &str = "at::native::CUDAFunctor_add<c10::BFloat16>";
const GELU: &str = "at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)";
const GROUPED: &str = "void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<cutlass::gemm::\
                       kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<cute::tuple<int, int, int> >, \
                       cutlass::bfloat16_t> > >(Params)";

/// A matrix product of the layer, as (rows, inner, columns).
type Product = (i64, i64, i64);

fn product((rows, inner, columns): Product) -> Kernel {
    gemm(rows, columns, inner, false)
}

/// A product of the tokens of a rank's experts, whose number varies.
fn grouped(first: [&str; 2], second: [&str; 2], is_grouped: bool) -> Inputs {
    let [first, second] = [first, second].map(|sizes| sizes.join(", "));
    let second = if is_grouped { format!("[{EXPERTS}, {second}]") } else { format!("[{second}]") };
    let inputs = Inputs::tensors(&[&format!("[{first}]"), &second, &format!("[{EXPERTS}]")]);
    Inputs { types: r#"["c10::BFloat16", "c10::BFloat16", "int"]"#.to_owned(), ..inputs }
}

impl Kind {
    /// Whether it is the product at the end of a layer.
    pub(super) fn is_last_product(self) -> bool {
        matches!(self, Self::Down | Self::ExpertsDown)
    }

    /// The product of a dense matrix that it is.
    fn dense(self, b: &Builder<'_>) -> Option<Product> {
        let (tokens, tp) = (b.tokens(), i64::from(b.options.parallel.tp));
        match self {
            Self::Projection => Some((tokens, HIDDEN, 3 * HIDDEN / tp)),
            Self::Output => Some((tokens, HIDDEN / tp, HIDDEN)),
            Self::Up => Some((tokens, HIDDEN, 4 * HIDDEN / tp)),
            Self::Down => Some((tokens, 4 * HIDDEN / tp, HIDDEN)),
            _ => None,
        }
    }

    /// Whether the gradient of its input is summed over the ranks of tensor parallelism.
    fn is_column_parallel(self, parallel: Parallel) -> bool {
        parallel.tp > 1 && matches!(self, Self::Projection | Self::Up)
    }

    /// Rows and columns of the activation, and the exchange that the rows come from.
    fn activation(b: &Builder<'_>, number: u32) -> (i64, i64, Option<Exchange>) {
        let Parallel { tp, ep, .. } = b.options.parallel;
        if ep > 1 {
            (b.tokens() * CHOICES, EXPERT_WIDTH, Some(Exchange { number, is_return: false }))
        } else {
            (b.tokens(), 4 * HIDDEN / i64::from(tp), None)
        }
    }

    /// Emits the operator; returns the number of its node.
    pub(super) fn forward(self, b: &mut Builder<'_>, half: usize, number: u32) -> u32 {
        let tokens = b.tokens();
        if let Some(product_of) = self.dense(b) {
            let (rows, inner, columns) = product_of;
            let run = |b: &mut Builder<'_>| b.compute(half, product(product_of), None);
            if self.is_column_parallel(b.options.parallel) {
                let inputs = Inputs::of(&[&[rows, inner], &[columns, inner]]);
                return b.forward_op("LinearWithGradAccumulationAndAsyncCommunication", inputs, None, |b| {
                    b.op("aten::mm", Some(Inputs::of(&[&[rows, inner], &[inner, columns]])), |b, _| run(b));
                });
            }
            return b.forward_op("aten::mm", Inputs::of(&[&[rows, inner], &[inner, columns]]), None, run);
        }
        let state = [tokens, HIDDEN];
        match self {
            Self::Add => {
                let kernel = elementwise(ADD, 3, tokens * HIDDEN, 6 * tokens * HIDDEN);
                b.forward_op("aten::add", Inputs::of(&[&state, &state]), None, |b| {
                    b.compute(half, kernel, None);
                })
            }
            Self::Norm => {
                let kernel = norm(
                    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>()",
                    tokens,
                    HIDDEN,
                    2,
                );
                let inputs = Inputs::of(&[&state, &[], &[HIDDEN], &[HIDDEN], &[]]);
                let inputs = inputs.values(r#"["", "[2048]", "", "", "1e-05"]"#);
                b.forward_op("aten::native_layer_norm", inputs, None, |b| b.compute(half, kernel, None))
            }
            Self::Attention => {
                let heads = attention_shape(b);
                let kernel = attention_kernel(b, "flash_fwd_kernel", 10);
                let inputs = Inputs::of(&[&heads, &heads, &heads, &[], &[], &[], &[]]);
                let inputs = inputs.values(r#"["", "", "", "0.", "True", "False", ""]"#);
                let name = "aten::_scaled_dot_product_flash_attention";
                b.forward_op(name, inputs, None, |b| b.compute(half, kernel, None))
            }
            Self::Activation => {
                let (rows, columns, exchange) = Self::activation(b, number);
                let kernel = elementwise(GELU, 2, rows * columns, 4 * rows * columns);
                let rows = if exchange.is_some() { ">".to_owned() } else { rows.to_string() };
                let inputs = Inputs::tensors(&[&format!("[{rows}, {columns}]"), "[]"]);
                let inputs = inputs.values(r#"["", "none"]"#);
                b.forward_op("aten::gelu", inputs, exchange, |b| b.compute(half, kernel, exchange))
            }
            Self::ExpertsUp | Self::ExpertsDown => {
                let (rows, exchange) = (tokens * CHOICES, Some(Exchange { number, is_return: false }));
                let (inner, columns) = self.expert();
                let kernel = Kernel { name: GROUPED.to_owned(), ..product((rows, inner, columns)) };
                let sizes = [inner, columns].map(|size| size.to_string());
                let inputs = grouped([">", &sizes[0]], [&sizes[0], &sizes[1]], true);
                b.forward_op("aten::_grouped_mm", inputs, exchange, |b| b.compute(half, kernel, exchange))
            }
            Self::Sum => {
                b.forward_op("ReduceFromTensorParallelRegion", Inputs::of(&[&state]), None, |b| b.sum(half))
            }
            Self::Dispatch | Self::Combine => {
                let exchange = Exchange { number, is_return: self == Self::Combine };
                let inputs = Inputs::tensors(&[&format!("[<, {HIDDEN}]")]);
                b.forward_op("AllToAllTokens", inputs, Some(exchange), |b| b.exchange(half, exchange))
            }
            // The only one that is left takes all tokens.
            _ => {
                let rows = tokens * b.halves as i64;
                let kernel = small(
                    "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*)",
                    rows as u32,
                    128,
                    stream_ns(4 * rows * HIDDEN),
                );
                let inputs = Inputs::of(&[&[VOCABULARY, HIDDEN], &[rows / SEQUENCE, SEQUENCE]]);
                let inputs = Inputs { types: r#"["c10::BFloat16", "long int"]"#.to_owned(), ..inputs };
                b.forward_op("aten::embedding", inputs, None, |b| b.compute(0, kernel, None))
            }
        }
    }

    /// Inner and outer size of a product of experts.
    fn expert(self) -> (i64, i64) {
        if self == Self::ExpertsUp { (HIDDEN, EXPERT_WIDTH) } else { (EXPERT_WIDTH, HIDDEN) }
    }

    /// Emits the node of a forward operator, which first computes `again`.
    pub(super) fn backward(self, b: &mut Builder<'_>, taped: &Taped, again: Vec<Taped>) {
        let (half, number, tokens) = (taped.half, taped.exchange, b.tokens());
        let recompute = move |b: &mut Builder<'_>| {
            again.iter().for_each(|one| b.apply(one.kind, one.layer, one.half, false));
        };
        let state = [tokens, HIDDEN];
        if let Some((rows, inner, columns)) = self.dense(b) {
            let is_summed = self.is_column_parallel(b.options.parallel);
            let name = if is_summed {
                "LinearWithGradAccumulationAndAsyncCommunicationBackward"
            } else {
                "MmBackward0"
            };
            b.node(name, taped.node, |b| {
                recompute(b);
                let mm = |b: &mut Builder<'_>, (rows, inner, columns): Product| {
                    let inputs = Inputs::of(&[&[rows, inner], &[inner, columns]]);
                    b.computing(half, "aten::mm", inputs, None, vec![product((rows, inner, columns))]);
                };
                mm(b, (rows, columns, inner));
                if is_summed {
                    b.sum_beside(half, |b| mm(b, (inner, rows, columns)));
                } else {
                    mm(b, (inner, rows, columns));
                }
            });
            return;
        }
        match self {
            Self::Add => b.node("AddBackward0", taped.node, |_| {}),
            Self::Sum => b.node("ReduceFromTensorParallelRegionBackward", taped.node, |_| {}),
            Self::Norm => b.node("NativeLayerNormBackward0", taped.node, |b| {
                let kernel = norm("void at::native::(anonymous namespace)::layer_norm_grad_input_kernel_vectorized<c10::BFloat16, float>()", tokens, HIDDEN, 3);
                let inputs = Inputs::of(&[&state, &state, &[], &[tokens, 1], &[tokens, 1], &[HIDDEN], &[HIDDEN], &[]]);
                let inputs = inputs.values(r#"["", "", "[2048]", "", "", "", "", "[True, True, True]"]"#);
                b.computing(half, "aten::native_layer_norm_backward", inputs, None, vec![kernel]);
            }),
            Self::Attention => b.node("ScaledDotProductFlashAttentionBackward0", taped.node, |b| {
                recompute(b);
                let heads = attention_shape(b);
                let shapes = [&heads[..], &heads, &heads, &heads, &heads, &heads[..3]];
                let values = [&[][..]; 9];
                let inputs = Inputs::of(&[&shapes[..], &values].concat());
                let inputs = inputs.values(
                    r#"["", "", "", "", "", "", "", "", "4096", "4096", "0.", "True", "", "", ""]"#,
                );
                let kernel = attention_kernel(b, "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", 25);
                let name = "aten::_scaled_dot_product_flash_attention_backward";
                b.computing(half, name, inputs, None, vec![kernel]);
            }),
            Self::Activation => b.node("GeluBackward0", taped.node, |b| {
                let (rows, columns, exchange) = Self::activation(b, number);
                let kernel = elementwise(&GELU.replace("Gelu", "GeluBackward"), 3, rows * columns, 6 * rows * columns);
                let rows = if exchange.is_some() { ">".to_owned() } else { rows.to_string() };
                let state = format!("[{rows}, {columns}]");
                let inputs = Inputs::tensors(&[&state, &state, "[]"]).values(r#"["", "", "none"]"#);
                b.computing(half, "aten::gelu_backward", inputs, exchange, vec![kernel]);
            }),
            Self::ExpertsUp | Self::ExpertsDown => b.node("GroupedMmBackward0", taped.node, |b| {
                recompute(b);
                let exchange = Some(Exchange { number, is_return: false });
                let (inner, columns) = self.expert();
                let kernel = Kernel { name: GROUPED.to_owned(), ..product((tokens * CHOICES, inner, columns)) };
                let sizes = [inner, columns].map(|size| size.to_string());
                let [inner, columns] = [&*sizes[0], &*sizes[1]];
                let inputs = grouped([">", columns], [columns, inner], true);
                b.computing(half, "aten::_grouped_mm", inputs, exchange, vec![kernel.clone()]);
                let inputs = grouped([inner, ">"], [">", columns], false);
                b.computing(half, "aten::_grouped_mm", inputs, exchange, vec![kernel]);
            }),
            Self::Dispatch | Self::Combine => b.node("AllToAllTokensBackward", taped.node, |b| {
                b.exchange(half, Exchange { number, is_return: self == Self::Dispatch });
            }),
            _ => b.node("EmbeddingBackward0", taped.node, |b| {
                let rows = tokens * b.halves as i64;
                let kernel = small("void at::native::(anonymous namespace)::compute_grad_weight<c10::BFloat16, long>()", 1024, 256, stream_ns(6 * rows * HIDDEN));
                let shape = [rows / SEQUENCE, SEQUENCE, HIDDEN];
                let inputs = Inputs::of(&[&shape, &shape[..2], &[], &[], &[]]);
                let types = r#"["c10::BFloat16", "long int", "Scalar", "Scalar", "Scalar"]"#.to_owned();
                let inputs = Inputs { types, ..inputs }.values(r#"["", "", "32000", "-1", "False"]"#);
                b.computing(0, "aten::embedding_dense_backward", inputs, None, vec![kernel]);
            }),
        }
    }
}

/// Batch, heads, length and size of a head.
fn attention_shape(b: &Builder<'_>) -> [i64; 4] {
    let heads = i64::from(TrainingOptions::HEADS / b.options.parallel.tp);
    [b.tokens() / SEQUENCE, heads, SEQUENCE, HEAD]
}

/// A kernel of causal attention; `work` is in tenths of the forward pass.
fn attention_kernel(b: &Builder<'_>, name: &str, work: i64) -> Kernel {
    /// FLOP that such a kernel does in a nanosecond, as FlashAttention-3.
    const FLOP_PER_NS: i64 = 540_000;
    let [batch, heads, length, size] = attention_shape(b);
    let flops = 2 * batch * heads * length * length * size;
    let grid = [(length / 128) as u32, batch as u32, heads as u32];
    Kernel { grid, dur_ns: (flops * work / 10 / FLOP_PER_NS) as u32 + 3_000, ..flash(name, 1) }
}

impl Builder<'_> {
    /// Emits a forward operator, and notes it for the backward pass if it `is_taped`.
    pub(super) fn apply(&mut self, kind: Kind, layer: u32, half: usize, is_taped: bool) {
        let batch = self.pass.micro_batch;
        let number = (batch * (self.layers + 1) + layer) * 2 + half as u32;
        let node = kind.forward(self, half, number);
        if is_taped {
            self.tape[batch as usize].push(Taped { kind, layer, half, exchange: number, node });
        }
    }

    /// The forward operators of a layer.
    pub(super) fn layer(&mut self, layer: u32) {
        let Parallel { tp, ep, .. } = self.options.parallel;
        let enter: &[Kind] = if layer == 0 { &[] } else { &[Kind::Add] };
        self.turns(
            layer,
            &[enter, &[Kind::Norm, Kind::Projection, Kind::Attention, Kind::Output]].concat(),
            tp > 1,
        );
        if ep == 1 {
            let parts = [Kind::Add, Kind::Norm, Kind::Up, Kind::Activation, Kind::Down];
            self.turns(layer, &parts, tp > 1);
            return;
        }
        self.turns(layer, &[Kind::Add, Kind::Norm], false);
        self.turns(layer, &[Kind::Dispatch], false);
        self.turns(layer, &[Kind::ExpertsUp, Kind::Activation, Kind::ExpertsDown], false);
        self.turns(layer, &[Kind::Combine], false);
    }

    /// The same operators for each half in turn, and their sums after both, so that the second half hides the first.
    fn turns(&mut self, layer: u32, kinds: &[Kind], is_summed: bool) {
        let is_exposed = self.options.fault == Some(TrainingFault::ExposedTensorParallelism);
        for half in 0..self.halves {
            kinds.iter().for_each(|&kind| self.apply(kind, layer, half, true));
            if is_summed && is_exposed {
                self.apply(Kind::Sum, layer, half, true);
            }
        }
        if is_summed && !is_exposed {
            (0..self.halves).for_each(|half| self.apply(Kind::Sum, layer, half, true));
        }
    }

    /// Sums the gradient of an input while `body` computes something else, unless nothing is computed beside sums.
    fn sum_beside(&mut self, half: usize, body: impl FnOnce(&mut Self)) {
        self.sum(half);
        if self.options.fault == Some(TrainingFault::ExposedTensorParallelism) {
            body(self);
            return;
        }
        let sum = self.take_ready(half);
        body(self);
        self.put_ready(half, sum);
    }
}
