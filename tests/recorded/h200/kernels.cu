#include <mma.h>
extern "C" __global__ void copy_floats(const float4* in, float4* out, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = in[i];
}
extern "C" __global__ void multiply_adds(float* out, int rounds) {
  float a = threadIdx.x, b = 1.0001f, c = 0.5f, d = 0.25f, e = 0.125f;
  for (int i = 0; i < rounds; ++i) { a = a * b + c; d = d * b + c; e = e * b + a; c = c * b + d; }
  if (a + d + e + c == 42.0f) out[0] = a;
}
extern "C" __global__ void tensor_products(float* out, int rounds) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, half, row_major> a;
  fragment<matrix_b, 16, 16, 16, half, col_major> b;
  fragment<accumulator, 16, 16, 16, float> c, d, e, f;
  fill_fragment(a, __float2half(0.01f)); fill_fragment(b, __float2half(0.01f));
  fill_fragment(c, 0.0f); fill_fragment(d, 0.0f); fill_fragment(e, 0.0f); fill_fragment(f, 0.0f);
  for (int i = 0; i < rounds; ++i) { mma_sync(c, a, b, c); mma_sync(d, a, b, d); mma_sync(e, a, b, e); mma_sync(f, a, b, f); }
  if (c.x[0] + d.x[0] + e.x[0] + f.x[0] == 42.0f) out[0] = c.x[0];
}
