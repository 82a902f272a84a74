//! What an activity is: the names and patterns that say so, and the texts that columns say it with.
//! Each distinct name is classified once.

use crate::schema::{Column, Ops, Symbol, SymbolTable};

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
    /// A runtime call in which the host waits until the GPU has done its work.
    pub(super) const WAIT: Self = Self(1 << 9);
    /// What PyTorch draws around code of the user, in some versions under the category of operators.
    pub(super) const WRAPPER: Self = Self(1 << 10);

    /// Whether any of the classes of `other` applies.
    #[inline]
    pub(super) fn is(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    fn of(text: &str) -> Self {
        let checks: [(Self, bool); 11] = [
            (Self::STEP, step_number(text).is_some()),
            (Self::AUTOGRAD_NODE, text.starts_with("autograd::engine::evaluate_function")),
            (Self::OPTIMIZER, text.starts_with(OPTIMIZER_PREFIX)),
            (Self::DATALOADER, is_dataloader(text)),
            (Self::COMMUNICATION_OP, COMMUNICATION_OPS.iter().any(|p| text.starts_with(p))),
            (Self::COMMUNICATION_KERNEL, is_communication_kernel(text)),
            (Self::KERNEL_LAUNCH, is_kernel_launch(text)),
            (Self::MODULE, text.starts_with(MODULE_PREFIX)),
            (Self::ANNOTATION_CATEGORY, text.eq_ignore_ascii_case("user_annotation")),
            (Self::WAIT, is_wait(text)),
            (Self::WRAPPER, WRAPPERS.contains(&text)),
        ];
        Self(checks.iter().filter(|(_, applies)| *applies).fold(0, |bits, (class, _)| bits | class.0))
    }
}

