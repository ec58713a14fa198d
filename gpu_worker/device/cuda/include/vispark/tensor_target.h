// What matrix work on tensor cores needs of PTX: products of float16, copies to shared memory. The host's header of this
// name has the same for a CPU.
#pragma once

// Whether there are products of TF32.
#if __CUDA_ARCH__ >= 800
#define VISPARK_TF32 1
#else
#define VISPARK_TF32 0
#endif

namespace tensor {

// An address in shared memory.
typedef unsigned Shared;
__device__ __forceinline__ Shared shared_of(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ __forceinline__ unsigned pack(float first, float second)
{
    unsigned pair;
#if __CUDA_ARCH__ < 800
    asm("{.reg .b16 a, b; cvt.rn.f16.f32 a, %1; cvt.rn.f16.f32 b, %2; mov.b32 %0, {a, b};}"
        : "=r"(pair) : "f"(first), "f"(second));
#else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
#endif
    return pair;
}
__device__ __forceinline__ float first_of(unsigned pair)
{
    float value;
    asm("{.reg .b16 a, b; mov.b32 {a, b}, %1; cvt.f32.f16 %0, a;}" : "=f"(value) : "r"(pair));
    return value;
}
__device__ __forceinline__ float second_of(unsigned pair)
{
    float value;
    asm("{.reg .b16 a, b; mov.b32 {a, b}, %1; cvt.f32.f16 %0, b;}" : "=f"(value) : "r"(pair));
    return value;
}

// 16 bytes of memory that is read once, past the first cache.
__device__ __forceinline__ void stream(float (&v)[4], const float* p)
{
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "l"(p));
}
__device__ __forceinline__ void stream(double (&v)[2], const double* p)
{
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v2.f64 {%0, %1}, [%2];" : "=d"(v[0]), "=d"(v[1]) : "l"(p));
}

// 16 bytes to shared memory, in the background; zeros if `there` does not hold. Groups of copies end in their order. GPUs
// before Ampere copy there and then.
#if __CUDA_ARCH__ < 800
__device__ __forceinline__ void copy(Shared to, const void* from, bool there)
{
    const float4 v = there ? *(const float4*)from : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
                 : "memory");
}
__device__ __forceinline__ void end_copies() {}
template <int pending> __device__ __forceinline__ void await_copies() {}
#else
__device__ __forceinline__ void copy(Shared to, const void* from, bool there)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}
__device__ __forceinline__ void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int pending> __device__ __forceinline__ void await_copies()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}
#endif
__device__ __forceinline__ void copied(float (&v)[4], Shared from)
{
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "r"(from) : "memory");
}
__device__ __forceinline__ void copied(double (&v)[2], Shared from)
{
    asm volatile("ld.shared.v2.f64 {%0, %1}, [%2];" : "=d"(v[0]), "=d"(v[1]) : "r"(from) : "memory");
}

// acc += 16 rows x 8 columns, of 16 numbers each; in two halves on GPUs before Ampere.
#if __CUDA_ARCH__ < 800
__device__ __forceinline__ void half(float* acc, unsigned a, unsigned below, unsigned b)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3]) : "r"(a), "r"(below), "r"(b));
}
__device__ __forceinline__ void mma(float* acc, const unsigned (&a)[4], const unsigned (&b)[2])
{
    half(acc, a[0], a[1], b[0]);
    half(acc, a[2], a[3], b[1]);
}
#else
__device__ __forceinline__ void mma(float* acc, const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

// -- float32 as parts of TF32 ----------------------------------------------------------------------------------------

// A float as two numbers of 11 bits: its leading ones, rounded, and the next, of which products read no more. What is not
// finite, or near to it, has none: its products are not finite either. SPLIT_MOST is beyond all others.
constexpr float SPLIT_MOST = 3.0e38f;
struct Halves {
    unsigned high, low;
    // The next ones doubled, if asked for.
    template <bool DOUBLED = false> __device__ __forceinline__ void set(float x)
    {
        high = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
        const float rest = x - __uint_as_float(high);
        low = __float_as_uint(DOUBLED ? rest + rest : rest);
    }
};

// acc += 16 rows x 8 columns, of 8 numbers each: one of the three products of parts, of which the last is that of the
// leading ones. Each waits for what is added to the same numbers, so that those of several come in turn. Lane 4 g + t has of the
// rows g and g + 8, and of the other factor's column g, the numbers t and t + 4; of the sums rows g and g + 8, columns
// 2 t and 2 t + 1.
#if __CUDA_ARCH__ >= 800
__device__ __forceinline__ void mma(float (&acc)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                                    unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
template <int PART>
__device__ __forceinline__ void multiply_part(float (&acc)[4], const Halves (&a)[4], const Halves (&b)[2])
{
    if (PART == 0)
        mma(acc, a[0].low, a[1].low, a[2].low, a[3].low, b[0].high, b[1].high);
    else if (PART == 1)
        mma(acc, a[0].high, a[1].high, a[2].high, a[3].high, b[0].low, b[1].low);
    else
        mma(acc, a[0].high, a[1].high, a[2].high, a[3].high, b[0].high, b[1].high);
}
#else
template <int PART>
__device__ __forceinline__ void multiply_part(float (&acc)[4], const Halves (&a)[4], const Halves (&b)[2]) {}
#endif

}  // namespace tensor
