// What Hopper has for matrix work beyond tensor.h, in PTX: products by four warps, barriers in shared memory, bulk copies,
// clusters, and registers that warps leave to others.
#pragma once

namespace tensor {

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

// -- barriers and copies ---------------------------------------------------------------------------------------------

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

}  // namespace tensor