/// Declares what columns say of a row, each value with the text that users see.
macro_rules! vocabulary {
    ($( #[doc = $doc:literal] $column:ident: $kind:ident { $( $value:ident = $text:literal, )* } )*) => {
        $(
            #[doc = $doc]
            #[derive(Debug, Clone, Copy, PartialEq, Eq)]
            pub(super) enum $kind { $( $value, )* }
        )*

        /// Symbols of the texts that the link stage writes.
        pub(super) struct Vocabulary {
            $( $column: [Symbol; [$( $text ),*].len()], )*
            /// By symbol: the module instance that a name of a frame tells.
            modules: Vec<Option<Symbol>>,
        }

        impl Vocabulary {
            pub(super) fn new(symbols: &mut SymbolTable) -> Self {
                let names = symbols.classify(|text| module_name(text).map(str::to_owned));
                let modules = names.into_iter().map(|name| name.map(|name| symbols.intern(&name))).collect();
                Self { modules, $( $column: [$( $text ),*].map(|text| symbols.intern(text)), )* }
            }

            $( pub(super) fn $column(&self, value: $kind) -> Symbol {
                self.$column[value as usize]
            } )*

            /// The module instance that a frame's name tells; the name itself if it tells none.
            pub(super) fn module(&self, name: Symbol) -> Symbol {
                self.modules.get(name.index()).copied().flatten().unwrap_or(name)
            }
        }
    };
}

vocabulary! {
    /// What an op, a range, a call or a piece of GPU work does.
    activity: Activity {
        Step = "step",
        DataLoading = "data_loading",
        Communication = "communication",
        Optimizer = "optimizer",
        Launch = "launch",
        Wait = "wait",
    }
    /// What part of training an op belongs to.
    phase: Phase {
        Other = "other",
        Forward = "forward",
        Backward = "backward",
        Optimizer = "optimizer",
    }
    /// How the op of a piece of GPU work was found, or why there is none.
    link: Link {
        ExternalId = "external_id",
        Containment = "containment",
        GpuExternalId = "gpu_external_id",
        NvtxRange = "nvtx_range",
        NoOp = "no_op",
        NoLaunch = "no_launch",
        NoCorrelation = "no_correlation",
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
const OPTIMIZER_PREFIX: &str = "Optimizer.";

/// Names of annotations around the forward pass of a wrapped model.
const WRAPPERS: [&str; 2] = ["DistributedDataParallel.forward", "DataParallel.forward"];

/// Beginnings of the names of runtime and driver calls.
const APIS: [&str; 5] = ["cuda", "hip", "mu", "sycl", "cu"];

/// Calls of CUDA and HIP that wait for the GPU, without the prefix of the API.
const WAITING_COPIES: [&str; 3] = ["Memcpy", "Memcpy2D", "Memcpy3D"];
const WAITING_ALLOCATIONS: [&str; 4] = ["Malloc", "Free", "MemAlloc", "MemFree"];

const ANONYMOUS: &str = "(anonymous namespace)";

/// The number of a `ProfilerStep#N` annotation.
pub(super) fn step_number(name: &str) -> Option<i32> {
    name.strip_prefix(STEP_PREFIX)?.trim().parse().ok()
}

/// The module instance that a frame's name tells, such as `Linear_3`.
fn module_name(name: &str) -> Option<&str> {
    name.strip_prefix(MODULE_PREFIX)
}

fn is_dataloader(name: &str) -> bool {
    name.starts_with("enumerate(DataPipe)#")
        || (name.starts_with("enumerate(DataLoader)#") && name.ends_with(".__next__"))
}

fn is_kernel_launch(name: &str) -> bool {
    ["LaunchKernel", "LaunchCooperativeKernel", "GraphLaunch"].iter().any(|part| name.contains(part))
}

/// Whether a call is a synchronisation, a copy that returns when it is done, or an allocation or
/// release of memory, before which the driver waits for the GPU.
fn is_wait(name: &str) -> bool {
    let of_api = |api: &str| name.strip_prefix(api);
    let synchronises = |call: &str| {
        let word = call.find(|c: char| !c.is_alphanumeric() && c != '_').map_or(call, |end| &call[..end]);
        word.contains("Synchronize")
    };
    if APIS.into_iter().filter_map(of_api).any(synchronises) {
        return true;
    }
    let is_copy = |call: &str| WAITING_COPIES.contains(&call);
    let is_allocation = |call: &str| {
        let call = call.strip_suffix("_v2").unwrap_or(call);
        WAITING_ALLOCATIONS.contains(&call.strip_suffix("Host").unwrap_or(call))
    };
    ["cuda", "hip"].into_iter().filter_map(of_api).any(is_copy)
        || ["cuda", "hip", "cu"].into_iter().filter_map(of_api).any(is_allocation)
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

    /// What an op or range of a name does; nothing if its name does not say. `is_step` marks a step.
    #[inline]
    pub(super) fn activity(&self, names: &Column<Symbol>, index: u32, is_step: bool) -> Option<Activity> {
        let class = self.class(names, index);
        if is_step || class.is(Class::STEP) {
            Some(Activity::Step)
        } else if class.is(Class::DATALOADER) {
            Some(Activity::DataLoading)
        } else if class.is(Class::COMMUNICATION_OP) {
            Some(Activity::Communication)
        } else if class.is(Class::OPTIMIZER) {
            Some(Activity::Optimizer)
        } else {
            None
        }
    }

    /// What a runtime or driver call of a name does; nothing if its name does not say.
    pub(super) fn call_activity(&self, names: &Column<Symbol>, index: u32) -> Option<Activity> {
        let class = self.class(names, index);
        if class.is(Class::KERNEL_LAUNCH) {
            Some(Activity::Launch)
        } else {
            class.is(Class::WAIT).then_some(Activity::Wait)
        }
    }

    /// Whether an op is an annotation: by its category, or by a name that only annotations have.
    pub(super) fn is_annotation(&self, ops: &Ops, index: u32) -> bool {
        let names = Class(Class::STEP.0 | Class::OPTIMIZER.0 | Class::DATALOADER.0 | Class::WRAPPER.0);
        self.is(&ops.category, index, Class::ANNOTATION_CATEGORY) || self.is(&ops.name, index, names)
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
    use super::{Class, is_communication_kernel, is_wait, module_name, step_number};

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
    fn calls_that_wait() {
        let waits = "cudaDeviceSynchronize cudaStreamSynchronize_ptsz hipEventSynchronize cuCtxSynchronize \
            cudaMemcpy hipMemcpy2D cudaFree cudaMallocHost cuMemAlloc_v2 cuMemFreeHost";
        for name in waits.split(' ') {
            assert!(is_wait(name), "{name}");
        }
        let others = "Synchronize,cudaMemcpyAsync,cuMemcpy,cudaMallocAsync,muMalloc,cu Synchronize,";
        for name in others.split(',') {
            assert!(!is_wait(name), "{name}");
        }
    }

    #[test]
    fn classes_of_host_names() {
        for (name, class, is_of_class) in [
            ("Optimizer.step#SGD.step", Class::OPTIMIZER, true),
            ("Optimizer.step", Class::OPTIMIZER, true),
            ("MyOptimizer.step", Class::OPTIMIZER, false),
            ("DistributedDataParallel.forward", Class::WRAPPER, true),
            ("ProfilerStep#12", Class::STEP, true),
            ("ProfilerStep#abc", Class::STEP, false),
            ("nccl:_all_gather_base", Class::COMMUNICATION_OP, true),
            ("c10d::allreduce_", Class::COMMUNICATION_OP, true),
            ("aten::add", Class::COMMUNICATION_OP, false),
            ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", Class::DATALOADER, true),
            ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__init__", Class::DATALOADER, false),
            ("hipExtModuleLaunchKernel", Class::KERNEL_LAUNCH, true),
            ("cudaGraphLaunch", Class::KERNEL_LAUNCH, true),
            ("cudaMemcpyAsync", Class::KERNEL_LAUNCH, false),
        ] {
            assert_eq!(Class::of(name).is(class), is_of_class, "{name}");
        }
        assert_eq!(step_number("ProfilerStep#12"), Some(12));
        assert_eq!(module_name("nn.Module: Linear_3"), Some("Linear_3"));
    }
}
