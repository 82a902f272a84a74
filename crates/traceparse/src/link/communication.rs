//! What communication is: the names of kernels that exchange data between devices, and of what
//! starts them on the host. No other place knows such names.

/// Beginnings of the names of ops, annotations and ranges that stand for a collective or a transfer.
const OPS: &[&str] = &[
    "nccl:",
    "gloo:",
    "mpi:",
    "ucc:",
    "xccl:",
    "hccl:",
    "c10d::",
    "c10d_functional::",
    "_c10d_functional::",
    "oneccl_bindings_for_pytorch::",
    "record_param_comms",
];

/// Those of them that the host runs itself, so that there is no kernel.
pub const HOST_OPS: &[&str] = &["gloo:", "mpi:"];

/// The category of collectives that a device ran, as some recorders write it.
const DEVICE_CATEGORY: &str = "collective_comm";

/// Words that begin a part of the name of a kernel which exchanges data between devices, or waits for
/// others to: lower case, without underscores, and matched in that form.
///
/// A kernel that fuses a collective with a norm or an addition is communication: it lasts as long as
/// the slowest of its peers.
const KERNELS: &[&str] = &[
    // Libraries: NCCL with its symmetric and device-side kernels, RCCL, MSCCL and MSCCL++, NVSHMEM,
    // rocSHMEM, Intel SHMEM, oneCCL, and those of Habana, MTIA and Ascend.
    "nccl",
    "rccl",
    "msccl",
    "nvshmem",
    "rocshmem",
    "ishmem",
    "oneccl",
    "xccl",
    "hccl",
    "hcom",
    "collectivesubgraph",
    // Collectives of any origin: vLLM, SGLang, AITER, TensorRT-LLM, FlashInfer, PyTorch symmetric memory,
    // quick reduce.
    "allreduce",
    "allgather",
    "reducescatter",
    "alltoall",
    "crossdevicereduce",
    "oneshot",
    "twoshot",
    "multimem",
    "lamport",
    "moea2a",
    // Collectives of NVSHMEM on a stream, user buffers of Transformer Engine, signals between ranks.
    "barrieronstream",
    "syncallonstream",
    "rdxn",
    "fcollect",
    "userbuffers",
    "kuserbuffers",
    "intranodecomm",
    "symmetricmemory",
    "exchangesplit",
    "putsignal",
    "waitsignal",
    // Exchange of the tokens of experts: DeepEP and what is made from it, in any namespace.
    "deepep",
    "hybridep",
    "internode",
    "intranode",
    "notifydispatch",
    "cachednotify",
];

/// Namespaces of such kernels whose names are too short to be looked for inside of others.
const NAMESPACES: &[&str] = &["ep", "ccl", "gloo"];

/// Words that make a kernel with such a name compute after all: it counts tokens or looks for NaN on its
/// own device, or its time is that of a matrix product with a collective fused into it.
const LOCAL: &[&str] = &["getdispatchlayout", "checkfornan", "gemm", "matmul"];

/// What compilers of PyTorch put before names that they make up from the names of ops.
const GENERATED: &str = "triton_";

/// Unnamed namespaces as demanglers write them: their brackets open no arguments.
const UNNAMED: [&str; 3] = ["(anonymous namespace)", "<unnamed>", "{anonymous}"];

