//! What names tell: each distinct name is classified once.

use crate::schema::{Column, Symbol, SymbolTable};

/// What is known of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Class(u16);

impl Class {
    /// `ProfilerStep#N`.
    pub(super) const STEP: Self = Self(1);
    /// A node of the autograd graph being executed.
    pub(super) const AUTOGRAD_NODE: Self = Self(1 << 1);
    /// A step of an optimizer, or its zeroing of gradients.
    pub(super) const OPTIMIZER: Self = Self(1 << 2);
    /// Fetching the next batch.
    pub(super) const DATALOADER: Self = Self(1 << 3);
    /// An op or annotation that stands for a collective or a point-to-point transfer.
    pub(super) const COMMUNICATION_OP: Self = Self(1 << 4);
    /// A kernel that moves data between GPUs.
    pub(super) const COMMUNICATION_KERNEL: Self = Self(1 << 5);
    /// A runtime call that starts GPU work.
    pub(super) const KERNEL_LAUNCH: Self = Self(1 << 6);
    /// A call of an `nn.Module`.
    pub(super) const MODULE: Self = Self(1 << 7);
    /// The category of annotations.
    pub(super) const ANNOTATION_CATEGORY: Self = Self(1 << 8);

    /// Whether any of the classes of `other` applies.
    #[inline]
    pub(super) fn is(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    fn of(text: &str) -> Self {
        let checks: [(Self, bool); 9] = [
            (Self::STEP, step_number(text).is_some()),
            (Self::AUTOGRAD_NODE, text.starts_with("autograd::engine::evaluate_function")),
            (
                Self::OPTIMIZER,
                text.starts_with("Optimizer.step#") || text.starts_with("Optimizer.zero_grad#"),
            ),
            (Self::DATALOADER, is_dataloader(text)),
            (Self::COMMUNICATION_OP, COMMUNICATION_OPS.iter().any(|p| text.starts_with(p))),
            (Self::COMMUNICATION_KERNEL, is_communication_kernel(text)),
            (Self::KERNEL_LAUNCH, is_kernel_launch(text)),
            (Self::MODULE, text.starts_with(MODULE_PREFIX)),
            (Self::ANNOTATION_CATEGORY, text.eq_ignore_ascii_case("user_annotation")),
        ];
        Self(checks.iter().filter(|(_, applies)| *applies).fold(0, |bits, (class, _)| bits | class.0))
    }
}

/// Beginnings of the names of collectives and of what wraps them on the host.
const COMMUNICATION_OPS: &[&str] = &[
    "nccl:",
    "gloo:",
    "mpi:",
    "ucc:",
    "xccl:",
    "hccl:",
    "c10d::",
    "c10d_functional::",
    "_c10d_functional::",
    "record_param_comms",
];

/// Beginnings of the names of communication libraries' kernels.
const COMMUNICATION_KERNELS: &[&str] = &["nccl", "rccl", "mscclKernel", "msccl::", "mscclpp", "nvshmem"];

/// Parts of the qualified names of other kernels that exchange data between GPUs: vLLM, SGLang and
/// AITER custom all-reduce, TensorRT-LLM and FlashInfer fused all-reduce, PyTorch symmetric memory,
/// quick reduce, DeepEP.
const CUSTOM_COMMUNICATION_KERNELS: &[&str] = &[
    "cross_device_reduce",
    "one_shot_all_reduce",
    "two_shot_all_reduce",
    "oneShotAllReduce",
    "twoShotAllReduce",
    "multimem_all_reduce",
    "multimem_all_gather",
    "multimem_one_shot_reduce",
    "allreduce_fusion_kernel",
    "allreduce_prototype",
    "deep_ep::intranode::",
    "deep_ep::internode::",
    "deep_ep::internode_ll::",
];

const STEP_PREFIX: &str = "ProfilerStep#";
const MODULE_PREFIX: &str = "nn.Module: ";
const ANONYMOUS: &str = "(anonymous namespace)";

/// The number of a `ProfilerStep#N` annotation.
pub(super) fn step_number(name: &str) -> Option<i32> {
    name.strip_prefix(STEP_PREFIX)?.trim().parse().ok()
}

/// The module instance that a frame's name tells, such as `Linear_3`.
pub(super) fn module_name(name: &str) -> Option<&str> {
    name.strip_prefix(MODULE_PREFIX)
}

fn is_dataloader(name: &str) -> bool {
    name.starts_with("enumerate(DataPipe)#")
        || (name.starts_with("enumerate(DataLoader)#") && name.ends_with(".__next__"))
}

fn is_kernel_launch(name: &str) -> bool {
    ["LaunchKernel", "LaunchCooperativeKernel", "GraphLaunch"].iter().any(|part| name.contains(part))
}

fn is_communication_kernel(name: &str) -> bool {
    let name = name.strip_prefix("void ").unwrap_or(name);
    if COMMUNICATION_KERNELS.iter().any(|prefix| name.starts_with(prefix)) {
        return true;
    }
    // Template and call arguments name types of other kernels.
    let arguments = name.match_indices(['<', '(']).find(|&(at, _)| !name[at..].starts_with(ANONYMOUS));
    let qualified = arguments.map_or(name, |(at, _)| &name[..at]);
    CUSTOM_COMMUNICATION_KERNELS.iter().any(|part| qualified.contains(part))
}

/// The class of every symbol.
pub(super) struct Names {
    classes: Vec<Class>,
}

impl Names {
    pub(super) fn new(symbols: &SymbolTable) -> Self {
        Self { classes: symbols.classify(Class::of) }
    }

