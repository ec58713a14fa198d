// The nearest of K centres for each row of D floats or doubles, and the sums of the rows by their nearest centre.
//
// From the centres' mean m, squared distances are |c - m|^2 - 2 (x - m).(c - m) but for |x - m|^2, which is the same
// for all centres, so the products (x - m).(c - m) are matrix work. They are computed on tensor cores from float16
// (tensor.h), with a bound on what that can be off. A row whose two best centres are no further apart than the bound,
// and one that float16 cannot hold, is computed again for the centres in question, in float if row and centres are
// that and, where that does not tell either, in double: every row gets the label that exact arithmetic gives it, up to
// a rounding of double. Such rows wait until their chunk is through, and all warps share them.
//
// A thread block has the rows of one work. It labels them, sorts their numbers by label, and gathers each label's
// rows: sums of a few floats, added up in double in a fixed order, or of a few doubles, added up with what rounding
// takes from them.
#pragma once

#include "vispark/rows.h"

namespace nearest {

__device__ __forceinline__ float far_away() { return 1.0f / 0.0f; }

// What a distance that is NaN does.
enum Nan { NEVER, FIRST, START };

}  // namespace nearest

#if VISPARK_ALONE
#include "vispark/nearest_host.h"
#else
#include "vispark/nearest_sums.h"
#include "vispark/tensor.h"
#include "vispark/nearest_centres.h"

namespace nearest {

// -- labels ----------------------------------------------------------------------------------------------------------

// The squared distance, by a warp.
template <int D, class R, class C> __device__ __forceinline__ double exactly(const R* x, const C* c)
{
    constexpr int AHEAD = 8;
    double sum = 0;
    for (int i = threadIdx.x % 32; i < D; i += 32 * AHEAD) {
        R a[AHEAD];
        C b[AHEAD];
        #pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const bool there = i + 32 * u < D;
            a[u] = there ? x[i + 32 * u] : (R)0;
            b[u] = there ? c[i + 32 * u] : (C)0;
        }
        #pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const double difference = (double)a[u] - (double)b[u];
            sum += difference * difference;
        }
    }
    return over_warp(sum);
}

// The squared distance in float, by a warp: of D items, off by a rounding for each item of a lane and for each join.
template <int D> __device__ __forceinline__ constexpr float doubt() { return 2 * (D / 32 + 12) * 0x1p-24f; }
template <int D, class R, class C> __device__ __forceinline__ float roughly(const R* x, const C* c)
{
    constexpr int AHEAD = 13;
    float sum = 0;
    for (int i = threadIdx.x % 32; i < D; i += 32 * AHEAD) {
        float a[AHEAD], b[AHEAD];
        #pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const bool there = i + 32 * u < D;
            a[u] = there ? (float)x[i + 32 * u] : 0.0f;
            b[u] = there ? (float)c[i + 32 * u] : 0.0f;
        }
        #pragma unroll
        for (int u = 0; u < AHEAD; u++) sum = fmaf(a[u] - b[u], a[u] - b[u], sum);
    }
    return over_warp(sum);
}

// Does `take(n)` for each centre among the candidates of a row: bit 2 j + i of the q-th of four masks is 8 j + 2 q + i.
template <int N, int K, class Masks, class Take>
__device__ __forceinline__ void over_masks(Masks mask_of, bool all, Take take)
{
    for (int q = 0; q < 4; q++) {
        unsigned long long rest = all ? ~0ull >> (64 - N / 4) : mask_of(q);
        for (; rest; rest &= rest - 1) {
            const int bit = __ffsll(rest) - 1, n = 8 * (bit / 2) + 2 * q + bit % 2;
            if (n < K) take(n);
        }
    }
}

