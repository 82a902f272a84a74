// Copies, multiply-adds, products and a graph of two streams, in NVTX ranges, through the driver's plain calls.
#include <cuda.h>
#include <nvtx3/nvToolsExt.h>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>
static void check(CUresult r, const char* what) { if (r) { const char* s; cuGetErrorString(r, &s); printf("%s: %s\n", what, s); exit(1); } }
#define CHECK(x) check(x, #x)
int main(int, char** arguments) {
  CUdevice device; CUcontext context; CUmodule module; CUstream one, two; CUevent fork, join;
  CHECK(cuInit(0)); CHECK(cuDeviceGet(&device, 0)); CHECK(cuDevicePrimaryCtxRetain(&context, device)); CHECK(cuCtxSetCurrent(context));
  CHECK(cuModuleLoad(&module, arguments[1]));
  CUfunction copy, adds, products;
  CHECK(cuModuleGetFunction(&copy, module, "copy_floats")); CHECK(cuModuleGetFunction(&adds, module, "multiply_adds")); CHECK(cuModuleGetFunction(&products, module, "tensor_products"));
  CHECK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING)); CHECK(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
  CHECK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING)); CHECK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
  size_t bytes = size_t(1) << 28; CUdeviceptr a, b; CHECK(cuMemAlloc(&a, bytes)); CHECK(cuMemAlloc(&b, bytes));
  void* host; CHECK(cuMemAllocHost(&host, 1 << 26));
  int count = bytes / 16, small = 1 << 16, rounds = 200000, few = 2000;
  void* copy_args[] = {&a, &b, &count}; void* small_args[] = {&a, &b, &small};
  void* adds_args[] = {&a, &rounds}; void* products_args[] = {&a, &rounds}; void* few_args[] = {&b, &few};
  auto launch = [&](CUfunction f, int blocks, CUstream s, void** args) { CHECK(cuLaunchKernel(f, blocks, 1, 1, 256, 1, 1, 0, s, args, nullptr)); };
  CUgraph graph; CUgraphExec executable;
  nvtxRangePushA("capture");
  CHECK(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_RELAXED));
  nvtxRangePushA("layer 0"); launch(copy, 64, one, small_args); nvtxRangePop();
  CHECK(cuEventRecord(fork, one)); CHECK(cuStreamWaitEvent(two, fork, 0));
  nvtxRangePushA("layer 1"); launch(adds, 128, one, few_args); launch(copy, 64, one, small_args); nvtxRangePop();
  nvtxRangePushA("layer 2"); launch(products, 96, two, few_args); nvtxRangePop();
  CHECK(cuEventRecord(join, two)); CHECK(cuStreamWaitEvent(one, join, 0));
  nvtxRangePushA("layer 3"); CHECK(cuMemsetD32Async(b, 0, 1 << 20, one)); CHECK(cuMemcpyDtoDAsync(b, a, 1 << 24, one)); nvtxRangePop();
  CHECK(cuStreamEndCapture(one, &graph));
  nvtxRangePop();
  CHECK(cuGraphInstantiateWithFlags(&executable, graph, 0));
  for (int step = 0; step < 3; ++step) {
    char name[32]; snprintf(name, sizeof name, "step %d", step);
    nvtxRangePushA(name);
    nvtxRangePushA("copies"); for (int i = 0; i < 60; ++i) launch(copy, 132 * 8, one, copy_args); CHECK(cuStreamSynchronize(one)); nvtxRangePop();
    nvtxRangePushA("multiply-adds"); launch(adds, 132 * 8, one, adds_args); CHECK(cuStreamSynchronize(one)); nvtxRangePop();
    nvtxRangePushA("products"); launch(products, 132 * 8, one, products_args); CHECK(cuStreamSynchronize(one)); nvtxRangePop();
    nvtxRangePushA("upload"); CHECK(cuMemcpyHtoDAsync(a, host, 1 << 26, one)); CHECK(cuMemcpyDtoHAsync(host, a, 1 << 26, one)); CHECK(cuStreamSynchronize(one)); nvtxRangePop();
    nvtxRangePushA("replays"); for (int i = 0; i < 4; ++i) CHECK(cuGraphLaunch(executable, one)); CHECK(cuStreamSynchronize(one)); nvtxRangePop();
    nvtxRangePushA("idle"); usleep(20000); nvtxRangePop();
    nvtxRangePop();
  }
  printf("program done\n");
}
