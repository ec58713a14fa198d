// What matrix work on tensor cores needs of PTX: products of float16, barriers in shared memory, bulk copies.
//
// A row's float is carried as two float16, its leading 11 bits and the next 11: x = high + low to 2^-22 of x, and to
// 2^-25 where float16 is no finer. The other factor's is one.
#pragma once

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define VISPARK_WARPGROUPS 1
#else
#define VISPARK_WARPGROUPS 0
#endif
// Barriers in shared memory, bulk copies and registers that warps leave to others; the host stands in for these.
#if VISPARK_WARPGROUPS || defined(VISPARK_AS_ON_HOPPER)
#define VISPARK_ONE_PASS 1
#else
#define VISPARK_ONE_PASS 0
#endif

#ifdef __CUDA_ON_HOST__
#include "vispark/tensor_host.h"
#else
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

}  // namespace tensor
#endif

namespace tensor {

__device__ __forceinline__ void split(float first, float second, unsigned& high, unsigned& low)
{
    high = pack(first, second);
    low = pack(first - first_of(high), second - second_of(high));
}

// -- products --------------------------------------------------------------------------------------------------------

// Rows of 16 numbers each as a warp's lanes hold them: lane 4 g + t has of the rows g and g + 8 four numbers. Which is
// free as long as both factors have the same: it is those of which 16 bytes at a time lie side by side in memory, for
// floats 4 t to 4 t + 3, for doubles 2 t, 2 t + 1, 2 t + 8 and 2 t + 9.
// PARTS is 2, or 1 for the leading 11 bits alone.
template <int PARTS> struct Rows {
    unsigned high[4], low[4];
    __device__ __forceinline__ Rows() {}
    __device__ __forceinline__ void set(float4 a, float4 b)
    {
        if (PARTS == 1) {
            high[0] = pack(a.x, a.y);
            high[1] = pack(b.x, b.y);
            high[2] = pack(a.z, a.w);
            high[3] = pack(b.z, b.w);
            return;
        }
        split(a.x, a.y, high[0], low[0]);
        split(b.x, b.y, high[1], low[1]);
        split(a.z, a.w, high[2], low[2]);
        split(b.z, b.w, high[3], low[3]);
    }
};

// Where of the other factor's step of 16 columns (N rows, 32 N bytes in all) the number in row `n` and column
// `c` lies, in units of 2 bytes: tiles of 8 rows by 8 columns, row by row, two tiles side by side. WIDE numbers of the
// rows it is multiplied with are 16 bytes.
template <int N, int WIDE> __device__ __forceinline__ int place_of(int n, int c)
{
    const int t = c / 4, i = c % 4, column = WIDE == 2 ? c : i < 2 ? 2 * t + i : 6 + 2 * t + i;
    return (n / 8 * 2 + column / 8) * 64 + n % 8 * 8 + column % 8;
}

#if VISPARK_WARPGROUPS
// acc (+)= rows x step, for the 64 rows of four warps: m64nNk16. Written for each width by the translator.
template <int N> struct Wgmma;

__device__ __forceinline__ void begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
template <int pending> __device__ __forceinline__ void end()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}
template <int N, int PARTS>
__device__ __forceinline__ void multiply(float (&acc)[N / 2], const Rows<PARTS>& rows, const unsigned char* step,
                                         bool more)
{
    const unsigned long long b = (unsigned long long)(shared_of(step) >> 4 & 0x3fff)
                                 | 128ull >> 4 << 16 | 256ull >> 4 << 32;
    begin();
    Wgmma<N>::of(acc, rows.high, b, more);
    if (PARTS == 2) Wgmma<N>::of(acc, rows.low, b, 1);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// What was written to shared memory may now be read by the tensor cores.
__device__ __forceinline__ void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#else
template <int pending> __device__ __forceinline__ void end() {}
template <int N, int PARTS>
__device__ __forceinline__ void multiply(float (&acc)[N / 2], const Rows<PARTS>& rows, const unsigned char* step,
                                         bool more)
{
    const unsigned* lane = (const unsigned*)step + threadIdx.x % 32;
    #pragma unroll
    for (int j = 0; j < N / 8; j++) {
        float* four = acc + 4 * j;
        if (!more) four[0] = four[1] = four[2] = four[3] = 0.0f;
        const unsigned high[2] = {lane[64 * j], lane[64 * j + 32]};
        mma(four, rows.high, high);
        if (PARTS == 2) mma(four, rows.low, high);
    }
}
__device__ __forceinline__ void publish() {}
#endif

// -- barriers and copies ---------------------------------------------------------------------------------------------

#if VISPARK_WARPGROUPS
__device__ __forceinline__ void prepare(unsigned bar, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals));
}
__device__ __forceinline__ void forget(unsigned bar)
{
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void prepared() { asm volatile("fence.mbarrier_init.release.cluster;"); }
__device__ __forceinline__ void arrive(unsigned bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void wait(unsigned bar, unsigned parity)
{
    asm volatile("{\n.reg .pred done;\nagain: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n}\n" ::"r"(bar), "r"(parity) : "memory");
}
// Copy to shared memory, in the background; the barrier is told when all bytes are there.
__device__ __forceinline__ void bring(unsigned to, const void* from, unsigned bytes, unsigned bar)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(to), "l"(from), "r"(bytes), "r"(bar) : "memory");
}
// The same of memory that is read once: it is the first to leave the caches.
__device__ __forceinline__ void bring_once(unsigned to, const void* from, unsigned bytes, unsigned bar)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, "
                 "[%3], %4;" ::"r"(to), "l"(from), "r"(bytes), "r"(bar), "l"(0x12F0000000000000ull) : "memory");
}

