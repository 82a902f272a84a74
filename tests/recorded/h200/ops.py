"""Runs operators over tensors that are large against the L2 cache, each once, to record what they move.

``ops.py kineto FILE`` records a trace of torch.profiler, a range ``case:NAME`` around each case. ``ops.py
ncu`` prints the name of each case and has the profiler on while it runs; names behind choose some. README.md
has the command lines. Every case has run once before, so that libraries have chosen their kernels.
"""

import json
import sys

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile, record_function

bf16, fp16, fp32, fp64 = torch.bfloat16, torch.float16, torch.float32, torch.float64
CASES = []
# 512 MiB in bfloat16.
N, H = 65536, 4096
ROWS = (N, H)
IMAGES = (64, 256, 112, 112)


def case(name):
    """Makes the function that prepares a case, and gives what runs it, one of the program."""

    def add(make):
        CASES.append((name, make))
        return make

    return add


def plain(name, run, *inputs):
    """A case that runs a function over inputs, which are made when its turn comes."""
    CASES.append((name, lambda: _over(run, [make() for make in inputs])))


def _over(run, made):
    return lambda: run(*made)


def t(*shape, dtype=bf16, grad=False):
    return torch.randn(*shape, device="cuda", dtype=dtype, requires_grad=grad)


def of(*shape, dtype=bf16):
    return lambda: t(*shape, dtype=dtype)