    /// Whether the text in `column` at `index` has any of the classes of `class`.
    #[inline]
    pub(super) fn is(&self, column: &Column<Symbol>, index: u32, class: Class) -> bool {
        self.class(column, index).is(class)
    }

    /// The class of the text in `column` at `index`.
    #[inline]
    pub(super) fn class(&self, column: &Column<Symbol>, index: u32) -> Class {
        column
            .get(index as usize)
            .and_then(|symbol| self.classes.get(symbol.index()))
            .copied()
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::{Class, is_communication_kernel, module_name, step_number};

    #[test]
    fn communication_kernels_by_name() {
        for name in [
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclWorkElem)",
            "rcclGenericKernel<2, 0>(ncclDevKernelArgsStorage<4096ul>)",
            "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
            "void aiter::cross_device_reduce_2stage<__hip_bfloat16, 8>(aiter::RankData*)",
            "void c10d::(anonymous namespace)::two_shot_all_reduce_kernel<float, 16, 8>(float*)",
            "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1>(int)",
            "void deep_ep::internode_ll::dispatch<true, false>(void*)",
            "nvshmemi_transfer_rma",
        ] {
            assert!(is_communication_kernel(name), "{name}");
        }
        for name in [
            "void at::native::vectorized_elementwise_kernel<4, cross_device_reduce_1stage>(int)",
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(nccl)",
            "deep_ep::layout::get_dispatch_layout<256>(long const*)",
            "Cijk_Ailk_Bljk_BBS_BH",
            "triton_red_fused_all_reduce_0",
            "",
        ] {
            assert!(!is_communication_kernel(name), "{name}");
        }
    }

    #[test]
    fn classes_of_host_names() {
        assert!(Class::of("ProfilerStep#12").is(Class::STEP));
        assert!(!Class::of("ProfilerStep#abc").is(Class::STEP));
        assert_eq!(step_number("ProfilerStep#12"), Some(12));
        assert!(Class::of("nccl:_all_gather_base").is(Class::COMMUNICATION_OP));
        assert!(Class::of("c10d::allreduce_").is(Class::COMMUNICATION_OP));
        assert!(!Class::of("aten::add").is(Class::COMMUNICATION_OP));
        assert!(
            Class::of("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__").is(Class::DATALOADER)
        );
        assert!(
            !Class::of("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__init__").is(Class::DATALOADER)
        );
        assert!(Class::of("hipExtModuleLaunchKernel").is(Class::KERNEL_LAUNCH));
        assert!(Class::of("cudaGraphLaunch").is(Class::KERNEL_LAUNCH));
        assert!(!Class::of("cudaMemcpyAsync").is(Class::KERNEL_LAUNCH));
        assert_eq!(module_name("nn.Module: Linear_3"), Some("Linear_3"));
    }
}
