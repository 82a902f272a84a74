//! Parameters and gradients that ranks share, and the optimizer.

use super::builder::Builder;
use super::mesh::Dimension;
use super::options::{Parallel, TrainingFault};
use super::plan::{Collective, HIDDEN, Inputs, Instr, Partners, Pass, Stream};
use crate::event::list;
use crate::gpu::{Kernel, stream_ns};
use crate::model::kernels::{all_gather, all_reduce, multi_tensor, small};

/// Parameters of a layer.
const PARAMETERS: i64 = 12 * HIDDEN * HIDDEN;

impl Builder<'_> {
    /// Whether parameters stay gathered from the first micro-batch to the last, as pipelines need them.
    fn keeps_parameters(&self) -> bool {
        self.options.parallel.pp > 1
    }

    /// Waits for the parameters of a layer, and gathers the ones of the next.
    pub(super) fn use_parameters(&mut self, layer: u32) {
        let Pass { micro_batch, is_backward } = self.pass;
        let is_kept = self.keeps_parameters() && (is_backward || micro_batch > 0);
        if self.options.parallel.fsdp == 1 || is_kept {
            return;
        }
        let direction = if is_backward { "backward" } else { "forward" };
        self.annotation(&format!("FSDP::pre_{direction} (layers.{layer})"), |b| {
            if b.gathered[layer as usize].is_none() {
                b.gather(layer);
            }
            b.annotation(&format!("FSDP::all_gather_copy_out (layers.{layer})"), |b| {
                let bytes = 2 * PARAMETERS / i64::from(b.options.parallel.tp);
                let gathered = b.gathered[layer as usize].take();
                let copy = small(
                    "void at::native::split_with_sizes_copy_out_contiguous_no_cast_kernel()",
                    4096,
                    512,
                    stream_ns(2 * bytes),
                );
                b.op("fsdp::split_with_sizes_copy", None, |b, _| {
                    let after = gathered.into_iter().collect();
                    let work = b.launch(copy, Stream::Compute, after, None);
                    b.plan.works[work as usize].pass = is_backward.then_some(b.pass);
                });
            });
            let next =
                if is_backward { layer.checked_sub(1) } else { Some(layer + 1).filter(|&it| it < b.layers) };
            let is_late = b.options.fault == Some(TrainingFault::LateAllGather);
            if let Some(next) = next.filter(|_| !is_late) {
                b.annotation(&format!("FSDP::{direction}_prefetch for layers.{next}"), |b| b.gather(next));
            }
        });
    }

    fn gather(&mut self, layer: u32) {
        if self.options.fault == Some(TrainingFault::LateAllGather) {
            let last = self.last.into_iter().flatten().max();
            self.plan.instrs.extend(last.map(|work| Instr::Synchronise(Some(work))));
        }
        let Parallel { tp, fsdp, .. } = self.options.parallel;
        let elements = PARAMETERS / i64::from(tp);
        let collective = Collective {
            dimension: Dimension::Fsdp,
            name: "_allgather_base",
            in_elements: elements / i64::from(fsdp),
            out_elements: elements,
            partners: Partners::Group,
        };
        self.annotation(&format!("FSDP::all_gather (layers.{layer})"), |b| {
            let kernel = all_gather(elements, fsdp);
            let how = (collective, None);
            let work = b.communicate("c10d::_allgather_base_", kernel, Stream::Gather, Vec::new(), how);
            b.gathered[layer as usize] = Some(work);
        });
    }

    pub(super) fn free_parameters(&mut self, layer: u32, hook: &str) {
        if self.options.parallel.fsdp > 1 && !self.keeps_parameters() {
            self.annotation(&format!("FSDP::{hook} (layers.{layer})"), |_| {});
        }
    }

    /// Sums the gradients of a layer over the ranks with other data, in the last micro-batch.
    pub(super) fn reduce_gradients(&mut self, layer: u32) {
        let Parallel { tp, dp, fsdp, .. } = self.options.parallel;
        let is_last = self.pass.micro_batch + 1 == self.options.micro_batches();
        self.free_parameters(layer, "post_backward_reshard");
        let elements = PARAMETERS / i64::from(tp);
        if !is_last {
            return;
        }
        let computed: Vec<u32> = self.last.into_iter().flatten().collect();
        let scattered = (fsdp > 1).then(|| {
            let collective = Collective {
                dimension: Dimension::Fsdp,
                name: "_reduce_scatter_base",
                in_elements: elements,
                out_elements: elements / i64::from(fsdp),
                partners: Partners::Group,
            };
            let name = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
            let kernel = Kernel { name: name.to_owned(), ..all_gather(elements, fsdp) };
            let after = computed.clone();
            self.annotation(&format!("FSDP::post_backward_reduce (layers.{layer})"), |b| {
                let how = (collective, None);
                b.communicate("c10d::_reduce_scatter_base_", kernel, Stream::Reduce, after, how)
            })
        });
        let summed = (dp > 1).then(|| {
            let elements = elements / i64::from(fsdp);
            let collective = Collective {
                dimension: Dimension::Dp,
                name: "allreduce",
                in_elements: elements,
                out_elements: elements,
                partners: Partners::Group,
            };
            let kernel = all_reduce(elements, dp);
            let after = scattered.map_or(computed, |work| vec![work]);
            let name = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad";
            self.op(name, None, |b, _| {
                b.communicate("c10d::allreduce_", kernel, Stream::Reduce, after, (collective, None))
            })
        });
        self.reduced.extend(summed.or(scattered));
    }

    pub(super) fn optimizer(&mut self) {
        let Parallel { tp, fsdp, .. } = self.options.parallel;
        self.annotation("Optimizer.step#AdamW.step", |b| {
            let mut after = std::mem::take(&mut b.reduced);
            let parameters = PARAMETERS / i64::from(tp * fsdp);
            // Parameters, gradients and two moments.
            let tensors = list(vec![format!("[{parameters}]"); b.layers as usize]);
            let inputs = Inputs::tensors(&[&*tensors; 4]);
            let inputs = Inputs { types: list([r#""TensorList""#; 4]), ..inputs };
            b.op("aten::_fused_adamw_", Some(inputs), |b, _| {
                for _ in 0..b.layers {
                    let kernel = multi_tensor("FusedAdamMathFunctor", 4, parameters);
                    b.launch(kernel, Stream::Compute, std::mem::take(&mut after), None);
                }
            });
        });
    }
}
