// kernels: lambda_kernel
// np.where
#include "vispark/rows.h"

// A value whose origin the compiler for GPUs does not see. What it knows of integers of 16 bits it turns into negations
// in 16 bits (a + b == 0 into a == -b), and of -32768 those of CUDA 13.0 give 32768 where a comparison, a shift, max()
// or a conversion follows: so nothing may be known that becomes one. The choice of -a where a < 0 it turns into PTX's
// abs, in 32 and 64 bits, whose result the assembler takes for never negative, though that of the least integer is: so
// a choice may not be seen to be of a number and its negation. Of 16 bits the assembler compares a max() by the wrong
// half of a register, so there may be none. The choice of b where b < 0 and else of 0 becomes min(b, 0), which is -0
// where b is, so that a zero may not be seen. In a loop that ends where a + 1 < b, a + 2 < b, ... it forgets that
// unsigned sums wrap (NVRTC 12.9 to 13.5: the first of them is returned, whatever b is). It costs no instruction.
template <class T> __device__ __forceinline__ T opaque(T a)
{
#ifndef __CUDA_ON_HOST__
    asm("" : "+r"(a));
#endif
    return a;
}
template <> __device__ __forceinline__ float opaque<float>(float a)
{
#ifndef __CUDA_ON_HOST__
    asm("" : "+f"(a));
#endif
    return a;
}

static __device__ __forceinline__ void
lambda(const float x, float& out_value)
{
    out_value = (x > opaque<float>(0.0f)) ? x : 0.1f;
}

extern "C" __global__ void __launch_bounds__(256, 6)
lambda_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 2);
    const float* __restrict__ const x_in = work.of<const float>(0, 1);
    float* __restrict__ const out = work.of<float>(1, 1);
#ifdef VISPARK_ON_HOST
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        lambda(x_in[row], out[row]);
#else
    for (long long row = threadIdx.x * 4; row < work.count; row += 1024) {
        if (row + 4 <= work.count) {
            const rows::Pack<float, 4> x = *(const rows::Pack<float, 4>*)(x_in + row);
            rows::Pack<float, 4> out_value;
            VISPARK_UNROLL
            for (int i = 0; i < 4; ++i) lambda(x.item[i], out_value.item[i]);
            *(rows::Pack<float, 4>*)(out + row) = out_value;
        } else {
            for (long long last = row; last < work.count; ++last) {
                lambda(x_in[last], out[last]);
            }
        }
    }
#endif
}
