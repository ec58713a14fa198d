// kernels: sums_kernel
// sums of more numbers than a lane adds one after the other
#include "vispark/rows.h"

// The sum of a row's parts with what rounding took from it: D. E. Knuth, TAOCP 2, 4.2.2, theorem B. Where the sum is
// infinite or NaN what is lost has no meaning.
template <class T> struct sum_of_parts { T sum, lost; };
template <class T> __device__ __forceinline__ sum_of_parts<T> with_part(sum_of_parts<T> a, T part)
{
    const T sum = a.sum + part, added = sum - a.sum;
    return {sum, a.lost + ((a.sum - (sum - added)) + (part - added))};
}
template <class T> __device__ __forceinline__ T whole_sum(sum_of_parts<T> a)
{
    return a.sum - a.sum == 0 ? a.sum + a.lost : a.sum;
}
// Complex numbers, laid out as NumPy's.
template <class T> struct complex_t {
    T re, im;
    complex_t() = default;
    __device__ __forceinline__ complex_t(T re, T im = 0) : re(re), im(im) {}
    template <class U> __device__ __forceinline__ explicit complex_t(complex_t<U> z) : re((T)z.re), im((T)z.im) {}
};
template <class T> __device__ __forceinline__ complex_t<T> operator+(complex_t<T> a, complex_t<T> b)
{
    return complex_t<T>(a.re + b.re, a.im + b.im);
}
template <class T> __device__ __forceinline__ complex_t<T> operator-(complex_t<T> a, complex_t<T> b)
{
    return complex_t<T>(a.re - b.re, a.im - b.im);
}
template <class T> __device__ __forceinline__ complex_t<T> operator-(complex_t<T> a)
{
    return complex_t<T>(-a.re, -a.im);
}
template <class T> __device__ __forceinline__ complex_t<T> operator*(complex_t<T> a, complex_t<T> b)
{
    return complex_t<T>(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
}
template <class T> __device__ __forceinline__ complex_t<T> operator/(complex_t<T> a, complex_t<T> b)
{
    const T re = b.re < 0 ? -b.re : b.re, im = b.im < 0 ? -b.im : b.im;
    if (re >= im) {
        if (re == 0 && im == 0) return complex_t<T>(a.re / re, a.im / re);
        const T ratio = b.im / b.re, scale = T(1) / (b.re + b.im * ratio);
        return complex_t<T>((a.re + a.im * ratio) * scale, (a.im - a.re * ratio) * scale);
    }
    const T ratio = b.re / b.im, scale = T(1) / (b.im + b.re * ratio);
    return complex_t<T>((a.re * ratio + a.im) * scale, (a.im * ratio - a.re) * scale);
}
template <class T> __device__ __forceinline__ bool operator==(complex_t<T> a, complex_t<T> b)
{
    return a.re == b.re && a.im == b.im;
}
template <class T> __device__ __forceinline__ bool operator!=(complex_t<T> a, complex_t<T> b) { return !(a == b); }
// The order of NumPy's scalars: by the real part, then by the imaginary one.
template <class T> __device__ __forceinline__ bool operator<(complex_t<T> a, complex_t<T> b)
{
    return a.re == b.re ? a.im < b.im : a.re < b.re;
}
template <class T> __device__ __forceinline__ bool operator<=(complex_t<T> a, complex_t<T> b)
{
    return a.re == b.re ? a.im <= b.im : a.re < b.re;
}
template <class T> __device__ __forceinline__ bool operator>(complex_t<T> a, complex_t<T> b) { return b < a; }
template <class T> __device__ __forceinline__ bool operator>=(complex_t<T> a, complex_t<T> b) { return b <= a; }
template <class T> __device__ __forceinline__ complex_t<T> complex_whole_sum(sum_of_parts<complex_t<T>> a)
{
    return complex_t<T>(whole_sum(sum_of_parts<T>{a.sum.re, a.lost.re}),
                        whole_sum(sum_of_parts<T>{a.sum.im, a.lost.im}));
}

#if VISPARK_ALONE
static __device__ __forceinline__ void
sums(const float* __restrict__ p, const complex_t<float>* __restrict__ z, float& out_0_value, float& out_1_value, complex_t<float>& out_2_value)
{
    sum_of_parts<float> sum_parts = {0.0f, 0.0f};
    for (int block = 0; block < 5000; block += VISPARK_BLOCK) {
        const int end = block + VISPARK_BLOCK < 5000 ? block + VISPARK_BLOCK : 5000;
        float part = 0.0f;
        VISPARK_SUM(part)
        for (int j = block; j < end; ++j) {
            part += p[j];
        }
        sum_parts = with_part(sum_parts, part);
    }
    float sum = whole_sum(sum_parts);
    sum_of_parts<float> dot_parts = {0.0f, 0.0f};
    for (int block = 0; block < 5000; block += VISPARK_BLOCK) {
        const int end = block + VISPARK_BLOCK < 5000 ? block + VISPARK_BLOCK : 5000;
        float part = 0.0f;
        VISPARK_SUM(part)
        for (int j = block; j < end; ++j) {
            part += (p[j] * p[j]);
        }
        dot_parts = with_part(dot_parts, part);
    }
    float dot = whole_sum(dot_parts);
    sum_of_parts<complex_t<float>> sum_parts_1 = {complex_t<float>(0.0f, 0.0f), complex_t<float>(0.0f, 0.0f)};
    for (int j = 0; j < 130; ++j) {
        for (int block = 0; block < 40; block += 32) {
            const int end = block + 32 < 40 ? block + 32 : 40;
            complex_t<float> part = complex_t<float>(0.0f, 0.0f);
            for (int j_1 = block; j_1 < end; ++j_1) {
                part = part + z[j * 40 + j_1];
            }
            sum_parts_1 = with_part(sum_parts_1, part);
        }
    }
    complex_t<float> sum_1 = complex_whole_sum(sum_parts_1);
    out_0_value = sum;
    out_1_value = dot;
    out_2_value = sum_1;
}
#else
static __device__ __forceinline__ void
sums(const float* __restrict__ p, const complex_t<float>* __restrict__ z, float& out_0_value, float& out_1_value, complex_t<float>& out_2_value, const int lane, unsigned char* const scratch)
{
    sum_of_parts<float> sum_parts = {0.0f, 0.0f};
    for (int block = 0; block < 157; block += 32) {
        const int end = block + 32 < 157 ? block + 32 : 157;
        float part = 0.0f;
        for (int slot = block; slot < end; ++slot) {
            const int j = slot * 32 + lane;
            if (j < 5000) {
                part += p[j];
            }
        }
        sum_parts = with_part(sum_parts, part);
    }
    float sum = whole_sum(sum_parts);
    VISPARK_UNROLL
    for (int offset = 16; offset > 0; offset /= 2) {
        const float other = rows::exchange(rows::row_mask<32>(), sum, offset);
        sum += other;
    }
    sum += 0.0f;
    sum_of_parts<float> dot_parts = {0.0f, 0.0f};
    for (int block = 0; block < 157; block += 32) {
        const int end = block + 32 < 157 ? block + 32 : 157;
        float part = 0.0f;
        for (int slot = block; slot < end; ++slot) {
            const int j = slot * 32 + lane;
            if (j < 5000) {
                part += (p[j] * p[j]);
            }
        }
        dot_parts = with_part(dot_parts, part);
    }
    float dot = whole_sum(dot_parts);
    VISPARK_UNROLL
    for (int offset = 16; offset > 0; offset /= 2) {
        const float other_1 = rows::exchange(rows::row_mask<32>(), dot, offset);
        dot += other_1;
    }
    dot += 0.0f;
    sum_of_parts<complex_t<float>> sum_parts_1 = {complex_t<float>(0.0f, 0.0f), complex_t<float>(0.0f, 0.0f)};
    for (int block = 0; block < 163; block += 32) {
        const int end = block + 32 < 163 ? block + 32 : 163;
        complex_t<float> part = complex_t<float>(0.0f, 0.0f);
        for (int slot = block; slot < end; ++slot) {
            const int j = slot * 32 + lane;
            if (j < 5200) {
                const int j_1 = j / 40;
                const int j_2 = j % 40;
                part = part + z[j_1 * 40 + j_2];
            }
        }
        sum_parts_1 = with_part(sum_parts_1, part);
    }
    complex_t<float> sum_1 = complex_whole_sum(sum_parts_1);
    VISPARK_UNROLL
    for (int offset = 16; offset > 0; offset /= 2) {
        const complex_t<float> other_2 = rows::exchange(rows::row_mask<32>(), sum_1, offset);
        sum_1 = sum_1 + other_2;
    }
    sum_1 = sum_1 + complex_t<float>(0.0f, 0.0f);
    out_0_value = sum;
    out_1_value = dot;
    out_2_value = sum_1;
}
#endif

extern "C" __global__ void __launch_bounds__(128, 9)
sums_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 5);
    const float* __restrict__ const p_in = work.of<const float>(0, 5000);
    const complex_t<float>* __restrict__ const z_in = work.of<const complex_t<float>>(1, 5200);
    float* __restrict__ const out_0 = work.of<float>(2, 1);
    float* __restrict__ const out_1 = work.of<float>(3, 1);
    complex_t<float>* __restrict__ const out_2 = work.of<complex_t<float>>(4, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        sums(p_in + row * 5000, z_in + row * 5200, out_0[row], out_1[row], out_2[row]);
#else
    const int lane = threadIdx.x % 32, group = threadIdx.x / 32;
    unsigned char* const scratch = nullptr;
    for (long long row = group; row < work.count; row += 4) {
        float out_0_value;
        float out_1_value;
        complex_t<float> out_2_value;
        sums(p_in + row * 5000, z_in + row * 5200, out_0_value, out_1_value, out_2_value, lane, scratch);
        if (lane == 0) out_0[row] = out_0_value;
        if (lane == 0) out_1[row] = out_1_value;
        if (lane == 0) out_2[row] = out_2_value;
    }
#endif
}
