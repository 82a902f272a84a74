//! Kernels that the model launches: names, launch sizes and durations as an H100 would show them.

use super::data::{BATCH, HEADS, HIDDEN, SEQUENCE};
use crate::gpu::{Kernel, gemm_ns, stream_ns};

/// A matrix product `(m, k) x (k, n)`; `bias` adds a vector in its epilogue.
pub(crate) fn gemm(m: i64, n: i64, k: i64, bias: bool) -> Kernel {
    let (tile_m, tile_n) = if n >= 4096 { (256, 128) } else { (128, 128) };
    let tiles = (m as u32).div_ceil(tile_m) * (n as u32).div_ceil(tile_n);
    let suffix = if bias {
        "bias_TNN"
    } else if k > n {
        "NTN"
    } else {
        "NNN"
    };
    let cluster = if n >= 4096 { "2x1" } else { "1x2" };
    let name = format!("nvjet_tst_{tile_m}x{tile_n}_64x4_{cluster}_v_bz_coopA_{suffix}");
    Kernel::new(&name, [tiles.min(132), 1, 1], [384, 1, 1], (168, 213_248), gemm_ns(m, n, k))
}

/// An element-wise kernel over contiguous tensors; `functor` as in its template argument.
pub(crate) fn elementwise(functor: &str, operands: u32, elements: i64, bytes: i64) -> Kernel {
    let array = format!("std::array<char*, {operands}ul>");
    let name = format!(
        "void at::native::vectorized_elementwise_kernel<4, {functor}, {array} >(int, {functor}, {array})"
    );
    Kernel::new(&name, [blocks(elements, 1024), 1, 1], [128, 1, 1], (26, 0), stream_ns(bytes))
}

/// A copy of a strided tensor into a contiguous one.
pub(crate) fn strided_copy(elements: i64, bytes: i64) -> Kernel {
    let copy = "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::\
                {lambda()#3}::operator()() const::{lambda()#12}::operator()() const::\
                {lambda(c10::BFloat16)#1}";
    let outer = format!(
        "at::native::gpu_kernel_impl_nocast<{copy}>(at::TensorIteratorBase&, {copy} const&)::{{lambda(int)#1}}"
    );
    let name = format!("void at::native::elementwise_kernel<128, 4, {outer}>(int, {outer})");
    Kernel::new(&name, [blocks(elements, 512), 1, 1], [128, 1, 1], (32, 0), stream_ns(bytes))
}

/// A reduction over `elements` to `outputs`.
pub(crate) fn reduce(operation: &str, elements: i64, outputs: i64) -> Kernel {
    let op = format!("at::native::ReduceOp<c10::BFloat16, {operation}, unsigned int, c10::BFloat16, 4, 4>");
    let name = format!("void at::native::reduce_kernel<128, 4, {op} >({op})");
    let grid = [blocks(outputs, 128).max(1), (elements / outputs / 512).clamp(1, 64) as u32, 1];
    Kernel::new(&name, grid, [32, 16, 1], (40, 16), stream_ns(elements * 2))
}

/// A normalisation's kernel over rows; `name` is its function.
pub(crate) fn norm(name: &str, rows: i64, columns: i64, passes: i64) -> Kernel {
    Kernel::new(name, [rows as u32, 1, 1], [32, 4, 1], (38, 24), stream_ns(rows * columns * 2 * passes))
}

/// A flash-attention kernel; `work` is its share of the product `4 * batch * heads * sequence^2 * dim`.
pub(crate) fn flash(name: &str, work: i64) -> Kernel {
    /// FLOP that a causal flash kernel does in a nanosecond.
    const FLOP_PER_NS: i64 = 380_000;
    let traits = "Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t, \
                  Flash_kernel_traits<64, 128, 128, 4, cutlass::bfloat16_t> >, false, true, false, \
                  false, true, true, false, false";
    let flops = 2 * BATCH * HIDDEN * SEQUENCE * SEQUENCE * work;
    let name = format!("void pytorch_flash::{name}<{traits}>(pytorch_flash::Flash_fwd_params)");
    let grid = [(SEQUENCE / 128) as u32, 1, (BATCH * HEADS) as u32];
    Kernel::new(&name, grid, [128, 1, 1], (254, 49_152), (flops / FLOP_PER_NS) as u32 + 3_000)
}

/// A row softmax, `Forward` or `Backward`.
pub(crate) fn softmax(direction: &str, rows: i64, columns: i64, passes: i64) -> Kernel {
    let name = format!(
        "void at::native::(anonymous namespace)::cunn_SoftMax{direction}<8, c10::BFloat16, float, \
         c10::BFloat16, at::native::(anonymous namespace)::LogSoftMax{direction}Epilogue>(c10::BFloat16*, \
         c10::BFloat16 const*, int)"
    );
    Kernel::new(&name, [rows as u32, 1, 1], [1024, 1, 1], (32, 128), stream_ns(rows * columns * 2 * passes))
}

/// A small kernel of fixed cost.
pub(crate) fn small(name: &str, blocks: u32, threads: u32, dur_ns: u32) -> Kernel {
    Kernel::new(name, [blocks, 1, 1], [threads, 1, 1], (30, 0), dur_ns)
}

/// One launch of a `_foreach_` operator over `elements` of `depth` tensor lists.
pub(crate) fn multi_tensor(functor: &str, depth: u32, elements: i64) -> Kernel {
    let metadata = format!("at::native::(anonymous namespace)::TensorListMetadata<{depth}>");
    let functor = format!("at::native::(anonymous namespace)::{functor}<c10::BFloat16, {depth}, 1, 0>");
    let name = format!(
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<{metadata}, {functor}, \
             float>({metadata}, {functor}, float)"
    );
    let dur_ns = stream_ns(elements * 2 * i64::from(depth + 1));
    Kernel::new(&name, [blocks(elements, 65_536).min(320), 1, 1], [512, 1, 1], (48, 0), dur_ns)
}

/// Bus bandwidth over NVLink, bytes a nanosecond.
const BUS_BYTES_PER_NS: i64 = 330;

/// A ring all-reduce of bf16 among `ranks`.
pub(crate) fn all_reduce(elements: i64, ranks: u32) -> Kernel {
    let ranks = i64::from(ranks);
    let bytes = elements * 2 * 2 * (ranks - 1) / ranks;
    let name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
    Kernel::new(name, [24, 1, 1], [544, 1, 1], (96, 82_240), (bytes / BUS_BYTES_PER_NS) as u32 + 14_000)
}

/// A ring all-gather of bf16 among `ranks`; `elements` are those that each has at the end.
pub(crate) fn all_gather(elements: i64, ranks: u32) -> Kernel {
    let ranks = i64::from(ranks);
    let bytes = elements * 2 * (ranks - 1) / ranks;
    Kernel {
        name: "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)".to_owned(),
        dur_ns: (bytes / BUS_BYTES_PER_NS) as u32 + 14_000,
        ..all_reduce(0, 1)
    }
}

fn blocks(elements: i64, per_block: i64) -> u32 {
    ((elements + per_block - 1) / per_block) as u32
}
