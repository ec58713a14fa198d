// kernels: lambda_kernel
// np.arcsin and its like of complex64
#include "vispark/rows.h"

template <class T> __device__ __forceinline__ bool is_inf(T a) { return a == a && a - a != a - a; }
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
// The logarithm of a complex number's size; near one and far from it as exact as elsewhere.
__device__ __forceinline__ double log_of_size(double re, double im)
{
    if (re != re || im != im) return hypot(re, im);
    const double x = fmax(fabs(re), fabs(im)), y = fmin(fabs(re), fabs(im));
    if (x > 0.5 && x < 2 && y < 2) return log1p((x - 1) * (x + 1) + y * y) / 2;
    if (x > 1e300) return log(hypot(re * 0.25, im * 0.25)) + 1.3862943611198906;
    if (x < 1e-290) return log(hypot(re * 0x1p+200, im * 0x1p+200)) - 138.62943611198907;
    return log(hypot(re, im));
}
template <class T> __device__ __forceinline__ complex_t<T> complex_sqrt(complex_t<T> a)
{
    const double beyond = __longlong_as_double(0x7ff0000000000000LL);
    if (is_inf(a.im)) return complex_t<T>((T)beyond, a.im);
    if (is_inf(a.re)) {
        const T rest = a.im == a.im ? T(0) : a.im, far = (T)copysign(beyond, (double)a.im);
        return a.re > 0 ? complex_t<T>(a.re, (T)copysign((double)rest, (double)a.im)) : complex_t<T>(rest, far);
    }
    // Far from one the squares under the root would leave the range.
    const double most = fmax(fabs((double)a.re), fabs((double)a.im));
    const double factor = most > 1e300 ? 0x1p-4 : most < 1e-290 ? 0x1p+200 : 1.0;
    const double back = most > 1e300 ? 4 : most < 1e-290 ? 0x1p-100 : 1.0;
    const double re = a.re * factor, im = a.im * factor, size = hypot(re, im);
    if (size == 0) return complex_t<T>(0, a.im);
    const double root = sqrt((size + fabs(re)) / 2);
    return re >= 0 ? complex_t<T>((T)(root * back), (T)(im / (2 * root) * back))
                   : complex_t<T>((T)(fabs(im) / (2 * root) * back), (T)(copysign(root, im) * back));
}
// Inverse functions by Kahan's formulas ("Branch Cuts for Complex Elementary Functions"), which lose nothing to
// differences of large numbers.
template <class T> __device__ __forceinline__ complex_t<T> complex_asin(complex_t<T> a)
{
    const double x = a.re, y = a.im;
    if (fmax(fabs(x), fabs(y)) > 1e150) {
        return complex_t<T>((T)atan2(x, fabs(y)), (T)copysign(log_of_size(x, y) + 0.6931471805599453, y));
    }
    const complex_t<double> one = complex_sqrt(complex_t<double>(1 - x, -y));
    const complex_t<double> other = complex_sqrt(complex_t<double>(1 + x, y));
    return complex_t<T>((T)atan2(x, one.re * other.re - one.im * other.im),
                        (T)asinh(one.re * other.im - one.im * other.re));
}
template <class T> __device__ __forceinline__ complex_t<T> complex_acos(complex_t<T> a)
{
    const double x = a.re, y = a.im;
    if (fmax(fabs(x), fabs(y)) > 1e150) {
        return complex_t<T>((T)atan2(fabs(y), x), (T)copysign(log_of_size(x, y) + 0.6931471805599453, -y));
    }
    const complex_t<double> one = complex_sqrt(complex_t<double>(1 - x, -y));
    const complex_t<double> other = complex_sqrt(complex_t<double>(1 + x, y));
    return complex_t<T>((T)(2 * atan2(one.re, other.re)), (T)asinh(other.re * one.im - other.im * one.re));
}
template <class T> __device__ __forceinline__ complex_t<T> complex_acosh(complex_t<T> a)
{
    const complex_t<T> turned = complex_acos(a);
    return complex_t<T>((T)fabs((double)turned.im), (T)copysign((double)turned.re, (double)a.im));
}
template <class T> __device__ __forceinline__ complex_t<T> complex_atanh(complex_t<T> a)
{
    const double x = fabs((double)a.re), y = a.im;
    if (is_inf(x) || is_inf(y)) {
        return complex_t<T>((T)copysign(0.0, (double)a.re), (T)(y != y ? y : copysign(1.5707963267948966, y)));
    }
    const double size = x == 1 && fabs(y) < 1e-150 ? (0.6931471805599453 - log(fabs(y))) / 2
                                                   : log1p(x / (((1 - x) * (1 - x) + y * y) / 4)) / 4;
    return complex_t<T>((T)copysign(size, (double)a.re), (T)(atan2(y, ((1 - x) * (1 + x) - y * y) / 2) / 2));
}
template <class T> __device__ __forceinline__ complex_t<T> complex_asinh(complex_t<T> a)
{
    const complex_t<T> turned = complex_asin(complex_t<T>(-a.im, a.re));
    return complex_t<T>(turned.im, -turned.re);
}
template <class T> __device__ __forceinline__ complex_t<T> complex_atan(complex_t<T> a)
{
    const complex_t<T> turned = complex_atanh(complex_t<T>(-a.im, a.re));
    return complex_t<T>(turned.im, -turned.re);
}

