// The functions of CUDA's mathematics and integer API that the C library does not have under the same name.
#pragma once

// minimum and maximum. A NaN loses against a number, as in CUDA.
#define VISPARK_MINMAX(T, A, B)                                        \
    static inline T min(A a, B b) { return (T)a < (T)b ? (T)a : (T)b; } \
    static inline T max(A a, B b) { return (T)a > (T)b ? (T)a : (T)b; }
#define VISPARK_MINMAX_FLOAT(T, A, B)                                                              \
    static inline T min(A a, B b) { return (T)a < (T)b || (T)b != (T)b ? (T)a : (T)b; }            \
    static inline T max(A a, B b) { return (T)a > (T)b || (T)b != (T)b ? (T)a : (T)b; }
VISPARK_MINMAX(int, int, int)
VISPARK_MINMAX(unsigned, unsigned, unsigned)
VISPARK_MINMAX(unsigned, int, unsigned)
VISPARK_MINMAX(unsigned, unsigned, int)
VISPARK_MINMAX(long, long, long)
VISPARK_MINMAX(unsigned long, unsigned long, unsigned long)
VISPARK_MINMAX(unsigned long, long, unsigned long)
VISPARK_MINMAX(unsigned long, unsigned long, long)
VISPARK_MINMAX(long long, long long, long long)
VISPARK_MINMAX(unsigned long long, unsigned long long, unsigned long long)
VISPARK_MINMAX(unsigned long long, long long, unsigned long long)
VISPARK_MINMAX(unsigned long long, unsigned long long, long long)
VISPARK_MINMAX_FLOAT(float, float, float)
VISPARK_MINMAX_FLOAT(double, double, double)
VISPARK_MINMAX_FLOAT(double, float, double)
VISPARK_MINMAX_FLOAT(double, double, float)
#undef VISPARK_MINMAX
#undef VISPARK_MINMAX_FLOAT
static inline unsigned umin(unsigned a, unsigned b) { return min(a, b); }
static inline unsigned umax(unsigned a, unsigned b) { return max(a, b); }
static inline long long llmin(long long a, long long b) { return min(a, b); }
static inline long long llmax(long long a, long long b) { return max(a, b); }
static inline unsigned long long ullmin(unsigned long long a, unsigned long long b) { return min(a, b); }
static inline unsigned long long ullmax(unsigned long long a, unsigned long long b) { return max(a, b); }

namespace vispark {

const double PI = 3.14159265358979323846;

// erfinv by Giles' approximation ("Approximating the erfinv function", GPU Computing Gems, 2011) and two steps of Newton.
static inline double erfinv(double x) {
    if (!(x > -1 && x < 1)) return x == 1 || x == -1 ? x * __builtin_inf() : __builtin_nan("");
    double w = -::log((1 - x) * (1 + x)), p;
    if (w < 5) {
        w -= 2.5;
        p = 2.81022636e-08; p = 3.43273939e-07 + p * w; p = -3.5233877e-06 + p * w; p = -4.39150654e-06 + p * w;
        p = 0.00021858087 + p * w; p = -0.00125372503 + p * w; p = -0.00417768164 + p * w; p = 0.246640727 + p * w;
        p = 1.50140941 + p * w;
    } else {
        w = ::sqrt(w) - 3;
        p = -0.000200214257; p = 0.000100950558 + p * w; p = 0.00134934322 + p * w; p = -0.00367342844 + p * w;
        p = 0.00573950773 + p * w; p = -0.0076224613 + p * w; p = 0.00943887047 + p * w; p = 1.00167406 + p * w;
        p = 2.83297682 + p * w;
    }
    double y = p * x;
    for (int step = 0; step < 2; step++) y -= (::erf(y) - x) * ::sqrt(PI) / 2 * ::exp(y * y);
    return y;
}

// The value of an expression that the compiler may not fuse with what is around it.
#if defined(__x86_64__)
#define VISPARK_ROUNDED "+x"
#elif defined(__aarch64__)
#define VISPARK_ROUNDED "+w"
#else
#define VISPARK_ROUNDED "+m"
#endif
template <class T> static inline T rounded(T value) {
    asm("" : VISPARK_ROUNDED(value));
    return value;
}

template <class T, class F> static inline T bits(F value) {
    static_assert(sizeof(T) == sizeof(F), "of one size");
    T result;
    __builtin_memcpy(&result, &value, sizeof(T));
    return result;
}

// Conversion as the hardware does it: what is out of range becomes the nearest value, a NaN becomes 0.
template <class I, class F> static inline I to_integer(F value) {
    const I highest = I(-1) > I(0) ? I(-1) : static_cast<I>((1ull << (sizeof(I) * 8 - 1)) - 1), lowest = ~highest;
    if (value != value) return 0;
    if (value <= static_cast<F>(lowest)) return lowest;
    if (value >= static_cast<F>(highest)) return highest;
    return static_cast<I>(value);
}

}  // namespace vispark

