// kernels: lambda_kernel
// complex64
#include "vispark/rows.h"

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

static __device__ __forceinline__ void
lambda(const complex_t<float> a, const complex_t<float> b, complex_t<float>& out_0_value, complex_t<float>& out_1_value, complex_t<float>& out_2_value)
{
    out_0_value = a + b;
    out_1_value = a - b;
    out_2_value = a * b;
}

extern "C" __global__ void __launch_bounds__(256, 6)
lambda_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 5);
    const complex_t<float>* __restrict__ const a_in = work.of<const complex_t<float>>(0, 1);
    const complex_t<float>* __restrict__ const b_in = work.of<const complex_t<float>>(1, 1);
    complex_t<float>* __restrict__ const out_0 = work.of<complex_t<float>>(2, 1);
    complex_t<float>* __restrict__ const out_1 = work.of<complex_t<float>>(3, 1);
    complex_t<float>* __restrict__ const out_2 = work.of<complex_t<float>>(4, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        lambda(a_in[row], b_in[row], out_0[row], out_1[row], out_2[row]);
#else
    for (long long row = threadIdx.x * 2; row < work.count; row += 512) {
        if (row + 2 <= work.count) {
            const rows::Pack<complex_t<float>, 2> a = *(const rows::Pack<complex_t<float>, 2>*)(a_in + row);
            const rows::Pack<complex_t<float>, 2> b = *(const rows::Pack<complex_t<float>, 2>*)(b_in + row);
            rows::Pack<complex_t<float>, 2> out_0_value;
            rows::Pack<complex_t<float>, 2> out_1_value;
            rows::Pack<complex_t<float>, 2> out_2_value;
            VISPARK_UNROLL
            for (int i = 0; i < 2; ++i) lambda(a.item[i], b.item[i], out_0_value.item[i], out_1_value.item[i], out_2_value.item[i]);
            *(rows::Pack<complex_t<float>, 2>*)(out_0 + row) = out_0_value;
            *(rows::Pack<complex_t<float>, 2>*)(out_1 + row) = out_1_value;
            *(rows::Pack<complex_t<float>, 2>*)(out_2 + row) = out_2_value;
        } else {
            for (long long last = row; last < work.count; ++last) {
                lambda(a_in[last], b_in[last], out_0[last], out_1[last], out_2[last]);
            }
        }
    }
#endif
}
