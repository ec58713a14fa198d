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
// d += 64 rows of four warps x 128 columns of 8 numbers of TF32, whose description is `b`.
__device__ __forceinline__ void add_products(float (&d)[64], unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                             unsigned long long b)
{
    asm volatile("{.reg .pred more;\nsetp.eq.u32 more, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
                 "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, "
                 "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "
                 "%62, %63}, "
                 "{%64, %65, %66, %67}, %68, more, 1, 1;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                   "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),
                   "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),
                   "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),
                   "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
                   "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]),
                   "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]),
                   "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),
                   "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
}
// The same of 64 columns.
__device__ __forceinline__ void add_products(float (&d)[32], unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                             unsigned long long b)
{
    asm volatile("{.reg .pred more;\nsetp.eq.u32 more, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
                 "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "{%32, %33, %34, %35}, %36, more, 1, 1;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                   "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),
                   "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),
                   "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),
                   "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
}
// The same of rows whose description is `a`.
__device__ __forceinline__ void add_products(float (&d)[64], unsigned long long a, unsigned long long b)
{
    asm volatile("{.reg .pred more;\nsetp.eq.u32 more, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
                 "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, "
                 "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "
                 "%62, %63}, "
                 "%64, %65, more, 1, 1;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                   "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),
                   "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),
                   "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),
                   "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
                   "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]),
                   "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]),
                   "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),
                   "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
                 : "l"(a), "l"(b));
}
__device__ __forceinline__ void add_products(float (&d)[32], unsigned long long a, unsigned long long b)
{
    asm volatile("{.reg .pred more;\nsetp.eq.u32 more, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
                 "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "%32, %33, more, 1, 1;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                   "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),
                   "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),
                   "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),
                   "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
                 : "l"(a), "l"(b));
}
__device__ __forceinline__ unsigned long long described(const void* step)
{
    return (unsigned long long)(shared_of(step) >> 4 & 0x3fff) | 128ull >> 4 << 16 | 256ull >> 4 << 32;
}
// See tensor.h. The products go on while the thread does.
template <int COUNT>
__device__ __forceinline__ void multiply_split(float (&acc)[COUNT], const Halves (&rows)[4], const unsigned* high,
                                               const unsigned* low)
{
    const unsigned long long leading = described(high);
    begin();
    add_products(acc, rows[0].low, rows[1].low, rows[2].low, rows[3].low, leading);
    add_products(acc, rows[0].high, rows[1].high, rows[2].high, rows[3].high, described(low));
    add_products(acc, rows[0].high, rows[1].high, rows[2].high, rows[3].high, leading);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// d += 64 rows of four warps x N columns of 8 numbers of TF32. Written for each width by the translator.
template <int N> struct SplitWgmma;

template <int N, int HALF>
__device__ __forceinline__ void multiply_parts(float (&acc)[N / 2], const Halves (&rows)[4], const unsigned* high,
                                               const unsigned* low)
{
    constexpr unsigned long long strides = (unsigned long long)(HALF * 4 >> 4) << 16 | 128ull >> 4 << 32;
    const unsigned long long leading = (shared_of(high) >> 4 & 0x3fff) | strides;
    const unsigned long long next = (shared_of(low) >> 4 & 0x3fff) | strides;
    const unsigned above[4] = {rows[0].high, rows[1].high, rows[2].high, rows[3].high};
    const unsigned below[4] = {rows[0].low, rows[1].low, rows[2].low, rows[3].low};
    begin();
    SplitWgmma<N>::of(acc, below, leading, 1);
    SplitWgmma<N>::of(acc, above, next, 1);
    SplitWgmma<N>::of(acc, above, leading, 1);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Of rows the leading parts alone.
template <int STEPS, int STEP, int COUNT>
__device__ __forceinline__ void multiply_halved(float (&acc)[COUNT], const unsigned* rows, const unsigned* high,
                                                const unsigned* low)
{
    begin();
    VISPARK_UNROLL
    for (int step = 0; step < STEPS; ++step) {
        const unsigned long long leading = described(rows + step * STEP);
        add_products(acc, leading, described(low + step * STEP));
        add_products(acc, leading, described(high + step * STEP));
    }
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
// Groups of THREADS meet, each at a barrier of the multiprocessor's own: of shared memory it would take twice as long.
template <int THREADS> __device__ __forceinline__ void meet(unsigned, int group, unsigned)
{
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(THREADS) : "memory");
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
__device__ __forceinline__ unsigned there_of(const void* local, unsigned rank)
{
    unsigned at;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(shared_of(local)), "r"(rank));
    return at;
}
__device__ __forceinline__ int there(const int* local, unsigned rank)
{
    int value;
    asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(value) : "r"(there_of(local, rank)) : "memory");
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
__device__ __forceinline__ void send(float* local, unsigned rank, float4 v, const void* bar)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];"
                 ::"r"(there_of(local, rank)), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(there_of(bar, rank))
                 : "memory");
}
__device__ __forceinline__ void send(float* local, unsigned rank, float2 v, const void* bar)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
                     there_of(local, rank)), "f"(v.x), "f"(v.y), "r"(there_of(bar, rank)) : "memory");
}
__device__ __forceinline__ void send(float* local, unsigned rank, float v, const void* bar)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(
                     there_of(local, rank)), "f"(v), "r"(there_of(bar, rank)) : "memory");
}
__device__ __forceinline__ void send(unsigned long long* local, unsigned rank, unsigned long long v, const void* bar)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(
                     there_of(local, rank)), "l"(v), "r"(there_of(bar, rank)) : "memory");
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