// Float and double functions that the C library lacks; T is the type and s the suffix of its functions.
#define VISPARK_MATH(T, s)                                                                                   \
    static inline T rsqrt##s(T x) { return T(1) / sqrt##s(x); }                                              \
    static inline T rcbrt##s(T x) { return T(1) / cbrt##s(x); }                                              \
    static inline T sinpi##s(T x) { return (T)sin(vispark::PI * fmod((double)x, 2.0)); }                     \
    static inline T cospi##s(T x) { return (T)cos(vispark::PI * fmod((double)x, 2.0)); }                     \
    static inline void sincospi##s(T x, T* s_, T* c_) { *s_ = sinpi##s(x); *c_ = cospi##s(x); }              \
    static inline T rhypot##s(T x, T y) { return T(1) / hypot##s(x, y); }                                    \
    static inline T norm3d##s(T a, T b, T c) { return (T)sqrt((double)a * a + (double)b * b + (double)c * c); } \
    static inline T norm4d##s(T a, T b, T c, T d) {                                                          \
        return (T)sqrt((double)a * a + (double)b * b + (double)c * c + (double)d * d);                       \
    }                                                                                                        \
    static inline T rnorm3d##s(T a, T b, T c) { return T(1) / norm3d##s(a, b, c); }                          \
    static inline T rnorm4d##s(T a, T b, T c, T d) { return T(1) / norm4d##s(a, b, c, d); }                  \
    static inline T norm##s(int n, const T* v) {                                                             \
        double sum = 0;                                                                                      \
        for (int i = 0; i < n; i++) sum += (double)v[i] * v[i];                                              \
        return (T)sqrt(sum);                                                                                 \
    }                                                                                                        \
    static inline T rnorm##s(int n, const T* v) { return T(1) / norm##s(n, v); }                             \
    static inline T erfinv##s(T x) { return (T)vispark::erfinv(x); }                                         \
    static inline T erfcinv##s(T x) { return (T)vispark::erfinv(1.0 - x); }                                  \
    static inline T erfcx##s(T x) { return (T)(exp((double)x * x) * erfc((double)x)); }                      \
    static inline T normcdf##s(T x) { return (T)(0.5 * erfc(-(double)x / sqrt(2.0))); }                      \
    static inline T normcdfinv##s(T x) { return (T)(sqrt(2.0) * vispark::erfinv(2.0 * x - 1.0)); }
VISPARK_MATH(float, f)
VISPARK_MATH(double, )
#undef VISPARK_MATH
static inline float rsqrt(float x) { return rsqrtf(x); }
static inline float rcbrt(float x) { return rcbrtf(x); }
static inline float sinpi(float x) { return sinpif(x); }
static inline float cospi(float x) { return cospif(x); }
static inline float erfinv(float x) { return erfinvf(x); }
static inline float normcdf(float x) { return normcdff(x); }
static inline float exp10(float x) { return exp10f(x); }
static inline void sincos(float x, float* s, float* c) { sincosf(x, s, c); }
static inline float fdividef(float x, float y) { return x / y; }
static inline float saturate(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }

