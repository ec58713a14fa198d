"""The small C++ functions that kernels call where C++ means something else than Python and NumPy.

Only those that a kernel uses go into its source, each with what it uses itself.
"""

from __future__ import annotations

import re

from vispark.translate.codegen.scalar.complex_numbers import COMPLEX

_SOURCES = r"""
template <class T> struct unsigned_of { typedef T type; };
template <> struct unsigned_of<signed char> { typedef unsigned char type; };
template <> struct unsigned_of<short> { typedef unsigned short type; };
template <> struct unsigned_of<int> { typedef unsigned type; };
template <> struct unsigned_of<long long> { typedef unsigned long long type; };

// A value whose origin compilers do not see: vispark/target.h says why.
template <class T> __device__ __forceinline__ T opaque(T a) { return vispark::opaque<T>(a); }

// -a, which wraps.
template <class T> __device__ __forceinline__ T wrapped_negative(T a) { return vispark::negative<T>(a); }

// a < b and a <= b of floats, where CUDA's assembler may find that the one cannot be beyond the other: it forgets NaN.
template <class T> __device__ __forceinline__ bool less(T a, T b) { return a < b && a == a && b == b; }
template <class T> __device__ __forceinline__ bool less_equal(T a, T b) { return a <= b && a == a && b == b; }

// Python's //, whose result is rounded down; x // 0 is 0 for integers, as in NumPy.
template <class T> __device__ __forceinline__ T floor_divide(T a, T b) { return vispark::floor_quotient<T>(a, b); }
template <> __device__ __forceinline__ double floor_divide<double>(double a, double b)
{
    if (b == 0) return a / b;
    const double rest = fmod(a, b);
    double quotient = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
    if (quotient == 0) return copysign(0.0, a / b);
    const double whole = floor(quotient);
    return quotient - whole > 0.5 ? whole + 1 : whole;
}
template <> __device__ __forceinline__ float floor_divide<float>(float a, float b)
{
    if (b == 0) return a / b;
    const float rest = fmodf(a, b);
    float quotient = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
    if (quotient == 0) return copysignf(0.0f, a / b);
    const float whole = floorf(quotient);
    return quotient - whole > 0.5f ? whole + 1 : whole;
}

// Python's %, which has the divisor's sign; x % 0 is 0 for integers, as in NumPy.
template <class T> __device__ __forceinline__ T floor_remainder(T a, T b) { return vispark::floor_rest<T>(a, b); }
template <> __device__ __forceinline__ double floor_remainder<double>(double a, double b)
{
    const double rest = fmod(a, b);
    if (b == 0) return rest;
    if (rest == 0) return copysign(0.0, b);
    return (b < 0) != (rest < 0) ? rest + b : rest;
}
template <> __device__ __forceinline__ float floor_remainder<float>(float a, float b)
{
    const float rest = fmodf(a, b);
    if (b == 0) return rest;
    if (rest == 0) return copysignf(0.0f, b);
    return (b < 0) != (rest < 0) ? rest + b : rest;
}

// C's %, which has the dividend's sign.
template <class T> __device__ __forceinline__ T c_remainder(T a, T b) { return vispark::rest<T>(a, b); }

// An integer power that wraps; NumPy refuses negative exponents, here they give 0.
template <class T> __device__ __forceinline__ T integer_power(T base, T exponent)
{
    if (exponent < 0) return 0;
    unsigned long long result = 1, factor = (unsigned long long)base;
    for (unsigned long long left = (unsigned long long)exponent; left; left >>= 1) {
        if (left & 1) result *= factor;
        factor *= factor;
    }
    return (T)result;
}

// Shifts by more than the width, or by a negative number, shift everything out, as in NumPy.
template <class T> __device__ __forceinline__ T shift_left(T a, T b)
{
    const unsigned long long by = (unsigned long long)b;
    return by < 8 * sizeof(T) ? (T)((unsigned long long)a << by) : T(0);
}
template <class T> __device__ __forceinline__ T shift_right(T a, T b)
{
    const unsigned long long by = (unsigned long long)b;
    return by < 8 * sizeof(T) ? (T)(a >> by) : a < 0 ? T(-1) : T(0);
}

template <class T> __device__ __forceinline__ T absolute(T a)
{
    const T negative = wrapped_negative<T>(a);
    return (sizeof(T) < 4 ? a < 0 : a < negative) ? negative : a;
}
// That of what is known not to be the least integer; it folds where the number is known once loops are unrolled.
template <class T> __device__ __forceinline__ T absolute_in_range(T a) { return a < 0 ? -a : a; }
template <class T> __device__ __forceinline__ T power2(T a) { return a * a; }
template <class T> __device__ __forceinline__ T power3(T a) { return a * a * a; }
template <class T> __device__ __forceinline__ T power4(T a) { return (a * a) * (a * a); }
template <class T> __device__ __forceinline__ T square(T a)
{
    return (T)((typename unsigned_of<T>::type)a * (typename unsigned_of<T>::type)a);
}
template <> __device__ __forceinline__ unsigned short square<unsigned short>(unsigned short a)
{
    return (unsigned)a * (unsigned)a;
}
template <> __device__ __forceinline__ short square<short>(short a) { return (unsigned)a * (unsigned)a; }
template <class T> __device__ __forceinline__ T reciprocal(T a)
{
    // Of an integer zero it is undefined in NumPy; here it is 0.
    return T(1) / T(2) == T(0) && a == T(0) ? T(0) : T(1) / a;
}

// Quotients by one number: the product with its reciprocal, q, less what that is too much times the reciprocal, which
// is rounded as the quotient is where nothing underflows or overflows on the way (docs/decisions/0017 proves it). Where
// something may, sure becomes false, and the quotient is to be taken again with exact. Written so, nothing is too much
// of a zero, times a number below zero: it keeps its sign. Of a divisor whose reciprocal is no normal number the bounds
// are such that nothing is sure, without a branch, which compilers would draw out of loops with all that they hold.
__device__ __forceinline__ float fused_sum(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double fused_sum(double a, double b, double c) { return fma(a, b, c); }
template <class T> struct divisor_t {
    T size, factor, signum, least, zero;
    __device__ __forceinline__ explicit divisor_t(T b)
    {
        const bool single = sizeof(T) == 4;
        size = fabs(b);
        factor = 1 / size;
        signum = copysign(T(1), b);
        const T large = size * 4, unusual = (large - large) + (factor - factor);
        least = fmax((T)(single ? 0x1p-125 : 0x1p-1021), factor * (T)(single ? 0x1p-101 : 0x1p-968)) + unusual;
        zero = fmax(unusual, T(-1));
    }
};
template <bool exact, class T> __device__ __forceinline__ T common_quotient(T a, T b, bool& sure)
{
    if (exact) return a / b;
    const divisor_t<T> by(b);
    const T q = a * by.factor, quotient = fused_sum(fused_sum(by.size, q, -a), -by.factor, q);
    // Infinities have become NaN, which is not at least anything; a NaN of the dividend stays one.
    sure = sure & ((fabs(quotient) >= by.least) | !(fabs(a) > by.zero));
    return quotient * by.signum;
}

// NumPy's maximum and minimum give NaN where an operand is; fmax and fmin the other operand.
template <class T> __device__ __forceinline__ T maximum(T a, T b) { return a >= b || a != a ? a : b; }
template <class T> __device__ __forceinline__ T minimum(T a, T b) { return a <= b || a != a ? a : b; }
template <class T> __device__ __forceinline__ T maximum_number(T a, T b) { return a >= b || b != b ? a : b; }
template <class T> __device__ __forceinline__ T minimum_number(T a, T b) { return a <= b || b != b ? a : b; }

// Python's max and min keep the first unless the second is strictly beyond it.
template <class T> __device__ __forceinline__ T first_maximum(T a, T b) { return b > a ? b : a; }
template <class T> __device__ __forceinline__ T first_minimum(T a, T b) { return b < a ? b : a; }

template <class T> __device__ __forceinline__ T sign(T a) { return a != a ? a : (T)((a > T(0)) - (a < T(0))); }

template <class T> __device__ __forceinline__ bool is_nan(T a) { return a != a; }
template <class T> __device__ __forceinline__ bool is_inf(T a) { return a == a && a - a != a - a; }
template <class T> __device__ __forceinline__ bool is_finite(T a) { return a - a == a - a; }
template <class T> __device__ __forceinline__ bool sign_bit(T a) { return copysign(1.0, (double)a) < 0; }

template <class T> __device__ __forceinline__ T log_add_exp(T a, T b)
{
    if (a == b) return a + T(0.6931471805599453);
    const T difference = a - b, least = difference > 0 ? -difference : difference;
    if (sizeof(T) == 4) return (difference > 0 ? a : b) + log1pf(expf((float)least));
    return (T)((difference > 0 ? a : b) + log1p(exp((double)least)));
}
template <class T> __device__ __forceinline__ T log_add_exp2(T a, T b)
{
    if (a == b) return a + T(1);
    const double difference = (double)a - b, scale = 1.4426950408889634;
    return difference > 0 ? a + (T)(scale * log1p(exp2(-difference)))
                          : difference <= 0 ? b + (T)(scale * log1p(exp2(difference))) : (T)difference;
}
template <class T> __device__ __forceinline__ unsigned long long unsigned_absolute(T a)
{
    return a < 0 ? 0ULL - (unsigned long long)a : (unsigned long long)a;
}
// Euclid's algorithm, of numbers without their signs.
template <class T> __device__ __forceinline__ T greatest_divisor(T a, T b)
{
    unsigned long long first = unsigned_absolute<T>(a), second = unsigned_absolute<T>(b);
    while (second != 0) {
        const unsigned long long rest = first % second;
        first = second;
        second = rest;
    }
    return (T)first;
}
template <class T> __device__ __forceinline__ T least_multiple(T a, T b)
{
    unsigned long long first = unsigned_absolute<T>(a), second = unsigned_absolute<T>(b);
    const unsigned long long product = first, factor = second;
    while (second != 0) {
        const unsigned long long rest = first % second;
        first = second;
        second = rest;
    }
    return first == 0 ? T(0) : (T)(product / first * factor);
}
template <class T> __device__ __forceinline__ unsigned char bits_of(T a)
{
    unsigned long long bits = unsigned_absolute<T>(a);
    bits -= bits >> 1 & 0x5555555555555555ULL;
    bits = (bits & 0x3333333333333333ULL) + (bits >> 2 & 0x3333333333333333ULL);
    bits = bits + (bits >> 4) & 0x0f0f0f0f0f0f0f0fULL;
    return (unsigned char)(bits * 0x0101010101010101ULL >> 56);
}
template <class T> __device__ __forceinline__ int length_in_bits(T a)
{
    int length = 0;
    for (unsigned long long bits = unsigned_absolute<T>(a); bits != 0; bits >>= 1)
        ++length;
    return length;
}
template <class T> __device__ __forceinline__ T next_after(T a, T b) { return nextafter(a, b); }
template <> __device__ __forceinline__ float next_after<float>(float a, float b) { return nextafterf(a, b); }
// How far the next number away from zero is.
template <class T> __device__ __forceinline__ T spacing_of(T a)
{
    if (a - a != 0) return a - a;
    const T far = (T)__longlong_as_double(0x7ff0000000000000LL);
    return next_after<T>(a, a < 0 ? -far : far) - a;
}
template <class T> __device__ __forceinline__ T load_exponent(T a, long long power)
{
    return (T)ldexp((double)a, (int)(power < -4096 ? -4096 : power > 4096 ? 4096 : power));
}
template <class T> __device__ __forceinline__ T fraction(T a)
{
    return (T)copysign(a == a && a - a != 0 ? 0.0 : (double)a - trunc((double)a), (double)a);
}
template <class T> __device__ __forceinline__ T whole_part(T a) { return (T)trunc((double)a); }
template <class T> __device__ __forceinline__ T significand(T a)
{
    int power;
    return a - a != 0 ? a : (T)frexp((double)a, &power);
}
template <class T> __device__ __forceinline__ int binary_exponent(T a)
{
    int power = 0;
    if (a - a == 0) frexp((double)a, &power);
    return power;
}
template <class T> __device__ __forceinline__ T heaviside(T a, T b) { return a != a ? a : a == 0 ? b : T(a > 0); }

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

// NumPy's order for sorting: what has a NaN comes last.
template <class T> __device__ __forceinline__ bool sorts_behind(T a, T b) { return a > b || (a != a && b == b); }

// Batcher's odd-even merge sort: which items are compared depends on their number alone.
template <int n, class Order> __device__ __forceinline__ void by_network(Order exchange)
{
    for (int merged = 1; merged < n; merged *= 2)
        for (int distance = merged; distance > 0; distance /= 2)
            for (int first = distance % merged; first + distance < n; first += 2 * distance)
                for (int i = first; i < first + distance && i + distance < n; ++i)
                    if (i / (2 * merged) == (i + distance) / (2 * merged)) exchange(i, i + distance);
}
template <int n, class T> __device__ __forceinline__ void sort_row(T* row)
{
    by_network<n>([&](int i, int j) {
        const T one = row[i], other = row[j];
        if (sorts_behind(one, other)) {
            row[i] = other;
            row[j] = one;
        }
    });
}
// The places that sort a row; equal keys stay in the order of their places.
template <int n, class T> __device__ __forceinline__ void sort_places(T* keys, long long* places)
{
    for (int i = 0; i < n; ++i) places[i] = i;
    by_network<n>([&](int i, int j) {
        const T one = keys[i], other = keys[j];
        const long long place = places[i];
        if (sorts_behind(one, other) || (!sorts_behind(other, one) && place > places[j])) {
            keys[i] = other;
            keys[j] = one;
            places[i] = places[j];
            places[j] = place;
        }
    });
}

// How many of a sorted row's numbers are before a number, or not behind it.
template <bool after, class T, class Row> __device__ __forceinline__ int place_of(T value, int count, Row row)
{
    int low = 0, high = count;
    while (low < high) {
        const int middle = (low + high) / 2;
        const T one = row(middle);
        if (after ? !sorts_behind(one, value) : sorts_behind(value, one)) low = middle + 1;
        else high = middle;
    }
    return low;
}
// Python's round(x, n): the multiple of 1 / power, a power of ten, that is nearest to x itself; of two the even one.
// What rounding the product has lost decides where the product lies halfway.
__device__ __forceinline__ double round_digits(double x, double power)
{
    // By fma, so that no compiler makes one operation of the product and a difference.
    const double scaled = fma(x, power, 0.0);
    if (!(fabs(scaled) < 9007199254740992.0)) return x;
    const double lost = fma(x, power, -scaled);
    double whole = rint(scaled);
    const double fraction = scaled - whole;
    if (fraction == 0.5 && lost > 0) whole += 1;
    if (fraction == -0.5 && lost < 0) whole -= 1;
    return whole / power;
}
template <class P, class V> __device__ __forceinline__ double interpolate(double at, int count, P places, V values,
                                                                          double left, double right)
{
    if (at != at) return at;
    const int next = place_of<true>(at, count, places);
    if (next == 0) return left;
    const double place = places(next - 1), value = values(next - 1);
    if (next == count) return at > place ? right : value;
    if (at == place) return value;
    const double slope = (values(next) - value) / (places(next) - place), result = slope * (at - place) + value;
    if (result == result) return result;
    const double back = slope * (at - places(next)) + values(next);
    return back != back && value == values(next) ? value : back;
}

// Truncation; beyond the range it saturates and NaN gives 0.
template <class I, class F> __device__ __forceinline__ I to_integer(F a)
{
    if (sizeof(I) < 4) return (I)to_integer<int>(a);
    const bool is_signed = I(-1) < 0;
    const I top = (I)(~0ull >> (64 - 8 * sizeof(I) + is_signed)), bottom = is_signed ? (I)(-top - 1) : I(0);
    return a != a ? I(0) : a >= (F)top ? top : a <= (F)bottom ? bottom : (I)a;
}

// The root of a * a + b * b.
template <class T> __device__ __forceinline__ T hypotenuse(T a, T b) { return vispark::hypotenuse(a, b); }

// The root of a sum of squares, scaled by a power of two, with what is lost of each and of the root itself, as Python
// has it. fma() in place of * keeps compilers from joining a product with the sum after it.
template <int count> __device__ __forceinline__ double vector_length(const double (&numbers)[count])
{
    double most = 0;
    bool nan = false;
    for (int i = 0; i < count; i++) {
        nan = nan || numbers[i] != numbers[i];
        most = fmax(most, fabs(numbers[i]));
    }
    if (is_inf(most) || (most == 0 && !nan)) return most;
    if (nan) return sqrt(-1.0);
    const int exponent = ilogb(most);
    double high = 0, low = 0;
    for (int i = 0; i < count; i++) {
        const double x = ldexp(numbers[i], -exponent), square = fma(x, x, 0.0), sum = high + square;
        const double part = sum - high;
        low += (high - (sum - part)) + (square - part) + fma(x, x, -square);
        high = sum;
    }
    const double root = sqrt(high + low);
    return ldexp(root + (fma(-root, root, high) + low) / (root + root), exponent);
}

// Integers of 64 bits with and without a sign compare by value.
__device__ __forceinline__ bool mixed_less(long long a, unsigned long long b)
{
    return a < 0 || (unsigned long long)a < b;
}
__device__ __forceinline__ bool mixed_less(unsigned long long a, long long b)
{
    return b >= 0 && a < (unsigned long long)b;
}
__device__ __forceinline__ bool mixed_equal(long long a, unsigned long long b)
{
    return a >= 0 && (unsigned long long)a == b;
}
__device__ __forceinline__ bool mixed_equal(unsigned long long a, long long b)
{
    return b >= 0 && a == (unsigned long long)b;
}

// Ends the kernel. In a place that outlives it, which its worker gave it, the first thread says which index it was, of
// how long an axis, and at which subscript of the function.
VISPARK_REPORT(vispark_report)
static __device__ unsigned vispark_reports;
static __device__ __noinline__ __attribute__((noreturn)) void
index_outside(long long index, long long length, long long subscript)
{
    if (vispark_report) {
        if (atomicCAS(&vispark_reports, 0u, 1u) == 0u) {
            volatile long long* const report = vispark_report;
            report[1] = index;
            report[2] = length;
            report[3] = subscript;
            __threadfence_system();
            report[0] = 1;
            __threadfence_system();
            atomicExch(&vispark_reports, 2u);
        } else {
            for (int turn = 0; turn < 1 << 20 && *(volatile unsigned*)&vispark_reports != 2u; ++turn) {}
        }
    }
    __trap();
}
// An index that counts from the end if it is negative. Outside the array the kernel ends with a fault.
template <int length> __device__ __forceinline__ int checked_index(long long index, long long subscript)
{
    const long long i = index < 0 ? index + length : index;
    if (i < 0 || i >= length) index_outside(index, length, subscript);
    return (int)i;
}
// The same of a row whose length only data says.
__device__ __forceinline__ int row_index(long long index, long long length, long long subscript)
{
    const long long i = index < 0 ? index + length : index;
    if (i < 0 || i >= length) index_outside(index, length, subscript);
    return (int)i;
}
// Rows that are computed with item by item are of one length.
__device__ __forceinline__ void check_length(long long length, long long other)
{
    if (length != other) index_outside(other, length, 0);
}
// A row without items has no extreme.
__device__ __forceinline__ void check_items(long long length)
{
    if (length == 0) index_outside(0, length, 0);
}
__device__ __forceinline__ int shorter(int a, int b) { return a < b ? a : b; }

// Functions of scipy.special, in the precision of their operands.
__device__ __forceinline__ float exp_of(float a) { return expf(a); }
__device__ __forceinline__ double exp_of(double a) { return exp(a); }
__device__ __forceinline__ float log_of(float a) { return logf(a); }
__device__ __forceinline__ double log_of(double a) { return log(a); }
__device__ __forceinline__ float log1p_of(float a) { return log1pf(a); }
__device__ __forceinline__ double log1p_of(double a) { return log1p(a); }
__device__ __forceinline__ float expm1_of(float a) { return expm1f(a); }
__device__ __forceinline__ double expm1_of(double a) { return expm1(a); }
__device__ __forceinline__ float erfc_of(float a) { return erfcf(a); }
__device__ __forceinline__ double erfc_of(double a) { return erfc(a); }
__device__ __forceinline__ float lgamma_of(float a) { return lgammaf(a); }
__device__ __forceinline__ double lgamma_of(double a) { return lgamma(a); }
template <class T> __device__ __forceinline__ T special_expit(T a) { return 1 / (1 + exp_of(-a)); }
template <class T> __device__ __forceinline__ T special_logit(T a)
{
    if (a < T(0.3) || a > T(0.65)) return log_of(a / (1 - a));
    const T centred = 2 * (a - T(0.5));
    return log1p_of(centred) - log1p_of(-centred);
}
template <class T> __device__ __forceinline__ T special_log_expit(T a)
{
    return a < 0 ? a - log1p_of(exp_of(a)) : -log1p_of(exp_of(-a));
}
// Minus infinity has no sign of its own in C's lgamma.
template <class T> __device__ __forceinline__ T special_gammaln(T a)
{
    return a < 0 && a - a != 0 ? a : lgamma_of(a);
}
template <class T> __device__ __forceinline__ T special_ndtr(T a)
{
    return T(0.5) * erfc_of(a * T(-0.7071067811865476));
}
template <class T> __device__ __forceinline__ T special_entr(T a)
{
    const T none = T(0), least = log_of(none);
    return a > 0 ? -a * log_of(a) : a == 0 ? none : a < 0 ? least : a;
}
// a * log(a / b) of numbers above zero, as SciPy has it: by their difference where they are near, and by two logarithms
// where the quotient is no normal number.
__device__ __forceinline__ double relative_entropy(double a, double b)
{
    const double quotient = a / b;
    if (quotient > 0.5 && quotient < 2) return a * log1p((a - b) / b);
    const bool normal = quotient > 2.2250738585072014e-308 && quotient - quotient == 0;
    return a * (normal ? log(quotient) : log(a) - log(b));
}
template <class T> __device__ __forceinline__ T special_rel_entr(T a, T b)
{
    const T none = T(0), most = -log_of(none);
    // As SciPy does: single precision is rounded from double, where the quotient of two such numbers has a value.
    return a != a || b != b ? a + b : a > 0 && b > 0 ? T(relative_entropy(a, b)) : a == 0 && b >= 0 ? none : most;
}
template <class T> __device__ __forceinline__ T special_kl_div(T a, T b)
{
    const T most = -log_of(T(0));
    const bool inside = a > 0 && b > 0;
    return a != a || b != b ? a + b : inside ? T(a * log_of(double(a) / b) - a + b) : a == 0 && b >= 0 ? b : most;
}
template <class T> __device__ __forceinline__ T special_xlogy(T a, T b)
{
    return a == 0 && b == b ? T(0) : a * log_of(b);
}
template <class T> __device__ __forceinline__ T special_xlog1py(T a, T b)
{
    return a == 0 && b == b ? T(0) : a * log1p_of(b);
}
template <class T> __device__ __forceinline__ T special_huber(T a, T b)
{
    const T size = b < 0 ? -b : b;
    return a < 0 ? -log_of(T(0)) : size <= a ? T(0.5) * b * b : a * (size - T(0.5) * a);
}
template <class T> __device__ __forceinline__ T special_pseudo_huber(T a, T b)
{
    const double share = double(b) / a;
    return a < 0 ? -log_of(T(0)) : a == 0 || b == 0 ? T(0) : T(double(a) * a * expm1_of(0.5 * log1p_of(share * share)));
}
// The digamma function: near its positive root by its Taylor series there, else by the recurrence up to 10 and the
// asymptotic series; left of zero by reflection.
__device__ __forceinline__ double digamma(double a)
{
    if (a == 0) return -1 / a;
    double result = 0;
    if (a < 0) {
        if (floor(a) == a) return 0.0 * log(a);
        const double fraction = a - floor(a + 0.5);
        result = -3.141592653589793 / tan(3.141592653589793 * fraction);
        a = 1 - a;
    }
    const double from_root = a - 1.4616321449683622 - 9.549995429965697e-17;
    if (fabs(from_root) < 0.3) {
        const double series[] = {
            0.9676722454476212, -0.4427631689835921, 0.258499760955651, -0.16394270544240652, 0.10782405069126237,
            -0.07219956125645471, 0.04880428816414311, -0.03316112647484736, 0.022597648232218104,
            -0.01542476590494896, 0.010538791616612175, -0.007204534386356869, 0.004926781395729853,
            -0.003369801655439328, 0.002305126326734928, -0.0015769367714301972, 0.0010788252019162967,
            -0.0007380709389960052, 0.000504953265834602, -0.0003454680251063077, 0.00023635601564027053,
            -0.00016170622091974803, 0.0001106337276874741, -7.569179582195066e-05};
        double sum = 0;
        for (int n = 23; n >= 0; --n) sum = (sum + series[n]) * from_root;
        return result + sum;
    }
    for (; a < 10; a += 1) result -= 1 / a;
    const double square = 1 / (a * a);
    const double rest = square * (1.0 / 12 - square * (1.0 / 120 - square * (1.0 / 252 - square * (
        1.0 / 240 - square * (1.0 / 132 - square * (691.0 / 32760 - square / 12))))));
    return result + (log(a) - 0.5 / a - rest);
}
template <class T> __device__ __forceinline__ T special_psi(T a) { return T(digamma(a)); }
// exp(a * a) * erfc(a), by the rest of the square beside it, or an asymptotic series.
__device__ __forceinline__ double scaled_erfc(double a)
{
    if (a > 26) {
        const double square = 0.5 / (a * a);
        return 0.5641895835477563 / a
            * (1 - square * (1 - 3 * square * (1 - 5 * square * (1 - 7 * square * (1 - 9 * square)))));
    }
    const double square = a * a;
    if (square > 1000) return 2 * exp(square);
    return exp(square) * (1 + fma(a, a, -square)) * erfc(a);
}
template <class T> __device__ __forceinline__ T special_erfcx(T a) { return T(scaled_erfc(a)); }
// The a at which erfc is b, of b from 0 to 1/2: a start of Hastings', then Newton's steps towards the logarithm.
__device__ __forceinline__ double inverse_of_tail(double b)
{
    if (b == 0) return -log(b);
    const double wanted = log(b), t = sqrt(2 * (0.6931471805599453 - wanted));
    double a = 0.7071067811865476 * (t - (2.30753 + 0.27061 * t) / (1 + t * (0.99229 + 0.04481 * t)));
    for (int turn = 0; turn < 4; ++turn) {
        const double scaled = scaled_erfc(a);
        a += (log(scaled) - a * a - wanted) * scaled * 0.8862269254527580;
    }
    return a;
}
__device__ __forceinline__ double inverse_erf(double b)
{
    if (fabs(b) > 0.5) return copysign(inverse_of_tail(1 - fabs(b)), b);
    const double square = b * b;
    double a = 0.8862269254527580 * b
        * (1 + square * (0.2617993877991494 + square * (0.1439317341450236 + square * 0.09766361950392055)));
    for (int turn = 0; turn < 2; ++turn) {
        const double step = (erf(a) - b) * 0.8862269254527580 * exp(a * a);
        a -= step / (1 + a * step);
    }
    return a;
}
__device__ __forceinline__ double inverse_erfc(double b)
{
    if (b >= 0.5) return inverse_erf(1 - b);
    return b < 0 ? sqrt(b) : inverse_of_tail(b);
}
template <class T> __device__ __forceinline__ T special_erfinv(T b) { return T(inverse_erf(b)); }
template <class T> __device__ __forceinline__ T special_erfcinv(T b) { return T(inverse_erfc(b)); }
template <class T> __device__ __forceinline__ T special_ndtri(T b)
{
    const double wanted = b;
    return T(1.4142135623730951 * (wanted < 0.5 ? -inverse_erfc(2 * wanted) : inverse_erf(2 * wanted - 1)));
}
template <class T> __device__ __forceinline__ T special_log_ndtr(T b)
{
    const double a = b;
    if (a < -1) return T(log(0.5 * scaled_erfc(a * -0.7071067811865476)) - 0.5 * a * a);
    return T(log1p(-0.5 * erfc(a * 0.7071067811865476)));
}
template <class T> __device__ __forceinline__ T special_exprel(T b)
{
    const double a = b;
    return T(fabs(a) < 1e-16 ? 1.0 : a > 717 ? a * 1e308 * 10 : expm1(a) / a);
}

// Half precision in memory; arithmetic is done in float.
struct half_t {
    unsigned short bits;
    half_t() = default;
    __device__ __forceinline__ explicit half_t(float value) : bits(round(value)) {}
    __device__ __forceinline__ explicit half_t(double value)
    {
        // Through a float rounded to odd, so that rounding twice gives what rounding once does.
        float near = (float)value;
        if (near == near && (double)near != value && near - near == 0) {
            int word = __float_as_int(near);
            if ((fabs((double)near) > fabs(value))) word -= 1;
            near = __int_as_float(word | 1);
        }
        bits = round(near);
    }
    template <class T> __device__ __forceinline__ explicit half_t(T value) : half_t((double)value) {}
    static __device__ __forceinline__ unsigned short round(float value)
    {
        const unsigned word = (unsigned)__float_as_int(value), magnitude = word & 0x7fffffffu;
        const unsigned short top = (unsigned short)(word >> 16 & 0x8000u);
        if (magnitude > 0x7f800000u) return top | 0x7e00u;
        if (magnitude >= 0x477ff000u) return top | 0x7c00u;
        if (magnitude < 0x38800000u) {
            const float scaled = __int_as_float((int)magnitude) + 0.5f;
            return top | (unsigned short)((unsigned)__float_as_int(scaled) - 0x3f000000u);
        }
        return top | (unsigned short)((magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13);
    }
    __device__ __forceinline__ operator float() const
    {
        const unsigned magnitude = (bits & 0x7fffu) << 13, top = (unsigned)(bits & 0x8000u) << 16;
        if (magnitude >= 0x0f800000u) return __int_as_float((int)(top | 0x70000000u | magnitude));
        if (magnitude >= 0x00800000u) return __int_as_float((int)(top | (magnitude + 0x38000000u)));
        const float small = __int_as_float((int)(0x38800000u | magnitude)) - __int_as_float((int)0x38800000u);
        return __int_as_float((int)(top | (unsigned)__float_as_int(small)));
    }
};
""" + COMPLEX