static __device__ __forceinline__ void
lambda(const complex_t<float> z, complex_t<float>& out_0_value, complex_t<float>& out_1_value, complex_t<float>& out_2_value, complex_t<float>& out_3_value, complex_t<float>& out_4_value, complex_t<float>& out_5_value)
{
    out_0_value = complex_asin(z);
    out_1_value = complex_acos(z);
    out_2_value = complex_atan(z);
    out_3_value = complex_asinh(z);
    out_4_value = complex_acosh(z);
    out_5_value = complex_atanh(z);
}

extern "C" __global__ void __launch_bounds__(256, 6)
lambda_kernel(const long long* __restrict__ works, void* const* __restrict__ ports)
{
    const rows::Work work(works, ports, 7);
    const complex_t<float>* __restrict__ const z_in = work.of<const complex_t<float>>(0, 1);
    complex_t<float>* __restrict__ const out_0 = work.of<complex_t<float>>(1, 1);
    complex_t<float>* __restrict__ const out_1 = work.of<complex_t<float>>(2, 1);
    complex_t<float>* __restrict__ const out_2 = work.of<complex_t<float>>(3, 1);
    complex_t<float>* __restrict__ const out_3 = work.of<complex_t<float>>(4, 1);
    complex_t<float>* __restrict__ const out_4 = work.of<complex_t<float>>(5, 1);
    complex_t<float>* __restrict__ const out_5 = work.of<complex_t<float>>(6, 1);
#if VISPARK_ALONE
    if (threadIdx.x != 0) return;
    VISPARK_EACH
    for (long long row = 0; row < work.count; ++row)
        lambda(z_in[row], out_0[row], out_1[row], out_2[row], out_3[row], out_4[row], out_5[row]);
#else
    for (long long row = threadIdx.x * 2; row < work.count; row += 512) {
        if (row + 2 <= work.count) {
            const rows::Pack<complex_t<float>, 2> z = *(const rows::Pack<complex_t<float>, 2>*)(z_in + row);
            rows::Pack<complex_t<float>, 2> out_0_value;
            rows::Pack<complex_t<float>, 2> out_1_value;
            rows::Pack<complex_t<float>, 2> out_2_value;
            rows::Pack<complex_t<float>, 2> out_3_value;
            rows::Pack<complex_t<float>, 2> out_4_value;
            rows::Pack<complex_t<float>, 2> out_5_value;
            VISPARK_UNROLL
            for (int i = 0; i < 2; ++i) lambda(z.item[i], out_0_value.item[i], out_1_value.item[i], out_2_value.item[i], out_3_value.item[i], out_4_value.item[i], out_5_value.item[i]);
            *(rows::Pack<complex_t<float>, 2>*)(out_0 + row) = out_0_value;
            *(rows::Pack<complex_t<float>, 2>*)(out_1 + row) = out_1_value;
            *(rows::Pack<complex_t<float>, 2>*)(out_2 + row) = out_2_value;
            *(rows::Pack<complex_t<float>, 2>*)(out_3 + row) = out_3_value;
            *(rows::Pack<complex_t<float>, 2>*)(out_4 + row) = out_4_value;
            *(rows::Pack<complex_t<float>, 2>*)(out_5 + row) = out_5_value;
        } else {
            for (long long last = row; last < work.count; ++last) {
                lambda(z_in[last], out_0[last], out_1[last], out_2[last], out_3[last], out_4[last], out_5[last]);
            }
        }
    }
#endif
}