/// Whether the name of an op or range stands for a collective or a point-to-point transfer.
pub(super) fn is_op(name: &str) -> bool {
    OPS.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether the name or the category of work on a device says that it exchanges data with others.
pub(super) fn is_kernel(text: &str) -> bool {
    if text.starts_with(GENERATED) {
        return false;
    }
    let name = qualified(text).as_bytes();
    let has = |words: &[&str]| words_of(name).any(|rest| words.iter().any(|word| begins(rest, word)));
    text.eq_ignore_ascii_case(DEVICE_CATEGORY) || ((has(KERNELS) || has_namespace(name)) && !has(LOCAL))
}

/// A name without its template and call arguments, which name types of other kernels.
fn qualified(name: &str) -> &str {
    let opens = |at: &usize| !UNNAMED.iter().any(|unnamed| name[*at..].starts_with(unnamed));
    let arguments = name.match_indices(['<', '(']).map(|(at, _)| at).find(opens);
    arguments.map_or(name, |at| &name[..at])
}

/// What follows the start of each word of a name: behind anything that is no letter, or a capital behind a
/// small letter. Lengths of identifiers start words of mangled names in that way.
fn words_of(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    let starts = |at: &usize| {
        let before = at.checked_sub(1).map_or(b' ', |before| name[before]);
        let is_capital = name[*at].is_ascii_uppercase() && before.is_ascii_lowercase();
        name[*at].is_ascii_alphabetic() && (is_capital || !before.is_ascii_alphabetic())
    };
    (0..name.len()).filter(starts).map(|at| &name[at..])
}

/// Whether `rest` begins with a word, in any case and with underscores anywhere.
fn begins(rest: &[u8], word: &str) -> bool {
    let mut letters = rest.iter().filter(|&&byte| byte != b'_').map(u8::to_ascii_lowercase);
    word.bytes().all(|letter| letters.next() == Some(letter))
}

/// Whether a name lies in one of the namespaces, plain or mangled.
fn has_namespace(name: &[u8]) -> bool {
    let is_name = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
    (0..name.len()).any(|at| {
        (at == 0 || !is_name(&name[at - 1]))
            && NAMESPACES.iter().filter_map(|space| name[at..].strip_prefix(space.as_bytes())).any(|rest| {
                rest.starts_with(b"::") || (at > 0 && rest.first().is_some_and(u8::is_ascii_digit))
            })
    })
}

#[cfg(test)]
mod tests {
    use super::{HOST_OPS, is_kernel, is_op};

    #[test]
    fn kernels_that_communicate() {
        for name in [
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclWorkElem)",
            "ncclSymkDevKernel_AllReduce_RSxLD_AGxST_sum_bf16(ncclSymkDevWorkArgs)",
            "rcclGenericKernel<2, 0>(ncclDevKernelArgsStorage<4096ul>)",
            "mscclKernel_Sum_float_LL_false(ncclDevKernelArgs)",
            "void mscclpp::executionKernel<int, mscclpp::LL16Packet>(int)",
            "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
            "void sglang::cross_device_reduce_2stage<__half, 4>(sglang::RankData*)",
            "void aiter::cross_device_reduce_2stage<__hip_bfloat16, 8>(aiter::RankData*)",
            "void quickreduce::allreduce_prototype_twoshot<quickreduce::CodecQ4>(half*)",
            "void (anonymous namespace)::all_reduce_one_shot_push_kernel<__half, 8u, true>(int)",
            "void c10d::(anonymous namespace)::two_shot_all_reduce_kernel<float, 16, 8>(float*)",
            "void <unnamed>::multimem_all_reduce_kernel<c10::BFloat16, (int)16>(T1 *)",
            "void tensorrt_llm::kernels::oneShotAllReduceKernel<half, 8>(tensorrt_llm::kernels::Params)",
            "void tensorrt_llm::kernels::customAllReduce<float>(float*)",
            "void tensorrt_llm::kernels::twoShotLamport<float>(float*)",
            "void tensorrt_llm::kernels::mnnvl_throughput::moeA2ADispatchKernel<4>(int)",
            "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1>(int)",
            "flashinfer::trtllm_mnnvl_allreduce::rmsNormLamport<8, 1>(int)",
            "void deep_ep::internode_ll::dispatch<true, false>(void*)",
            "void dpsk::ep::internode::combine_ll<7168>(void*)",
            "void dpsk::internode::notify_dispatch<8>(int const*)",
            "void dpsk::ep::dispatch<8>(int const*)",
            "uccl::internode_ll::combine(void*)",
            "_ZN7deep_ep9internode8dispatchILb0ELi4EEEvPvS1_",
            "_ZN4dpsk2ep8dispatchILi8EEEvPv",
            "nvshmemi_transfer_rma",
            "void barrier_on_stream_kernel_threadgroup<(int)1>(int, int)",
            "oneapi::ccl::v1::gather(int)",
            "collective_comm",
        ] {
            assert!(is_kernel(name), "{name}");
        }
    }

    #[test]
    fn kernels_that_only_look_like_it() {
        for name in [
            "void at::native::vectorized_elementwise_kernel<4, cross_device_reduce_1stage>(int)",
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(nccl)",
            "void at::native::<unnamed>::CatArrayBatchedCopy<all_gather>(T1 *)",
            "void c10d::checkForNaN<float>(float*, unsigned long)",
            "deep_ep::layout::get_dispatch_layout<256>(long const*)",
            "void smallGather_kernel<float>(float*)",
            "void step::update(float*)",
            "void cutlass::ep_kernel(float*)",
            "void fused_gemm_all_reduce_kernel<half>(half*)",
            "Cijk_Ailk_Bljk_BBS_BH",
            "triton_red_fused_all_reduce_0",
            "void vectorized_gather_kernel<(int)16, long>(char *)",
            "cpu_op",
            "",
        ] {
            assert!(!is_kernel(name), "{name}");
        }
    }

    #[test]
    fn ops_that_communicate() {
        for name in ["nccl:_all_gather_base", "c10d::allreduce_", "gloo:all_reduce", "record_param_comms"] {
            assert!(is_op(name), "{name}");
        }
        assert!(HOST_OPS.iter().all(|prefix| is_op(prefix)));
        for name in ["aten::add", "my nccl:x", "ncclDevKernel_Generic", ""] {
            assert!(!is_op(name), "{name}");
        }
    }
}