_NAME = re.compile(r"^(?:template <[^\n]*?> |template <> )?"
                   r"(?:struct|__device__ __forceinline__ [\w<> ]+?|static __device__ __noinline__ [\w() ]+)\s+"
                   r"(operator(?:[=!<>]=|[-+*/<>])|\w+)(?=\s*[(<{:])", re.M)


def _parts() -> tuple[tuple[str, str], ...]:
    """Return each function or struct of the prelude with its name, in order; comments and specialisations stay with
    theirs.
    """
    parts: list[tuple[str, str]] = []
    for paragraph in _definitions(_SOURCES.strip()):
        name = str(_NAME.findall(paragraph)[0])
        name = "complex_t" if name.startswith("operator") else name
        parts.append((name, paragraph))
    return tuple(parts)


def _definitions(text: str) -> list[str]:
    definitions: list[str] = []
    current: list[str] = []
    for line in text.splitlines():
        starts = line.startswith(("//", "template", "__device__", "struct"))
        if starts and current and not current[-1].startswith("//"):
            definitions.append("\n".join(current).rstrip())
            current = []
        current.append(line)
    return [*definitions, "\n".join(current).rstrip()]


_SPECIAL = re.compile(r"^template <> [^\n]*?(\w+<[\w ]+>)\(", re.M)
PARTS = _parts()
NAMES = tuple(dict.fromkeys(name for name, _ in PARTS))
_WORD = re.compile(r"\b\w+\b")
_COMMENT = re.compile(r"//[^\n]*")


def prelude_for(text: str) -> str:
    """Return the definitions that a kernel's text needs, in order."""
    wanted: list[str] = []
    while True:
        used = _COMMENT.sub("", "\n".join([text, *wanted]))
        words = set(_WORD.findall(used))
        parts = [part for name, part in PARTS if name in words and _is_used(part, used)]
        if parts == wanted:
            return "".join(part + "\n" for part in parts)
        wanted = parts


def _is_used(part: str, text: str) -> bool:
    """Return whether a part, if it specialises a template, does so for a type in use."""
    special = _SPECIAL.search(part)
    if special is None:
        return True
    name = special[1].partition("<")[0]
    return any(used in text.replace(part, "") for used in (special[1], f"{name}<T>"))