def half_of_rows():
    return torch.randperm(N, device="cuda")[: N // 2]


def half_of_columns():
    return torch.arange(H // 2, device="cuda").expand(N, H // 2).contiguous()


def mask():
    return t(*ROWS) > 0


for label, dtype, n in (
    ("bf16", bf16, 8192),
    ("fp16", fp16, 8192),
    ("fp32", fp32, 4096),
    ("fp64", fp64, 4096),
):
    plain(f"mm_{label}", torch.mm, of(n, n, dtype=dtype), of(n, n, dtype=dtype))


def _mm_tf32(a, b):
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.mm(a, b)
    torch.backends.cuda.matmul.allow_tf32 = False


plain("mm_tf32", _mm_tf32, of(4096, 4096, dtype=fp32), of(4096, 4096, dtype=fp32))
plain("linear_bias", functional.linear, of(16384, 4096), of(4096, 4096), of(4096))


@case("scaled_mm_fp8")
def _scaled_mm():
    a, b = t(8192, 8192).to(torch.float8_e4m3fn), t(8192, 8192).to(torch.float8_e4m3fn).t()
    scale = torch.ones((), device="cuda")
    return lambda: torch._scaled_mm(a, b, scale_a=scale, scale_b=scale, out_dtype=bf16)


plain("bmm", torch.bmm, of(256, 1024, 1024), of(256, 1024, 1024))
plain("mv", torch.mv, of(32768, 16384), of(16384))


@case("int_mm")
def _int_mm():
    a = torch.randint(-9, 9, (8192, 8192), device="cuda", dtype=torch.int8)
    b = a.t().contiguous().t()
    return lambda: torch._int_mm(a, b)


def convolution(name, function, x, w, **options):
    @case(name)
    def _():
        a, b = t(*x), t(*w)
        if len(x) == 4:
            a = a.to(memory_format=torch.channels_last)
        return lambda: function(a, b, **options)


convolution("conv2d_3x3", functional.conv2d, IMAGES, (256, 256, 3, 3), padding=1)
convolution("conv2d_1x1", functional.conv2d, (64, 512, 56, 56), (512, 512, 1, 1))
convolution("conv2d_grouped", functional.conv2d, (32, 256, 112, 112), (256, 8, 3, 3), padding=1, groups=32)
convolution("conv2d_depthwise", functional.conv2d, IMAGES, (256, 1, 3, 3), padding=1, groups=256)
convolution("conv2d_strided", functional.conv2d, (64, 64, 224, 224), (128, 64, 7, 7), padding=3, stride=2)
convolution("conv1d", functional.conv1d, (64, 512, 8192), (512, 512, 3), padding=1)
convolution("conv3d", functional.conv3d, (8, 64, 32, 112, 112), (64, 64, 3, 3, 3), padding=1)
convolution(
    "conv_transpose2d", functional.conv_transpose2d, (32, 256, 64, 64), (256, 128, 4, 4), stride=2, padding=1
)


@case("conv2d_training")
def _conv2d_training():
    a, w, g = t(64, 256, 56, 56, grad=True), t(256, 256, 3, 3, grad=True), t(64, 256, 56, 56)
    return lambda: functional.conv2d(a, w, padding=1).backward(g)


def attention(name, q, kv, backward=False, backend="FLASH_ATTENTION", **options):
    @case(name)
    def _():
        query, key, value = t(*q, grad=backward), t(*kv, grad=backward), t(*kv, grad=backward)
        g = t(*q)

        def run():
            with sdpa_kernel(getattr(SDPBackend, backend)):
                y = functional.scaled_dot_product_attention(query, key, value, **options)
                if backward:
                    y.backward(g)

        return run


LONG, SHORT = (8, 32, 4096, 128), (4, 16, 4096, 128)
attention("sdpa_flash", LONG, LONG)
attention("sdpa_flash_causal", LONG, LONG, is_causal=True)
attention("sdpa_flash_gqa", LONG, (8, 8, 4096, 128), enable_gqa=True)
attention("sdpa_flash_training", SHORT, SHORT, backward=True, is_causal=True)
attention("sdpa_efficient", (4, 16, 4096, 64), (4, 16, 4096, 64), True, "EFFICIENT_ATTENTION")
attention("sdpa_cudnn", SHORT, SHORT, True, "CUDNN_ATTENTION")
attention("sdpa_math", (2, 16, 2048, 64), (2, 16, 2048, 64), backend="MATH")


def training(name, function, *shapes):
    """A case of an operator and its gradients, which are added to those of the first run."""

    @case(name)
    def _():
        inputs = [t(*shape, grad=True) for shape in shapes]
        g = torch.ones_like(function(*inputs))
        return lambda: function(*inputs).backward(g)


training("layer_norm", lambda x, w, b: functional.layer_norm(x, (H,), w, b), ROWS, (H,), (H,))
training("rms_norm", lambda x, w: functional.rms_norm(x, (H,), w), ROWS, (H,))
training("group_norm", lambda x, w, b: functional.group_norm(x, 32, w, b), IMAGES, (256,), (256,))
training(
    "batch_norm", lambda x, w, b: functional.batch_norm(x, None, None, w, b, True), IMAGES, (256,), (256,)
)
training("softmax", lambda x: functional.softmax(x, -1), ROWS)
training("log_softmax", lambda x: functional.log_softmax(x, -1), ROWS)
training("gelu", functional.gelu, ROWS)
training("silu", functional.silu, ROWS)
training("relu", functional.relu, ROWS)
training("tanh", torch.tanh, ROWS)
training("glu", lambda x: functional.glu(x, -1), ROWS)
training("dropout", lambda x: functional.dropout(x, 0.1), ROWS)
training("mul", lambda x, y: x * y, ROWS, ROWS)
training("add_bias", lambda x, y: x + y, ROWS, (H,))
training("sum_last", lambda x: x.sum(-1), ROWS)
training("mean_first", lambda x: x.mean(0), ROWS)
training("amax", lambda x: x.amax(-1), ROWS)
training("max_pool2d", lambda x: functional.max_pool2d(x, 3, 2, 1), IMAGES)
training("avg_pool2d", lambda x: functional.avg_pool2d(x, 2), IMAGES)
training("adaptive_avg_pool2d", lambda x: functional.adaptive_avg_pool2d(x, 1), IMAGES)
training(
    "upsample_bilinear",
    lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
    (16, 256, 56, 56),
)
training("upsample_nearest", lambda x: functional.interpolate(x, scale_factor=2), (16, 256, 56, 56))
training("pad", lambda x: functional.pad(x, (8, 8)), ROWS)


@case("cross_entropy")
def _cross_entropy():
    x, y = t(16384, 32000, grad=True), torch.randint(0, 32000, (16384,), device="cuda")
    return lambda: functional.cross_entropy(x, y).backward()


@case("embedding")
def _embedding():
    w, i = t(128000, 4096, grad=True), torch.randint(0, 128000, (16384,), device="cuda")
    g = t(16384, 4096)
    return lambda: functional.embedding(i, w).backward(g)


ROWS32 = of(*ROWS, dtype=fp32)
HALF_ROWS = of(N // 2, H)
plain("copy", lambda x, y: y.copy_(x), of(*ROWS), of(*ROWS))
plain("copy_transposed", lambda x: x.t().contiguous(), of(16384, 16384))
plain("permute_4d", lambda x: x.permute(0, 2, 1, 3).contiguous(), of(64, 2048, 32, 64))
plain("channels_last", lambda x: x.contiguous(memory_format=torch.channels_last), of(*IMAGES))
plain("to_float", lambda x: x.float(), of(*ROWS))
plain("to_half_from_float", lambda x: x.to(fp16), ROWS32)
plain("add_broadcast_rows", torch.add, of(*ROWS), of(N, 1))
plain("add_strided", lambda x, y: x[:, ::2] + y, of(*ROWS), of(N, H // 2))
plain("add_expanded", lambda x, y: x + y.expand(N, H), of(*ROWS), of(1, H))
plain("add_inplace", lambda x, y: x.add_(y, alpha=2), of(*ROWS), of(*ROWS))
plain("addcmul", torch.addcmul, of(*ROWS), of(*ROWS), of(*ROWS))
plain("where", lambda x, y, c: torch.where(c, x, y), of(*ROWS), of(*ROWS), mask)
plain("masked_fill", lambda x, c: x.masked_fill_(c, 0.0), of(*ROWS), mask)
plain("clamp", lambda x: x.clamp(-1, 1), of(*ROWS))
plain("compare", torch.gt, of(*ROWS), of(*ROWS))
plain("fill", lambda x: x.fill_(1.0), of(*ROWS))
plain("zero", lambda x: x.zero_(), of(*ROWS))
plain("zeros", lambda: torch.zeros(N, H, device="cuda", dtype=bf16))
plain("randn", lambda: t(*ROWS))
plain("arange", lambda: torch.arange(1 << 27, device="cuda"))
plain("tril", torch.tril, of(16384, 16384))
plain("cat", lambda x, y: torch.cat([x, y], 1), of(*ROWS), of(N, H // 2))
plain("stack", lambda x, y: torch.stack([x, y]), of(*ROWS), of(*ROWS))
plain("repeat", lambda x: x.repeat(4, 1), of(16384, H))
plain("roll", lambda x: x.roll(5, 0), of(*ROWS))
plain("flip", lambda x: x.flip(1), of(*ROWS))
plain("index_select", lambda x, i: x.index_select(0, i), of(*ROWS), half_of_rows)
plain("index", lambda x, i: x[i], of(*ROWS), half_of_rows)
plain("index_put", lambda x, i, v: x.index_put_((i,), v), of(*ROWS), half_of_rows, HALF_ROWS)
plain("index_add", lambda x, i, v: x.index_add_(0, i, v), of(*ROWS), half_of_rows, HALF_ROWS)
plain("index_copy", lambda x, i, v: x.index_copy_(0, i, v), of(*ROWS), half_of_rows, HALF_ROWS)
plain("gather", lambda x, i: x.gather(1, i), ROWS32, lambda: torch.randint(0, H, (N, H // 2), device="cuda"))
plain("scatter", lambda x, i, v: x.scatter_(1, i, v), *(ROWS32, half_of_columns, of(N, H // 2, dtype=fp32)))
plain(
    "scatter_add",
    lambda x, i, v: x.scatter_add_(1, i, v),
    *(ROWS32, half_of_columns, of(N, H // 2, dtype=fp32)),
)
plain("cumsum", lambda x: x.cumsum(-1), ROWS32)
plain("argmax", lambda x: x.argmax(-1), of(*ROWS))
plain("max_dim", lambda x: x.max(-1), of(*ROWS))
plain("topk", lambda x: x.topk(8, -1), of(*ROWS))
plain("sort", lambda x: x.sort(-1), of(8192, H))
plain("norm", torch.linalg.vector_norm, ROWS32)
plain("sum_all", torch.sum, ROWS32)
plain("var_mean", lambda x: torch.var_mean(x, -1), ROWS32)
plain("all", torch.any, lambda: t(*ROWS) > 9)
plain("nonzero", torch.nonzero, lambda: t(8192, H) > 1)


def four(dtype):
    return lambda: [t(16384, H, dtype=dtype) for _ in range(4)]


plain("foreach_norm", torch._foreach_norm, four(fp32))
plain("foreach_mul", lambda xs: torch._foreach_mul_(xs, 0.5), four(fp32))
plain("foreach_add", lambda xs, ys: torch._foreach_add_(xs, ys, alpha=2), four(bf16), four(bf16))
plain("einsum", lambda a, b: torch.einsum("bij,bjk->bik", a, b), of(64, 1024, 1024), of(64, 1024, 1024))
plain("fft", torch.fft.rfft, of(16384, 8192, dtype=fp32))


def optimizer(name, kind, **options):
    @case(name)
    def _():
        parameters = [t(8192, H, dtype=fp32, grad=True) for _ in range(4)]
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        return kind(parameters, lr=1e-3, **options).step


optimizer("adam_fused", torch.optim.Adam, fused=True)
optimizer("adamw_fused", torch.optim.AdamW, fused=True)
optimizer("adam_foreach", torch.optim.Adam, foreach=True)
optimizer("sgd_fused", torch.optim.SGD, fused=True, momentum=0.9)
optimizer("sgd_foreach", torch.optim.SGD, foreach=True, momentum=0.9)


@case("lstm")
def _lstm():
    net, x = torch.nn.LSTM(1024, 1024, 2).to("cuda", bf16), t(256, 64, 1024)
    return lambda: net(x)


@case("multi_head_attention")
def _multi_head_attention():
    net = torch.nn.MultiheadAttention(1024, 16, batch_first=True).to("cuda", bf16)
    x = t(16, 2048, 1024)
    return lambda: net(x, x, x)


def in_a_range(name, run):
    with record_function(f"case:{name}"):
        run()
        torch.cuda.synchronize()


def counted(name, run):
    print(f"CASE {name}", flush=True)
    torch.cuda.cudart().cudaProfilerStart()
    run()
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


def run_all(run_one, chosen):
    failed = {}
    for name, make in CASES:
        if chosen and name not in chosen:
            continue
        try:
            run = make()
            run()
            torch.cuda.synchronize()
            run_one(name, run)
            del run
        except RuntimeError as error:
            # What one version of torch or one GPU lacks must not cost the others.
            failed[name] = str(error)[:100]
        torch.cuda.empty_cache()
    print("failed", json.dumps(failed))


if __name__ == "__main__":
    torch.manual_seed(0)
    if sys.argv[1] == "kineto":
        with profile(
            activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True
        ) as recorded:
            run_all(in_a_range, sys.argv[3:])
        recorded.export_chrome_trace(sys.argv[2])
    else:
        run_all(counted, sys.argv[2:])