// Fast versions: on a CPU the exact ones. Macros, as the C library declares functions of these names that it lacks.
static inline float __fdividef(float x, float y) { return x / y; }
static inline float __saturatef(float x) { return saturate(x); }
#define __expf expf
#define __exp10f exp10f
#define __logf logf
#define __log2f log2f
#define __log10f log10f
#define __powf powf
#define __sinf sinf
#define __cosf cosf
#define __tanf tanf
#define __sincosf sincosf
static inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }

// Arithmetic that is never fused. All rounding modes are round-to-nearest here.
#define VISPARK_ROUNDING(mode)                                                                                   \
    static inline float __fadd_##mode(float a, float b) { return vispark::rounded(a + b); }                      \
    static inline float __fsub_##mode(float a, float b) { return vispark::rounded(a - b); }                      \
    static inline float __fmul_##mode(float a, float b) { return vispark::rounded(a * b); }                      \
    static inline float __fdiv_##mode(float a, float b) { return vispark::rounded(a / b); }                      \
    static inline float __frcp_##mode(float a) { return vispark::rounded(1.0f / a); }                            \
    static inline float __fsqrt_##mode(float a) { return sqrtf(a); }                                             \
    static inline float __fmaf_##mode(float a, float b, float c) { return fmaf(a, b, c); }                       \
    static inline double __dadd_##mode(double a, double b) { return vispark::rounded(a + b); }                   \
    static inline double __dsub_##mode(double a, double b) { return vispark::rounded(a - b); }                   \
    static inline double __dmul_##mode(double a, double b) { return vispark::rounded(a * b); }                   \
    static inline double __ddiv_##mode(double a, double b) { return vispark::rounded(a / b); }                   \
    static inline double __drcp_##mode(double a) { return vispark::rounded(1.0 / a); }                           \
    static inline double __dsqrt_##mode(double a) { return sqrt(a); }                                            \
    static inline double __fma_##mode(double a, double b, double c) { return fma(a, b, c); }
VISPARK_ROUNDING(rn)
VISPARK_ROUNDING(rz)
VISPARK_ROUNDING(ru)
VISPARK_ROUNDING(rd)
#undef VISPARK_ROUNDING

// Conversions.
#define VISPARK_CONVERT(mode, how)                                                                               \
    static inline int __float2int_##mode(float x) { return vispark::to_integer<int>(how##f(x)); }                \
    static inline unsigned __float2uint_##mode(float x) { return vispark::to_integer<unsigned>(how##f(x)); }     \
    static inline long long __float2ll_##mode(float x) { return vispark::to_integer<long long>(how##f(x)); }     \
    static inline unsigned long long __float2ull_##mode(float x) {                                               \
        return vispark::to_integer<unsigned long long>(how##f(x));                                               \
    }                                                                                                            \
    static inline int __double2int_##mode(double x) { return vispark::to_integer<int>(how(x)); }                 \
    static inline unsigned __double2uint_##mode(double x) { return vispark::to_integer<unsigned>(how(x)); }      \
    static inline long long __double2ll_##mode(double x) { return vispark::to_integer<long long>(how(x)); }      \
    static inline unsigned long long __double2ull_##mode(double x) {                                             \
        return vispark::to_integer<unsigned long long>(how(x));                                                  \
    }                                                                                                            \
    static inline float __int2float_##mode(int x) { return (float)x; }                                           \
    static inline float __uint2float_##mode(unsigned x) { return (float)x; }                                     \
    static inline float __ll2float_##mode(long long x) { return (float)x; }                                      \
    static inline float __ull2float_##mode(unsigned long long x) { return (float)x; }                            \
    static inline double __ll2double_##mode(long long x) { return (double)x; }                                   \
    static inline double __ull2double_##mode(unsigned long long x) { return (double)x; }                         \
    static inline float __double2float_##mode(double x) { return (float)x; }
