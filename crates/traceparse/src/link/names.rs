//! What an activity is: the names and patterns that say so, and the texts that columns say it with.
//! Each distinct name is classified once. What communicates is listed in [`communication`].

use super::communication;
use crate::schema::{Column, Ops, Symbol, SymbolTable};

/// What is known of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Class(u32);

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
    /// A kernel that exchanges data with other devices, or the category of such work.
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
    /// A runtime call that launches a CUDA or HIP graph.
    pub(super) const GRAPH_LAUNCH: Self = Self(1 << 11);
    /// A runtime call that begins the capture of a graph.
    pub(super) const CAPTURE_BEGIN: Self = Self(1 << 12);
    /// A runtime call that ends the capture of a graph.
    pub(super) const CAPTURE_END: Self = Self(1 << 13);
    /// A runtime call that starts a copy and returns before it is done.
    pub(super) const COPY_CALL: Self = Self(1 << 14);
    /// A runtime call that starts a memset and returns before it is done.
    pub(super) const MEMSET_CALL: Self = Self(1 << 15);
    /// An operator or a node of PyTorch's, by its namespace or its ending.
    pub(super) const OPERATOR: Self = Self(1 << 16);
    /// A node of the backward pass, such as `MmBackward0`.
    pub(super) const BACKWARD_NODE: Self = Self(1 << 17);
    /// A runtime call that starts a copy, whether it waits for it or not.
    pub(super) const STARTS_COPY: Self = Self(1 << 20);
    /// A runtime call that starts a memset, whether it waits for it or not.
    pub(super) const STARTS_MEMSET: Self = Self(1 << 21);
    /// A Python frame that enters autograd's engine, such as `_engine_run_backward`.
    pub(super) const RUNS_BACKWARD: Self = Self(1 << 18);
    /// A Python frame of a function called `backward` or `grad`.
    pub(super) const CALLS_BACKWARD: Self = Self(1 << 19);

    /// An operator that the dispatcher calls, by its namespace.
    pub(super) const DISPATCHED: Self = Self(1 << 22);
    /// An operator of the gradient of another one, such as `aten::gelu_backward`.
    pub(super) const GRADIENT: Self = Self(1 << 23);
    /// The autograd Function that runs code of torch.compile.
    pub(super) const COMPILED_FUNCTION: Self = Self(1 << 24);

    /// The classes of both.
    pub(super) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether any of the classes of `other` applies.
    #[inline]
    pub(super) fn is(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    fn of(text: &str) -> Self {
        let (copies, sets, is_async) =
            (is_call(text, "Memcpy"), is_call(text, "Memset"), text.contains("Async"));
        let checks: [(Self, bool); 25] = [
            (Self::STEP, step_number(text).is_some()),
            (Self::AUTOGRAD_NODE, text.starts_with("autograd::engine::evaluate_function")),
            (Self::OPTIMIZER, text.starts_with(OPTIMIZER_PREFIX)),
            (Self::DATALOADER, is_dataloader(text)),
            (Self::COMMUNICATION_OP, communication::is_op(text)),
            (Self::COMMUNICATION_KERNEL, communication::is_kernel(text)),
            (Self::KERNEL_LAUNCH, is_kernel_launch(text)),
            (Self::MODULE, text.starts_with(MODULE_PREFIX)),
            (Self::ANNOTATION_CATEGORY, is_annotation_category(text)),
            (Self::WAIT, is_wait(text)),
            (Self::WRAPPER, WRAPPERS.contains(&text)),
            (Self::GRAPH_LAUNCH, is_call(text, "GraphLaunch")),
            (Self::CAPTURE_BEGIN, is_call(text, "StreamBeginCapture")),
            (Self::CAPTURE_END, is_call(text, "StreamEndCapture")),
            (Self::COPY_CALL, copies && is_async),
            (Self::MEMSET_CALL, sets && is_async),
            (Self::OPERATOR, is_backward_node(text) || NAMESPACES.iter().any(|own| text.starts_with(own))),
            (Self::BACKWARD_NODE, is_backward_node(text)),
            (Self::STARTS_COPY, copies),
            (Self::STARTS_MEMSET, sets),
            (Self::RUNS_BACKWARD, text.contains("run_backward")),
            (Self::CALLS_BACKWARD, is_backward_call(text)),
            (Self::DISPATCHED, is_dispatched(text)),
            (Self::GRADIENT, is_dispatched(text) && text.contains("_backward")),
            (Self::COMPILED_FUNCTION, text == COMPILED_FUNCTION),
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
        Recompute = "recompute",
        Optimizer = "optimizer",
    }
    /// What a step of serving computes.
    serving: Work {
        Prefill = "prefill",
        Decode = "decode",
        Mixed = "mixed",
    }
    /// How the node of a captured graph was found that a piece of replayed work is.
    replay: Replay {
        Exact = "exact",
        Aligned = "aligned",
        Inferred = "inferred",
    }
    /// How the op of a piece of GPU work was found, or why there is none.
    link: Link {
        ExternalId = "external_id",
        Containment = "containment",
        GpuExternalId = "gpu_external_id",
        ExternalIdOrder = "external_id_order",
        Arrow = "arrow",
        NvtxRange = "nvtx_range",
        SeveralRanges = "several_ranges",
        NoOp = "no_op",
        NoLaunch = "no_launch",
        NoCorrelation = "no_correlation",
    }
}

const STEP_PREFIX: &str = "ProfilerStep#";
const MODULE_PREFIX: &str = "nn.Module: ";
const OPTIMIZER_PREFIX: &str = "Optimizer.";
/// Its backward pass does not call it.
const COMPILED_FUNCTION: &str = "CompiledFunction";

/// Beginnings of the names of operators and nodes, of PyTorch and of the libraries that it is used with.
const NAMESPACES: [&str; 16] = [
    "aten::",
    "autograd::",
    "c10d::",
    "c10d_functional::",
    "_c10d_functional::",
    "cudnn::",
    "fbgemm::",
    "flash_attn::",
    "inductor::",
    "prim::",
    "prims::",
    "profiler::",
    "quantized::",
    "torch::autograd::",
    "torchvision::",
    "xformers::",
];

/// Names of annotations around the forward pass of a wrapped model.
const WRAPPERS: [&str; 2] = ["DistributedDataParallel.forward", "DataParallel.forward"];

/// Beginnings of the names of runtime and driver calls.
const APIS: [&str; 7] = ["cuda", "hip", "mu", "sycl", "cu", "ze", "tops"];

/// Parts of the names of calls that start kernels and graphs: of CUDA, HIP and Level Zero, and of SYCL.
const LAUNCHES: [&str; 4] = ["LaunchKernel", "LaunchCooperativeKernel", "GraphLaunch", "EnqueueKernelLaunch"];
/// Beginning of the names of MTIA's.
const MTIA_LAUNCH: &str = "runFunction";

/// Other calls that wait for the device: of MTIA's runtime, and of SYCL's.
const WAITS: [&str; 4] = ["synchronize", "synchronizeStream", "urQueueFinish", "urEventWait"];

/// Functions of PyTorch that run a backward pass and return when it is done.
const BACKWARD_CALLS: [&str; 2] = ["backward", "grad"];

/// Calls of CUDA and HIP that wait for the GPU, without the prefix of the API.
const WAITING_COPIES: [&str; 3] = ["Memcpy", "Memcpy2D", "Memcpy3D"];
const WAITING_ALLOCATIONS: [&str; 4] = ["Malloc", "Free", "MemAlloc", "MemFree"];

/// The number of a `ProfilerStep#N` annotation.
pub(super) fn step_number(name: &str) -> Option<i32> {
    name.strip_prefix(STEP_PREFIX)?.trim().parse().ok()
}

/// The module instance that a frame's name tells, such as `Linear_3`.
pub(super) fn module_name(name: &str) -> Option<&str> {
    name.strip_prefix(MODULE_PREFIX)
}

/// Whether a name is that of a node of the backward pass: `MmBackward0`, `AddBackward`.
fn is_backward_node(name: &str) -> bool {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    stem.len() > "Backward".len() && stem.ends_with("Backward") && !stem.contains([' ', ':', '.', '#'])
}

/// Whether a name is that of an operator of a namespace: `aten::mm`, `flash_attn::_flash_attn_forward`.
fn is_dispatched(name: &str) -> bool {
    name.contains("::") && !name.contains(' ')
}

/// Whether a Python frame is of a function that runs a backward pass, such as `torch/_tensor.py(570): backward`.
fn is_backward_call(frame: &str) -> bool {
    let place = BACKWARD_CALLS.iter().find_map(|function| frame.strip_suffix(function));
    place.is_some_and(|place| place.is_empty() || place.ends_with("): "))
}

/// Whether a category is that of annotations.
pub(super) fn is_annotation_category(category: &str) -> bool {
    category.eq_ignore_ascii_case("user_annotation")
}

fn is_dataloader(name: &str) -> bool {
    name.starts_with("enumerate(DataPipe)#")
        || (name.starts_with("enumerate(DataLoader)#") && name.ends_with(".__next__"))
}

/// Whether a name is that of a call of an API that begins with `call`, as `cuGraphLaunch_ptsz` is.
fn is_call(name: &str, call: &str) -> bool {
    APIS.iter().filter_map(|api| name.strip_prefix(api)).any(|rest| rest.starts_with(call))
}

fn is_kernel_launch(name: &str) -> bool {
    LAUNCHES.iter().any(|part| name.contains(part)) || name.starts_with(MTIA_LAUNCH)
}

/// Whether a call is a synchronisation, a copy that returns when it is done, or an allocation or
/// release of memory, before which the driver waits for the GPU.
fn is_wait(name: &str) -> bool {
    let of_api = |api: &str| name.strip_prefix(api);
    let synchronises = |call: &str| {
        let word = call.find(|c: char| !c.is_alphanumeric() && c != '_').map_or(call, |end| &call[..end]);
        word.contains("Synchronize")
    };
    if WAITS.contains(&name) || APIS.into_iter().filter_map(of_api).any(synchronises) {
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
        let names = Class::STEP.or(Class::OPTIMIZER).or(Class::DATALOADER).or(Class::WRAPPER);
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
    use super::{Class, is_wait, module_name, step_number};

    #[test]
    fn calls_that_wait() {
        let waits = "cudaDeviceSynchronize cudaStreamSynchronize_ptsz hipEventSynchronize cuCtxSynchronize \
            cudaMemcpy hipMemcpy2D cudaFree cudaMallocHost cuMemAlloc_v2 cuMemFreeHost synchronizeStream \
            zeEventHostSynchronize urQueueFinish";
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
            ("cuGraphLaunch_ptsz", Class::GRAPH_LAUNCH, true),
            ("hipGraphLaunch", Class::GRAPH_LAUNCH, true),
            ("cudaGraphLaunchHost", Class::CAPTURE_BEGIN, false),
            ("hipStreamBeginCapture", Class::CAPTURE_BEGIN, true),
            ("cuStreamBeginCapture_v2", Class::CAPTURE_BEGIN, true),
            ("cudaStreamEndCapture", Class::CAPTURE_END, true),
            ("cudaStreamIsCapturing", Class::CAPTURE_BEGIN, false),
            ("cuMemcpyHtoDAsync_v2", Class::COPY_CALL, true),
            ("hipMemcpy", Class::COPY_CALL, false),
            ("cudaMemset2DAsync", Class::MEMSET_CALL, true),
            ("zeCommandListAppendLaunchKernel", Class::KERNEL_LAUNCH, true),
            ("urEnqueueKernelLaunch", Class::KERNEL_LAUNCH, true),
            ("runFunction - job_prep_and_submit_for_execution", Class::KERNEL_LAUNCH, true),
            ("enqueueCommand memcpyHtoDAsync", Class::KERNEL_LAUNCH, false),
        ] {
            assert_eq!(Class::of(name).is(class), is_of_class, "{name}");
        }
        assert_eq!(step_number("ProfilerStep#12"), Some(12));
        assert_eq!(module_name("nn.Module: Linear_3"), Some("Linear_3"));
    }
}