// The label of one row by its distances from its candidates, by a warp: in float where these tell, else in double.
template <int N, int K, int D, Nan nan, class R, class C, class Masks>
__device__ __forceinline__ int again(Masks mask_of, bool all, const R* x, const C* centres)
{
    int where = 0;
    if (!all && sizeof(R) == 4 && sizeof(C) == 4) {
        float least = far_away(), second = far_away();
        over_masks<N, K>(mask_of, false, [&](int n) {
            const float distance = roughly<D>(x, centres + (long long)n * D);
            if (distance < least) {
                second = least;
                least = distance;
                where = n;
            } else {
                second = fminf(second, distance);
            }
        });
        if (second > least * (1 + 2 * doubt<D>()) && second > 1e-30f && second < 1e30f) return where;
        where = 0;
    }
    double least = far_away();
    over_masks<N, K>(mask_of, all, [&](int n) {
        double distance = exactly<D>(x, centres + (long long)n * D);
        if ((nan == FIRST || (nan == START && n == 0)) && distance != distance) distance = -1;
        if (distance < least || (distance == least && n < where)) {
            least = distance;
            where = n;
        }
    });
    return where;
}

// Rows of a chunk that products leave open, as many as fit in BYTES; more are done at once.
template <int N, int BYTES> struct Waiting {
    template <int bits, class = void> struct Mask { typedef unsigned long long type; };
    template <class Any> struct Mask<16, Any> { typedef unsigned short type; };
    template <class Any> struct Mask<32, Any> { typedef unsigned type; };
    typedef typename Mask<(N <= 64 ? 16 : N <= 128 ? 32 : 64)>::type Bits;
    static constexpr int MOST = BYTES / (4 * sizeof(Bits) + 2);
    static constexpr unsigned short ALL = 0x8000;   // with a row's number: all centres are candidates

    Bits masks[MOST][4];
    unsigned short rows[MOST];
};

// Products become labels: of the rows `lane / 4` and `lane / 4 + 8` behind `number`, in the lanes with lane % 4 == 0;
// -1 for those that wait. `rows` says how many there are; `norms` are the parts of |x - m|^2 that the lane saw.
template <int N, int K, int D, Nan nan, class R, class C, class List>
__device__ __forceinline__ void label(float (&acc)[N / 2], const float (&norms)[2], const FactorsFor<R>& factors,
                                      List& waiting, int& open, int number, const R* x, int rows, const C* centres,
                                      int (&labels)[2])
{
    const int lane = threadIdx.x % 32, t = lane % 4, g = lane / 4;
    float least[2] = {far_away(), far_away()};
    #pragma unroll
    for (int j = 0; j < N / 8; j++)
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            const int n = 8 * j + 2 * t + i % 2;
            acc[4 * j + i] = fmaf(factors.factors[n], acc[4 * j + i], factors.squares[n]);
            least[i / 2] = fminf(least[i / 2], acc[4 * j + i]);
        }
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        float norm = norms[h];
        for (int offset = 1; offset < 4; offset *= 2) {
            least[h] = fminf(least[h], __shfl_xor_sync(~0u, least[h], offset));
            norm += __shfl_xor_sync(~0u, norm, offset);
        }
        const bool all = !(norm < factors.limit);       // NaN, infinity, or too large
        const float most = least[h] + factors.share * sqrtf(norm) + factors.floor;
        unsigned long long mask = 0;
        #pragma unroll
        for (int j = 0; j < N / 8; j++)
            #pragma unroll
            for (int i = 0; i < 2; i++)
                if (acc[4 * j + 2 * h + i] <= most) mask |= 1ull << (2 * j + i);
        const int bit = __ffsll(mask) - 1;
        int close = __popcll(mask), where = mask ? 8 * (bit / 2) + 2 * t + bit % 2 : N;
        for (int offset = 1; offset < 4; offset *= 2) {
            close += __shfl_xor_sync(~0u, close, offset);
            where = min(where, __shfl_xor_sync(~0u, where, offset));
        }
        labels[h] = where;
        const bool doubtful = g + 8 * h < rows && (close != 1 || all);
        unsigned todo = __ballot_sync(~0u, t == 0 && doubtful);
        if (!todo) continue;
        int place = 0;
        if (lane == 0) place = atomicAdd(&open, __popc(todo));
        place = __shfl_sync(~0u, place, 0) + __popc(todo & ((1u << 4 * g) - 1));
        const bool waits = doubtful && place < List::MOST;
        if (waits) {
            waiting.masks[place][t] = (typename List::Bits)mask;
            if (t == 0) waiting.rows[place] = (unsigned short)(number + g + 8 * h) | (all ? List::ALL : 0);
            labels[h] = -1;
        }
        todo = __ballot_sync(~0u, t == 0 && doubtful && !waits);
        while (todo) {
            const int from = __ffs(todo) - 1;
            todo &= todo - 1;
            const int row = number + from / 4 + 8 * h;
            const bool every = __shfl_sync(~0u, all, from);
            const int exact = again<N, K, D, nan>([&](int q) { return __shfl_sync(~0u, mask, from + q); }, every,
                                                  x + (long long)row * D, centres);
            if (lane == from) labels[h] = exact;
        }
    }
}