VISPARK_CONVERT(rn, rint)
VISPARK_CONVERT(rz, trunc)
VISPARK_CONVERT(ru, ceil)
VISPARK_CONVERT(rd, floor)
#undef VISPARK_CONVERT
static inline double __int2double_rn(int x) { return x; }
static inline double __uint2double_rn(unsigned x) { return x; }
static inline int __float_as_int(float x) { return vispark::bits<int>(x); }
static inline unsigned __float_as_uint(float x) { return vispark::bits<unsigned>(x); }
static inline float __int_as_float(int x) { return vispark::bits<float>(x); }
static inline float __uint_as_float(unsigned x) { return vispark::bits<float>(x); }
static inline long long __double_as_longlong(double x) { return vispark::bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return vispark::bits<double>(x); }
static inline int __double2hiint(double x) { return (int)(vispark::bits<unsigned long long>(x) >> 32); }
static inline int __double2loint(double x) { return (int)vispark::bits<unsigned long long>(x); }
static inline double __hiloint2double(int high, int low) {
    return vispark::bits<double>((unsigned long long)(unsigned)high << 32 | (unsigned)low);
}

// Integers.
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline unsigned __brev(unsigned x) {
    x = x >> 1 & 0x55555555u | (x & 0x55555555u) << 1;
    x = x >> 2 & 0x33333333u | (x & 0x33333333u) << 2;
    x = x >> 4 & 0x0f0f0f0fu | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}
static inline unsigned long long __brevll(unsigned long long x) {
    return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32));
}
static inline int __mul24(int a, int b) { return (int)((unsigned)(a << 8 >> 8) * (unsigned)(b << 8 >> 8)); }
static inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffffu) * (b & 0xffffffu); }
static inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline int mulhi(int a, int b) { return __mulhi(a, b); }
static inline unsigned umulhi(unsigned a, unsigned b) { return __umulhi(a, b); }
static inline int mul24(int a, int b) { return __mul24(a, b); }
static inline unsigned umul24(unsigned a, unsigned b) { return __umul24(a, b); }
static inline unsigned __sad(int a, int b, unsigned c) { return (a > b ? (unsigned)a - b : (unsigned)b - a) + c; }
static inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return (a > b ? a - b : b - a) + c; }
static inline int __hadd(int a, int b) { return (int)((long long)a + b >> 1); }
static inline int __rhadd(int a, int b) { return (int)((long long)a + b + 1 >> 1); }
static inline unsigned __uhadd(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a + b >> 1); }
static inline unsigned __urhadd(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a + b + 1 >> 1); }
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    const unsigned long long bytes = (unsigned long long)b << 32 | a;
    unsigned result = 0;
    for (unsigned i = 0; i < 4; i++) {
        const unsigned control = selector >> i * 4, byte = (unsigned)(bytes >> (control & 7) * 8) & 255;
        result |= (control & 8 ? (byte & 128 ? 255u : 0u) : byte) << i * 8;
    }
    return result;
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((unsigned long long)high << 32 | low) << (shift & 31) >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (shift & 31));
}
static inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((unsigned long long)high << 32 | low) << (shift < 32 ? shift : 32) >> 32);
}
static inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (shift < 32 ? shift : 32));
}
static inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 32; i += 8) c += (signed char)(a >> i) * (signed char)(b >> i);
    return c;
}
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (int i = 0; i < 32; i += 8) c += (a >> i & 255) * (b >> i & 255);
    return c;
}

// Loads and stores with a cache hint.
#define VISPARK_LOAD(name) template <class T> static inline T name(const T* address) { return *address; }
#define VISPARK_STORE(name) template <class T> static inline void name(T* address, T value) { *address = value; }
VISPARK_LOAD(__ldg)
VISPARK_LOAD(__ldca)
VISPARK_LOAD(__ldcg)
VISPARK_LOAD(__ldcs)
VISPARK_LOAD(__ldlu)
VISPARK_LOAD(__ldcv)
VISPARK_STORE(__stwb)
VISPARK_STORE(__stcg)
VISPARK_STORE(__stcs)
VISPARK_STORE(__stwt)
#undef VISPARK_LOAD
#undef VISPARK_STORE

// Time and the end.
static inline long long clock64() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}
static inline unsigned long long __globaltimer() { return (unsigned long long)clock64(); }
static inline int vispark_clock() { return (int)clock64(); }
#define clock vispark_clock
static inline void __brkpt() {}
static inline void __trap() { abort(); }
