// The arithmetic that CUDA has and C has not, one result a line.
#include <math.h>
extern "C" __global__ void floats(const float* x, float* out)
{
    const float a = x[0], b = x[1];
    int i = 0;
    out[i++] = __fdividef(a, b);
    out[i++] = __expf(a);
    out[i++] = __logf(b);
    out[i++] = __powf(b, a);
    out[i++] = __sinf(a);
    out[i++] = __cosf(a);
    out[i++] = rsqrtf(b);
    out[i++] = rcbrtf(b);
    out[i++] = __fmaf_rn(a, b, 1.0f);
    out[i++] = __saturatef(b);
    out[i++] = sinpif(a);
    out[i++] = norm3df(a, b, 2.0f);
    out[i++] = erff(a);
    out[i++] = erfinvf(0.5f);
    out[i++] = normcdff(a);
    out[i++] = exp10f(a);
    out[i++] = fminf(a, NAN);
    out[i++] = max(a, b);
    out[i++] = min(a, 0.0f);
    float s, c;
    sincosf(a, &s, &c);
    out[i++] = s;
    out[i++] = c;
    out[i++] = __frsqrt_rn(b);
    out[i++] = copysignf(b, -a);
    out[i++] = __int_as_float(0x40490fdb);
    out[i++] = fdimf(b, a);
    out[i++] = hypotf(a, b);
    out[i++] = log1pf(a);
    out[i++] = (float)rsqrt(16.0);
    out[i++] = __fmul_rn(a, b);
    out[i++] = truncf(-b);
}

extern "C" __global__ void integers(const int* x, long long* out)
{
    const int a = x[0], b = x[1];
    int i = 0;
    out[i++] = __popc(a);
    out[i++] = __ffs(a);
    out[i++] = __clz(a);
    out[i++] = __clz(0);
    out[i++] = __brev(a);
    out[i++] = __mulhi(a << 20, b << 20);
    out[i++] = __umulhi(4000000000u, 3000000000u);
    out[i++] = __mul24(a, b);
    out[i++] = __popcll(0xff00ff00ff00ff00ull);
    out[i++] = __clzll(1ll << 40);
    out[i++] = __ffsll(1ll << 40);
    out[i++] = __byte_perm(0x33221100, 0x77665544, 0x7520);
    out[i++] = __funnelshift_l(0x80000000u, 1u, 4u);
    out[i++] = __float2int_rn(2.5f);
    out[i++] = __float2int_rz(-2.9f);
    out[i++] = __float_as_int(1.0f);
    out[i++] = __double_as_longlong(1.0);
    out[i++] = __sad(a, b, 10u);
    out[i++] = min(a, b) + max(a, b);
    out[i++] = __dp4a(0x01020304, 0x05060708, 1);
    out[i++] = __hadd(a, b);
    out[i++] = __umul64hi(1ull << 63, 6ull);
    out[i++] = warpSize;
}
