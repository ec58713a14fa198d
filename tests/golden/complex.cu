// kernels: lambda_kernel
// complex64
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

extern "C" __global__ void __launch_bounds__(256)
lambda_kernel(const complex_t<float>* __restrict__ a_in, const complex_t<float>* __restrict__ b_in, complex_t<float>* __restrict__ out_0, complex_t<float>* __restrict__ out_1, complex_t<float>* __restrict__ out_2, const long long n)
{
    const long long element = blockIdx.x * 256LL + threadIdx.x;
    if (element < n) {
        const complex_t<float> a = a_in[element];
        const complex_t<float> b = b_in[element];
        out_0[element] = a + b;
        out_1[element] = a - b;
        out_2[element] = a * b;
    }
}