__device__ __forceinline__ float4 from(float4 mean, float scale, float4 x)
{
    return make_float4(fmaf(x.x, scale, -mean.x), fmaf(x.y, scale, -mean.y), fmaf(x.z, scale, -mean.z),
                       fmaf(x.w, scale, -mean.w));
}
// The same of what a lane copied of a row's step, as floats; `means` are those of its first column there.
__device__ __forceinline__ float4 from(const float* means, float scale, tensor::Shared at)
{
    float x[4];
    tensor::copied(x, at);
    return from(*(const float4*)means, scale, make_float4(x[0], x[1], x[2], x[3]));
}
__device__ __forceinline__ float4 from(const double* means, float scale, tensor::Shared at)
{
    float differences[4];
    #pragma unroll
    for (int half = 0; half < 2; half++) {
        double x[2];
        tensor::copied(x, at + 512 * half);
        #pragma unroll
        for (int i = 0; i < 2; i++) differences[2 * half + i] = (float)fma(x[i], (double)scale, -means[8 * half + i]);
    }
    return make_float4(differences[0], differences[1], differences[2], differences[3]);
}

// Rows [0, rows) of x get labels, `put(row, label)`. Four warps take 64 rows at a time; T / 128 such groups work side
// by side. A lane copies what it needs of the rows of AHEAD steps into `staged`, 256 numbers a step for each warp. With
// RING > 0 the image is in device memory and comes through that many stages of shared memory, two steps at a time. Rows
// that wait get none.
template <int N, int K, int D, int T, int RING, int AHEAD, Nan nan, int PRODUCTS, class R, class C, class List,
          class Put>
