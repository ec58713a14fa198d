// kernels: lambda_kernel
// a dict as a result
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
lambda(const float a, const float b, float& out_b_value, bool& out_c_value)
{
    out_b_value = a + b;
    out_c_value = a > opaque<float>(0.0f);
}

extern "C" __global__ void __launch_bounds__(256, 6)
lambda_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 4);
    const float* __restrict__ const a_in = work.of<const float>(0, 1);
    const float* __restrict__ const b_in = work.of<const float>(1, 1);
    float* __restrict__ const out_b = work.of<float>(2, 1);
    bool* __restrict__ const out_c = work.of<bool>(3, 1);
#ifdef VISPARK_ON_HOST
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        lambda(a_in[row], b_in[row], out_b[row], out_c[row]);
#else
    for (long long row = threadIdx.x * 4; row < work.count; row += 1024) {
        if (row + 4 <= work.count) {
            const rows::Pack<float, 4> a = *(const rows::Pack<float, 4>*)(a_in + row);
            const rows::Pack<float, 4> b = *(const rows::Pack<float, 4>*)(b_in + row);
            rows::Pack<float, 4> out_b_value;
            rows::Pack<bool, 4> out_c_value;
            VISPARK_UNROLL
            for (int i = 0; i < 4; ++i) lambda(a.item[i], b.item[i], out_b_value.item[i], out_c_value.item[i]);
            *(rows::Pack<float, 4>*)(out_b + row) = out_b_value;
            *(rows::Pack<bool, 4>*)(out_c + row) = out_c_value;
        } else {
            for (long long last = row; last < work.count; ++last) {
                lambda(a_in[last], b_in[last], out_b[last], out_c[last]);
            }
        }
    }
#endif
}