// The same in two: what a barrier is to wait for, and a copy that it is told of.
__device__ __forceinline__ void expect(unsigned bar, unsigned bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
__device__ __forceinline__ void add_once(unsigned to, const void* from, unsigned bytes, unsigned bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, "
                 "[%3], %4;" ::"r"(to), "l"(from), "r"(bytes), "r"(bar), "l"(0x12F0000000000000ull) : "memory");
}

// -- clusters --------------------------------------------------------------------------------------------------------

__device__ __forceinline__ unsigned rank()
{
    unsigned number;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(number));
    return number;
}
__device__ __forceinline__ void join_cluster()
{
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
// The address, in the shared memory of another block of the cluster, of what lies at `mine` in the own.
__device__ __forceinline__ unsigned there_of(const void* mine, unsigned rank)
{
    unsigned at;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(shared_of(mine)), "r"(rank));
    return at;
}
__device__ __forceinline__ int there(const int* mine, unsigned rank)
{
    int value;
    asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(value) : "r"(there_of(mine, rank)) : "memory");
    return value;
}
// A barrier of any block of the cluster is told of all that was written before, in shared memory of either; who waits
// for it sees that.
__device__ __forceinline__ void arrive_in_cluster(const void* bar, unsigned rank)
{
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(there_of(bar, rank)) : "memory");
}
__device__ __forceinline__ void wait_for_cluster(unsigned bar, unsigned parity)
{
    asm volatile("{\n.reg .pred done;\nagain: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], "
                 "%1;\n@!done bra again;\n}\n" ::"r"(bar), "r"(parity) : "memory");
}
// Stores there, which that block's barrier is told of.
__device__ __forceinline__ void send(float* mine, unsigned rank, float4 v, const void* bar)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];"
                 ::"r"(there_of(mine, rank)), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(there_of(bar, rank))
                 : "memory");
}
__device__ __forceinline__ void send(float* mine, unsigned rank, float2 v, const void* bar)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
                     there_of(mine, rank)), "f"(v.x), "f"(v.y), "r"(there_of(bar, rank)) : "memory");
}
__device__ __forceinline__ void send(float* mine, unsigned rank, float v, const void* bar)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(
                     there_of(mine, rank)), "f"(v), "r"(there_of(bar, rank)) : "memory");
}
__device__ __forceinline__ void send(unsigned long long* mine, unsigned rank, unsigned long long v, const void* bar)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(
                     there_of(mine, rank)), "l"(v), "r"(there_of(bar, rank)) : "memory");
}
__device__ __forceinline__ void arrive_there(const void* bar, unsigned rank)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(there_of(bar, rank)) : "memory");
}

// -- registers -------------------------------------------------------------------------------------------------------

// A warpgroup waits until it may have so many registers a thread, or goes on with fewer.
template <int registers> __device__ __forceinline__ void take_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers> __device__ __forceinline__ void leave_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
// The thread's number, read anew, so that what follows from it takes no registers meanwhile.
__device__ __forceinline__ int thread()
{
    int number;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(number));
    return number;
}
#endif

}  // namespace tensor