__device__ __forceinline__ void label_all(const R* x, int rows, const FactorsFor<R>& factors, unsigned char* staged,
                                          unsigned char* ring, unsigned long long* bars, const C* centres,
                                          List& waiting, int& open, Put put)
{
    constexpr int STEPS = (D + 15) / 16, BYTES = N * 32, TILE = T / 2;
    constexpr int WIDE = 16 / sizeof(R), PIECES = 4 / WIDE, SLOT = 256 * sizeof(R);
    const int lane = threadIdx.x % 32, t = lane % 4, g = lane / 4;
    const int tiles = (rows + TILE - 1) / TILE, first_row = threadIdx.x / 32 * 16;
    if (tiles == 0) return;
#if VISPARK_WARPGROUPS
    constexpr int PAIRS = (STEPS + 1) / 2;
    const int total = PAIRS * tiles;
    constexpr int LAG = RING > 3 ? 2 : 1;           // a stage is filled anew when all warps are well through with it
    const unsigned full = tensor::shared_of(bars), empty = full + 8 * RING;
    int stage = 0, older = 0, refilled = 0, next_image = RING % PAIRS, done = 0;
    unsigned phase = 0, refill_phase = 0;
    if (RING) {
        if (threadIdx.x == 0) {
            for (int i = 0; i < RING; i++) {
                tensor::prepare(full + 8 * i, 1);
                tensor::prepare(empty + 8 * i, T / 32);
            }
            tensor::prepared();
        }
        __syncthreads();
        if (threadIdx.x == 0)
            for (int i = 0; i < RING && i < total; i++)
                tensor::bring(tensor::shared_of(ring) + i * 2 * BYTES, factors.image + i % PAIRS * 2 * BYTES, 2 * BYTES,
                              full + 8 * i);
    }
#endif
    // The rows of the step that is copied next, and where it goes.
    const tensor::Shared slots = tensor::shared_of(staged) + threadIdx.x / 32 * AHEAD * SLOT + lane * 16;
    int copy_step = 0, copy_row = first_row, filled = 0, used = 0;
    const R *one, *other;
    auto start = [&] {
        one = x + (long long)min(copy_row + g, rows - 1) * D + WIDE * t;
        other = x + (long long)min(copy_row + g + 8, rows - 1) * D + WIDE * t;
    };
    auto copy_next = [&] {
        #pragma unroll
        for (int piece = 0; piece < PIECES; piece++) {
            const bool there = D % 16 == 0 || copy_step < STEPS - 1 || 8 * piece + WIDE * t < D % 16;
            const tensor::Shared to = slots + filled * SLOT + piece * 512;
            tensor::copy(to, there ? one + 8 * piece : x, there);
            tensor::copy(to + SLOT / 2, there ? other + 8 * piece : x, there);
        }
        tensor::end_copies();
        if (++filled == AHEAD) filled = 0;
        one += 16;
        other += 16;
        if (++copy_step == STEPS) {
            copy_step = 0;
            copy_row += TILE;
            start();
        }
    };
    start();
    for (int i = 0; i < AHEAD; i++) copy_next();
    float acc[N / 2];
    tensor::Rows<PRODUCTS> left;
    for (int tile = 0; tile < tiles; tile++) {
        float norms[2] = {0, 0};
        auto advance = [&](int step, bool first) {
            tensor::await_copies<AHEAD - 1>();
            const R* const means = factors.means + 16 * step + WIDE * t;
            const float4 a = from(means, factors.scale, slots + used * SLOT);
            const float4 b = from(means, factors.scale, slots + used * SLOT + SLOT / 2);
            if (++used == AHEAD) used = 0;
            norms[0] = fmaf(a.x, a.x, fmaf(a.y, a.y, fmaf(a.z, a.z, fmaf(a.w, a.w, norms[0]))));
            norms[1] = fmaf(b.x, b.x, fmaf(b.y, b.y, fmaf(b.z, b.z, fmaf(b.w, b.w, norms[1]))));
            // Products are on their way while the next step's rows are read; until they are there, their factors stay.
            tensor::end<0>();
            left.set(a, b);
            copy_next();
#if VISPARK_WARPGROUPS
            if (RING && first) tensor::wait(full + 8 * stage, phase);
            const unsigned char* at = RING ? ring + (2 * stage + !first) * BYTES : factors.image + step * BYTES;
            tensor::multiply<N>(acc, left, at, step > 0);
            if (RING && first) {
                if (lane == 0 && step > 0) tensor::arrive(empty + 8 * older);
                if (threadIdx.x == 0 && ++done > LAG && done - 1 - LAG + RING < total) {
                    tensor::wait(empty + 8 * refilled, refill_phase);
                    tensor::bring(tensor::shared_of(ring) + refilled * 2 * BYTES,
                                  factors.image + next_image * 2 * BYTES, 2 * BYTES, full + 8 * refilled);
                    if (++refilled == RING) { refilled = 0; refill_phase ^= 1; }
                    if (++next_image == PAIRS) next_image = 0;
                }
            }
            if (RING && (!first || step == STEPS - 1)) {
                older = stage;
                if (++stage == RING) { stage = 0; phase ^= 1; }
            }
#else
            tensor::multiply<N>(acc, left, factors.image + step * BYTES, step > 0);
#endif
        };
        for (int step = 0; step + 1 < STEPS; step += 2) {
            advance(step, true);
            advance(step + 1, false);
        }
        if (STEPS % 2) advance(STEPS - 1, true);
        tensor::end<0>();
#if VISPARK_WARPGROUPS
        if (RING && lane == 0) tensor::arrive(empty + 8 * older);
        #pragma unroll
        for (int i = 0; i < N / 2; i++) asm volatile("" : "+f"(acc[i])::"memory");
#endif
        const int row = tile * TILE + first_row;
        int labels[2];
        label<N, K, D, nan>(acc, norms, factors, waiting, open, row, x, rows - row, centres, labels);
        if (t == 0 && row + g < rows && labels[0] >= 0) put(row + g, labels[0]);
        if (t == 0 && row + g + 8 < rows && labels[1] >= 0) put(row + g + 8, labels[1]);
    }
    tensor::await_copies<0>();
#if VISPARK_WARPGROUPS
    if (RING) {
        __syncthreads();
        if (threadIdx.x == 0)
            for (int i = 0; i < 2 * RING; i++) tensor::forget(full + 8 * i);
    }
#endif
}

