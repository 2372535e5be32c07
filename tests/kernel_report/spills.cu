// A kernel that needs some registers: 32 running sums a thread. With few of them it spills in its loop.
__global__ void sums_kernel(const float4* x, float4* y, long n, float a) {
  float4 sums[8] = {};
  for (long i = threadIdx.x; i < n; i += 8 * blockDim.x) {
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const float4 v = x[i + k * blockDim.x];
      sums[k].x = sums[k].x * a + v.x;
      sums[k].y = sums[k].y * a + v.y;
      sums[k].z = sums[k].z * a + v.z;
      sums[k].w = sums[k].w * a + v.w;
    }
  }
#pragma unroll
  for (int k = 0; k < 8; ++k) y[threadIdx.x * 8 + k] = sums[k];
}
