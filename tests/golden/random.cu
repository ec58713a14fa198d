// kernels: words_kernel
// random: the words of a counter
#include "vispark/rows.h"

template <class T> __device__ __forceinline__ T shift_right(T a, T b)
{
    const unsigned long long by = (unsigned long long)b;
    return by < 8 * sizeof(T) ? (T)(a >> by) : a < 0 ? T(-1) : T(0);
}

static __device__ __forceinline__ void
words(const long long i_1, unsigned long long& out_0_value, unsigned long long& out_1_value, unsigned long long& out_2_value, unsigned long long& out_3_value, const long long call)
{
    const unsigned long long low32 = 4294967295ULL;
    const unsigned long long half = 32ULL;
    const unsigned long long key = 7ULL;
    const unsigned long long low = (unsigned long long)i_1;
    const unsigned long long high = (unsigned long long)call;
    const unsigned long long k = key & low32;
    const unsigned long long m = shift_right<unsigned long long>(key, half);
    const unsigned long long a = low & low32;
    const unsigned long long b = shift_right<unsigned long long>(low, half);
    const unsigned long long c = high & low32;
    const unsigned long long d = shift_right<unsigned long long>(high, half);
    unsigned long long a_1 = a;
    unsigned long long b_1 = b;
    unsigned long long c_1 = c;
    unsigned long long d_1 = d;
    unsigned long long k_1 = k;
    unsigned long long m_1 = m;
    for (int i = 0; i < 10; ++i) {
        const unsigned long long first_1 = 3528531795ULL * a_1;
        const unsigned long long second = 3449720151ULL * c_1;
        const unsigned long long a_2 = (shift_right<unsigned long long>(second, half) ^ b_1) ^ k_1;
        const unsigned long long b_2 = second & low32;
        const unsigned long long c_2 = (shift_right<unsigned long long>(first_1, half) ^ d_1) ^ m_1;
        const unsigned long long d_2 = first_1 & low32;
        a_1 = a_2;
        b_1 = b_2;
        c_1 = c_2;
        d_1 = d_2;
        const unsigned long long k_2 = (k_1 + 2654435769ULL) & low32;
        const unsigned long long m_2 = (m_1 + 3144134277ULL) & low32;
        k_1 = k_2;
        m_1 = m_2;
    }
    out_0_value = a_1;
    out_1_value = b_1;
    out_2_value = c_1;
    out_3_value = d_1;
}

extern "C" __global__ void __launch_bounds__(256, 6)
words_kernel(const long long* __restrict__ works, void* const* __restrict__ ports, const long long call)
{
    const rows::Work work(works, ports, 5);
    const long long* __restrict__ const i_in = work.of<const long long>(0, 1);
    unsigned long long* __restrict__ const out_0 = work.of<unsigned long long>(1, 1);
    unsigned long long* __restrict__ const out_1 = work.of<unsigned long long>(2, 1);
    unsigned long long* __restrict__ const out_2 = work.of<unsigned long long>(3, 1);
    unsigned long long* __restrict__ const out_3 = work.of<unsigned long long>(4, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        words(i_in[row], out_0[row], out_1[row], out_2[row], out_3[row], call);
#else
    for (long long row = threadIdx.x * 2; row < work.count; row += 512) {
        if (row + 2 <= work.count) {
            const rows::Pack<long long, 2> i_1 = *(const rows::Pack<long long, 2>*)(i_in + row);
            rows::Pack<unsigned long long, 2> out_0_value;
            rows::Pack<unsigned long long, 2> out_1_value;
            rows::Pack<unsigned long long, 2> out_2_value;
            rows::Pack<unsigned long long, 2> out_3_value;
            VISPARK_UNROLL
            for (int i = 0; i < 2; ++i) words(i_1.item[i], out_0_value.item[i], out_1_value.item[i], out_2_value.item[i], out_3_value.item[i], call);
            *(rows::Pack<unsigned long long, 2>*)(out_0 + row) = out_0_value;
            *(rows::Pack<unsigned long long, 2>*)(out_1 + row) = out_1_value;
            *(rows::Pack<unsigned long long, 2>*)(out_2 + row) = out_2_value;
            *(rows::Pack<unsigned long long, 2>*)(out_3 + row) = out_3_value;
        } else {
            for (long long last = row; last < work.count; ++last) {
                words(i_in[last], out_0[last], out_1[last], out_2[last], out_3[last], call);
            }
        }
    }
#endif
}