// The label of a row whose scores lie in four neighbouring lanes; -1 if several `candidates` are left.
template <int N>
__device__ __forceinline__ int nearest_by(const Factors& factors, float (&score)[N / 4], float norm,
                                          unsigned long long& candidates)
{
    const int t = tensor::thread() % 4;
    float least = far_away();
    #pragma unroll
    for (int i = 0; i < N / 4; i++) {
        const int n = i / 2 * 8 + 2 * t + i % 2;
        score[i] = fmaf(factors.factors[n], score[i], factors.squares[n]);
        least = fminf(least, score[i]);
    }
    for (int offset = 1; offset < 4; offset *= 2) least = fminf(least, __shfl_xor_sync(~0u, least, offset));
    const float most = least + factors.share * sqrtf(norm) + factors.floor;
    typename Waiting<N, 1024>::Bits mask = 0;
    #pragma unroll
    for (int i = 0; i < N / 4; i++)
        if (score[i] <= most) mask |= (decltype(mask))1 << i;
    candidates = mask;
    const int bit = __ffsll(candidates) - 1;
    int nearest = mask ? __popcll(candidates) << 16 | (bit / 2 * 8 + 2 * t + bit % 2) : 0;
    for (int offset = 1; offset < 4; offset *= 2) nearest += __shfl_xor_sync(~0u, nearest, offset);
    return nearest >> 16 == 1 ? nearest & 0xffff : -1;
}

// -- kernels ---------------------------------------------------------------------------------------------------------

// All that shapes a kernel: N is K rounded up to a multiple of 8, D numbers are a multiple of 16 bytes. T threads; RING
// stages of two steps of the image in shared memory, or 0 where it lies there as a whole; CHUNK rows at a time;
// STEPS_AHEAD steps of rows on their way while products are taken, and ROWS_AHEAD rows while sums are; rows are of R,
// centres of C; PRODUCTS with both parts of a row, or with the first.
template <int N, int K, int D, int T, int RING, int CHUNK, int STEPS_AHEAD, int ROWS_AHEAD, Nan nan, class R, class C,
          int PRODUCTS>
struct Shape {
    static constexpr int STEPS = (D + 15) / 16, IMAGE = (RING ? (STEPS + 1) / 2 * 2 : STEPS) * N * 32;
    // In front of other things in device memory, where there is a ring: the image, the centres' numbers and their mean.
    static constexpr int SCRATCH = IMAGE + NUMBERS * N * 4 + STEPS * 16 * sizeof(R);

    typedef Waiting<N, (PRODUCTS == 1 && RING ? 4 : 2) * CHUNK> List;

    struct SharedStorage {
        unsigned char image[RING ? RING * 2 * N * 32 : IMAGE], staged[T * 8 * STEPS_AHEAD * sizeof(R)];
        R means[STEPS * 16];
        float numbers[NUMBERS * N], greatest[NUMBERS];
        unsigned long long bars[RING ? 2 * RING : 1];
        union {                                 // rows wait before there is an order
            unsigned short order[CHUNK];
            List waiting;
        };
        unsigned char labels[CHUNK];
        int places[T / 32 * K], start[K + 1], open;
        long long counts[K];
    };

    template <int threads> static __device__ void set_means(R* means, const C* centres)
    {
        for (int column = threadIdx.x; column < STEPS * 16; column += threads)
            means[column] = column < D ? mean_of<K, D, R>(centres, column) : 0;
        __syncthreads();
    }

