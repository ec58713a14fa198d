"""Complex numbers in C++, laid out and ordered as NumPy's, with the functions that NumPy has of them.

Functions are computed in double precision and rounded, but where NumPy rounds in between.
"""

#: Definitions that :mod:`vispark.translate.codegen.scalar.prelude` puts into the kernels that need them.
COMPLEX = r"""
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
template <class T> __device__ __forceinline__ complex_t<T> conjugate(complex_t<T> a)
{
    return complex_t<T>(a.re, -a.im);
}
// The order of its ufuncs: what has a NaN is neither before nor behind anything.
template <class T> __device__ __forceinline__ bool complex_less(complex_t<T> a, complex_t<T> b)
{
    return a == a && b == b && a < b;
}
template <class T> __device__ __forceinline__ bool complex_less_equal(complex_t<T> a, complex_t<T> b)
{
    return a == a && b == b && a <= b;
}
template <class T> __device__ __forceinline__ complex_t<T> complex_maximum(complex_t<T> a, complex_t<T> b)
{
    return a != a || (b == b && a >= b) ? a : b;
}
template <class T> __device__ __forceinline__ complex_t<T> complex_minimum(complex_t<T> a, complex_t<T> b)
{
    return a != a || (b == b && a <= b) ? a : b;
}
template <class T> __device__ __forceinline__ complex_t<T> complex_fmax(complex_t<T> a, complex_t<T> b)
{
    return b != b || (a == a && a >= b) ? a : b;
}
template <class T> __device__ __forceinline__ complex_t<T> complex_fmin(complex_t<T> a, complex_t<T> b)
{
    return b != b || (a == a && a <= b) ? a : b;
}
template <class T> __device__ __forceinline__ complex_t<T> complex_whole_sum(sum_of_parts<complex_t<T>> a)
{
    return complex_t<T>(whole_sum(sum_of_parts<T>{a.sum.re, a.lost.re}),
                        whole_sum(sum_of_parts<T>{a.sum.im, a.lost.im}));
}
template <class T> __device__ __forceinline__ T complex_absolute(complex_t<T> a) { return hypotenuse<T>(a.re, a.im); }
// e to the power x + iy, at its ends as in C (Annex G): sizes beyond the greatest float may have parts that are not.
__device__ __forceinline__ complex_t<double> complex_exponential(double x, double y)
{
    if (y == 0) return complex_t<double>(exp(x), y);
    if (is_inf(x) && x < 0) return complex_t<double>(0);
    if (is_inf(x) && y - y != 0) return complex_t<double>(x, y - y);
    const bool beyond = x > 709 && x < 1450;
    const double size = exp(beyond ? x - 709 : x), more = beyond ? 8.218407461554972e307 : 1.0;
    return complex_t<double>(size * cos(y) * more, size * sin(y) * more);
}
template <class T> __device__ __forceinline__ complex_t<T> complex_exp(complex_t<T> a)
{
    const complex_t<double> result = complex_exponential(a.re, a.im);
    return complex_t<T>((T)result.re, (T)result.im);
}
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
template <class T> __device__ __forceinline__ complex_t<T> complex_log(complex_t<T> a)
{
    return complex_t<T>((T)log_of_size(a.re, a.im), (T)atan2((double)a.im, (double)a.re));
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
// A product as C has it (Annex G), of which something is infinite if a factor is, or a part of the sum.
__device__ __forceinline__ complex_t<double> complex_product(complex_t<double> a, complex_t<double> b)
{
    const double re = a.re * b.re - a.im * b.im, im = a.re * b.im + a.im * b.re;
    if (re == re || im == im) return complex_t<double>(re, im);
    const bool far_a = is_inf(a.re) || is_inf(a.im), far_b = is_inf(b.re) || is_inf(b.im);
    const bool beyond = is_inf(a.re * b.re) || is_inf(a.im * b.im) || is_inf(a.re * b.im) || is_inf(a.im * b.re);
    if (!far_a && !far_b && !beyond) return complex_t<double>(re, im);
    const auto part = [](double value, bool far) {
        return far ? copysign(is_inf(value) ? 1.0 : 0.0, value) : value != value ? copysign(0.0, value) : value;
    };
    const double x = part(a.re, far_a), y = part(a.im, far_a), u = part(b.re, far_b), v = part(b.im, far_b);
    const double infinite = __longlong_as_double(0x7ff0000000000000LL);
    return complex_t<double>(infinite * (x * u - y * v), infinite * (x * v + y * u));
}
// As NumPy's: exponents that are small whole numbers by multiplication.
template <class T> __device__ __forceinline__ complex_t<T> complex_power(complex_t<T> a, complex_t<T> b)
{
    if (b.re == 0 && b.im == 0) return complex_t<T>(1);
    if (a.re == 0 && a.im == 0) {
        const T none = (T)__longlong_as_double(0x7ff8000000000000LL);
        return b.re > 0 ? complex_t<T>(0) : complex_t<T>(none, none);
    }
    if (b.im == 0 && b.re > -100 && b.re < 100 && b.re == (int)b.re) {
        complex_t<T> result(1), factor = a;
        for (int left = b.re < 0 ? -(int)b.re : (int)b.re; left; left >>= 1) {
            if (left & 1) result = result * factor;
            factor = factor * factor;
        }
        return b.re < 0 ? complex_t<T>(1) / result : result;
    }
    const double size = log_of_size(a.re, a.im), angle = atan2((double)a.im, (double)a.re);
    const complex_t<double> exponent = complex_product(complex_t<double>(b.re, b.im), complex_t<double>(size, angle));
    const complex_t<double> result = complex_exponential(exponent.re, exponent.im);
    return complex_t<T>((T)result.re, (T)result.im);
}
// Of zero it has no infinite part, as in NumPy.
template <class T> __device__ __forceinline__ complex_t<T> complex_reciprocal(complex_t<T> a)
{
    const T none = (T)__longlong_as_double(0x7ff8000000000000LL);
    return a.re == 0 && a.im == 0 ? complex_t<T>(none, none) : complex_t<T>(1) / a;
}
template <class T> __device__ __forceinline__ complex_t<T> complex_rint(complex_t<T> a)
{
    return complex_t<T>((T)rint((double)a.re), (T)rint((double)a.im));
}
template <class T> __device__ __forceinline__ complex_t<T> complex_sign(complex_t<T> a)
{
    const double x = a.re, y = a.im, size = (T)hypotenuse<double>(x, y);
    if (size == 0) return complex_t<T>(0);
    if (size - size == 0) return complex_t<T>((T)(x / size), (T)(y / size));
    if (size != size || (is_inf(x) && is_inf(y))) return complex_t<T>((T)(size - size), (T)(size - size));
    return is_inf(x) ? complex_t<T>((T)copysign(1.0, x)) : complex_t<T>(0, (T)copysign(1.0, y));
}
template <class T> __device__ __forceinline__ complex_t<T> complex_log2(complex_t<T> a)
{
    const complex_t<double> result = complex_log(complex_t<double>(a));
    return complex_t<T>((T)(result.re * 1.4426950408889634), (T)(result.im * 1.4426950408889634));
}
template <class T> __device__ __forceinline__ complex_t<T> complex_log10(complex_t<T> a)
{
    const complex_t<double> result = complex_log(complex_t<double>(a));
    return complex_t<T>((T)(result.re * 0.4342944819032518), (T)(result.im * 0.4342944819032518));
}
template <class T> __device__ __forceinline__ complex_t<T> complex_log1p(complex_t<T> a)
{
    const double x = a.re, y = a.im;
    const double size = fabs(x) < 0.5 && fabs(y) < 0.5 ? log1p(x * (2 + x) + y * y) / 2 : log_of_size(x + 1, y);
    return complex_t<T>((T)size, (T)atan2(y, x + 1));
}
template <class T> __device__ __forceinline__ complex_t<T> complex_exp2(complex_t<T> a)
{
    // Rounded in between, as in NumPy.
    return complex_exp(complex_t<T>(a.re * (T)0.6931471805599453, a.im * (T)0.6931471805599453));
}
template <class T> __device__ __forceinline__ complex_t<T> complex_expm1(complex_t<T> a)
{
    const double x = a.re, y = a.im, half = sin(y / 2);
    return complex_t<T>((T)(expm1(x) * cos(y) - 2 * half * half), (T)(exp(x) * sin(y)));
}
template <class T> __device__ __forceinline__ complex_t<T> complex_sinh(complex_t<T> a)
{
    return complex_t<T>((T)(sinh((double)a.re) * cos((double)a.im)), (T)(cosh((double)a.re) * sin((double)a.im)));
}
template <class T> __device__ __forceinline__ complex_t<T> complex_cosh(complex_t<T> a)
{
    return complex_t<T>((T)(cosh((double)a.re) * cos((double)a.im)), (T)(sinh((double)a.re) * sin((double)a.im)));
}
template <class T> __device__ __forceinline__ complex_t<T> complex_tanh(complex_t<T> a)
{
    const double x = a.re, y = a.im;
    if (fabs(x) > 20) {
        const double rest = 4 * exp(-2 * fabs(x));
        return complex_t<T>((T)copysign(1.0, x), (T)(exp(-fabs(x)) == 0 && x - x != 0 ? 0 : rest * sin(y) * cos(y)));
    }
    const double grown = sinh(x), turned = cos(y), size = grown * grown + turned * turned;
    return complex_t<T>((T)(grown * cosh(x) / size), (T)(sin(y) * turned / size));
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
// i f(-i z) is the circular function of a hyperbolic one.
template <class T> __device__ __forceinline__ complex_t<T> complex_sin(complex_t<T> a)
{
    const complex_t<T> turned = complex_sinh(complex_t<T>(-a.im, a.re));
    return complex_t<T>(turned.im, -turned.re);
}
template <class T> __device__ __forceinline__ complex_t<T> complex_cos(complex_t<T> a)
{
    return complex_cosh(complex_t<T>(-a.im, a.re));
}
template <class T> __device__ __forceinline__ complex_t<T> complex_tan(complex_t<T> a)
{
    const complex_t<T> turned = complex_tanh(complex_t<T>(-a.im, a.re));
    return complex_t<T>(turned.im, -turned.re);
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
"""