    // One block of 256 threads for each 8 centres.
    static __device__ void prepare(unsigned char* scratch, const C* centres)
    {
        __shared__ R means[STEPS * 16];
        set_means<256>(means, centres);
        float* const numbers = (float*)(scratch + IMAGE);
        if (blockIdx.x == 0)
            for (int column = threadIdx.x; column < STEPS * 16; column += 256)
                ((R*)(numbers + NUMBERS * N))[column] = means[column];
        factorise<N, K, D, AsMultiplied<N, R>>((unsigned short*)scratch, numbers, means, centres,
                                               blockIdx.x * 8 + threadIdx.x / 32, 0, STEPS);
    }

    // Products are added up in chains of CHAIN steps; `storage` has what SharedStorage does of the centres, and of `steps`
    // of the image, from the first on.
    template <int CHAIN = STEPS, class Place = AsMultiplied<N, R>, class Any>
    static __device__ FactorsFor<R> factors(Any& storage, const unsigned char* scratch, const C* centres, int first = 0,
                                         int steps = STEPS)
    {
        if (RING) {
            const float* const numbers = (const float*)(scratch + IMAGE);
            for (int i = threadIdx.x; i < NUMBERS * N; i += T) storage.numbers[i] = numbers[i];
            const R* const means = (const R*)(numbers + NUMBERS * N);
            for (int i = threadIdx.x; i < STEPS * 16; i += T) storage.means[i] = means[i];
        } else {
            set_means<T>(storage.means, centres);
            for (int n = threadIdx.x / 32; n < N; n += T / 32)
                factorise<N, K, D, Place>((unsigned short*)storage.image, storage.numbers, storage.means, centres, n,
                                          first, steps);
            tensor::publish();
        }
        __syncthreads();
        if (threadIdx.x < 32)
            for (int i = 0; i < POWER; i++) {
                float most = 0;
                for (int n = threadIdx.x; n < K; n += 32) most = fmaxf(most, storage.numbers[i * N + n]);
                most = largest_of_warp(most);
                if (threadIdx.x == 0) storage.greatest[i] = most;
            }
        __syncthreads();
        FactorsFor<R> factored = {RING ? scratch : storage.image, storage.means, storage.numbers + SQUARE * N,
                            storage.numbers + POWER * N, 0, 0, 0, 0};
        set_bounds<D, CHAIN, PRODUCTS>(factored, storage.greatest[SQUARE], storage.greatest[LACK],
                                       storage.greatest[TOP]);
        for (int n = threadIdx.x; n < N; n += T)
            storage.numbers[POWER * N + n] = -2 / (factored.scale * storage.numbers[POWER * N + n]);
        for (int i = threadIdx.x; i < STEPS * 16; i += T) storage.means[i] *= factored.scale;
        __syncthreads();
        return factored;
    }

    template <class Put>
    static __device__ void label(const R* x, int rows, SharedStorage& storage, const FactorsFor<R>& factors,
                                 const C* centres, Put put)
    {
        if (threadIdx.x == 0) storage.open = 0;
        __syncthreads();
        label_all<N, K, D, T, RING, STEPS_AHEAD, nan, PRODUCTS>(x, rows, factors, storage.staged, storage.image,
                                                                storage.bars, centres, storage.waiting, storage.open,
                                                                put);
        __syncthreads();
        const List& waiting = storage.waiting;
        const int waits = min(storage.open, (int)List::MOST);
        for (int i = threadIdx.x / 32; i < waits; i += T / 32) {
            const int row = waiting.rows[i] & (List::ALL - 1);
            const int exact = again<N, K, D, nan>([&](int q) { return (unsigned long long)waiting.masks[i][q]; },
                                                  waiting.rows[i] & List::ALL, x + (long long)row * D, centres);
            if (threadIdx.x % 32 == 0) put(row, exact);
        }
    }

    // The labels of a work's rows.
    static __device__ void labels(const R* x, long long rows, SharedStorage& storage, const unsigned char* scratch,
                                  const C* centres, long long* out)
    {
        const FactorsFor<R> factored = factors(storage, scratch, centres);
        for (long long first = 0; first < rows; first += CHUNK) {
            const int count = (int)min((long long)CHUNK, rows - first);
            label(x + first * D, count, storage, factored, centres,
                  [&](int row, int label) { out[first + row] = label; });
            __syncthreads();
        }
    }

    // The labels of a chunk after the other in storage.labels; `then(first, count)` is done by all threads for each.
    template <class Then>
    static __device__ void chunks(const R* x, long long rows, SharedStorage& storage, const unsigned char* scratch,
                                  const C* centres, Then then)
    {
        const FactorsFor<R> factored = factors(storage, scratch, centres);
        for (long long first = 0; first < rows || first == 0; first += CHUNK) {
            const int count = (int)min((long long)CHUNK, rows - first);
            label(x + first * D, count, storage, factored, centres,
                  [&](int row, int label) { storage.labels[row] = (unsigned char)label; });
            __syncthreads();
            then(first, count);
            __syncthreads();
        }
    }

    // The sums of a work's rows by label, and in storage.counts how many there are; no sums where there is no place for
    // them. `beside(first)` is done by all threads for each chunk, whose rows are then in order.
    template <class Beside>
    static __device__ void fold(const R* x, long long rows, SharedStorage& storage, const unsigned char* scratch,
                                const C* centres, typename Sums<R>::type* sums, Beside beside)
    {
        for (int k = threadIdx.x; k < K; k += T) storage.counts[k] = 0;
        chunks(x, rows, storage, scratch, centres, [&](long long first, int count) {
            sort<K, T>(storage.labels, count, storage.order, storage.places, storage.start);
            for (int k = threadIdx.x; k < K; k += T) storage.counts[k] += storage.start[k + 1] - storage.start[k];
            if (sums)
                gather<K, D, T, ROWS_AHEAD>(x + first * D, [&](int i) { return storage.order[i]; }, storage.start, sums,
                                            first == 0);
            beside(first);
        });
    }
    static __device__ void fold(const R* x, long long rows, SharedStorage& storage, const unsigned char* scratch,
                                const C* centres, typename Sums<R>::type* sums)
    {
        fold(x, rows, storage, scratch, centres, sums, [](long long) {});
    }
};

}  // namespace nearest

#if VISPARK_ONE_PASS
#include "vispark/nearest_roles.h"
#if VISPARK_WARPGROUPS
#include "vispark/nearest_pair.h"
#endif
#endif
#endif

// Thread blocks that share a work, on GPUs where they can.
#if VISPARK_WARPGROUPS
#define VISPARK_CLUSTER(blocks) __cluster_dims__(blocks, 1, 1)
#define VISPARK_WORK(blocks) (blockIdx.x / blocks)
#else
#define VISPARK_CLUSTER(blocks)
#define VISPARK_WORK(blocks) blockIdx.x
#endif

namespace nearest {

// What a work leaves beside the sums: `put(k, count)` for each centre; the least and the greatest label that occurs.
template <int K, class Storage, class Put> __device__ __forceinline__ void for_each(const Storage& storage, Put put)
{
    for (int k = vispark::own_place(); k < K; k += vispark::places()) put(k, storage.counts[k]);
}
template <int K, class Storage> __device__ __forceinline__ long long least(const Storage& storage, long long more = 0)
{
    for (int k = 0; k < K; k++)
        if (storage.counts[k]) return k + more;
    return Minimum::identity<long long>();
}
template <int K, class Storage>
__device__ __forceinline__ long long greatest(const Storage& storage, long long more = 0)
{
    for (int k = K - 1; k >= 0; k--)
        if (storage.counts[k]) return k + more;
    return Maximum::identity<long long>();
}

// Cells that nothing was folded into yet.
template <class Op, class A> __device__ __forceinline__ void start(A* cells, int count)
{
    for (int i = vispark::own_place(); i < count; i += vispark::places()) cells[i] = Op::template identity<A>();
}

}  // namespace nearest
