// The nearest of K centres for each row of D floats, and the sums of the rows by their nearest centre.
//
// Squared distances are |c|^2 - 2 x.c but for |x|^2, which is the same for all centres, so the products x.c, taken from
// the centres' mean, are matrix work. They are computed on tensor cores from pairs of bfloat16 (tensor.h), with a bound
// on what that can be off. A row whose two best centres are no further apart than the bound is computed again for the
// centres in question, in float and, where that does not tell either, in double: every row gets the label that exact
// arithmetic gives it, up to a rounding of double.
//
// A thread block has the rows of one work. It labels them, sorts their numbers by label, and gathers each label's rows:
// sums of a few floats, added up in double in a fixed order.
#pragma once

#include "vispark/rows.h"

namespace nearest {

__device__ __forceinline__ float far_away() { return 1.0f / 0.0f; }

// What a distance that is NaN does.
enum Nan { NEVER, FIRST };

}  // namespace nearest

#ifdef VISPARK_ON_HOST
#include "vispark/nearest_host.h"
#else
#include "vispark/nearest_sums.h"
#include "vispark/tensor.h"

namespace nearest {

// -- centres ---------------------------------------------------------------------------------------------------------

// The centres as factors of products, and what is added to them.
struct Factors {
    const unsigned char* image;     // steps of 16 columns each, as tensor.h has them
    const float* squares;           // |c|^2 - |mean|^2; infinite for those that only fill the image up
    float spread, slack;            // the largest |c - mean|^2; what rounding the squares can be off
};

// A column's mean over the centres; 0 where that is not finite.
template <int K, int D, class C> __device__ __forceinline__ float mean_of(const C* centres, int column)
{
    float sum = 0;
    #pragma unroll 8
    for (int k = 0; k < K; k++) sum += (float)centres[k * D + column];
    sum /= K;
    return sum - sum == 0.0f ? sum : 0.0f;
}

// One number of the image; adds to the squares of its centre.
template <int N, int K, int D, class C>
__device__ __forceinline__ void put(unsigned short* image, const C* centres, int n, int column, float mean,
                                    double& square, double& apart)
{
    float from_mean = 0;
    if (n < K && column < D) {
        const double value = (double)centres[n * D + column];
        square += (value - mean) * (value + mean);
        apart += (value - mean) * (value - mean);
        from_mean = (float)(value - mean);
    }
    unsigned high, low;
    tensor::split(from_mean, 0.0f, high, low);
    unsigned short* at = image + column / 16 * N * 32 + tensor::place_of<N>(n, column % 16);
    at[0] = (unsigned short)high;
    at[N * 16] = (unsigned short)low;
}

template <class T> __device__ __forceinline__ T over_warp(T value)
{
    for (int apart = 16; apart; apart /= 2) value += __shfl_xor_sync(~0u, value, apart);
    return value;
}
__device__ __forceinline__ float largest_of_warp(float value)
{
    for (int apart = 16; apart; apart /= 2) value = fmaxf(value, __shfl_xor_sync(~0u, value, apart));
    return value;
}

// All of it by one thread block of T threads; `means` has room for the columns, `scalars` for two numbers.
template <int N, int K, int D, int T, class C>
__device__ void factorise(unsigned short* image, float* squares, float* scalars, float* means, const C* centres)
{
    constexpr int COLUMNS = (D + 15) / 16 * 16;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int column = threadIdx.x; column < COLUMNS; column += T)
        means[column] = column < D ? mean_of<K, D>(centres, column) : 0.0f;
    __syncthreads();
    float spread = 0, most = 0;
    for (int n = warp; n < N; n += T / 32) {
        double square = 0, apart = 0;
        for (int column = lane; column < COLUMNS; column += 32)
            put<N, K, D>(image, centres, n, column, means[column], square, apart);
        square = over_warp(square);
        apart = over_warp(apart);
        if (lane == 0) squares[n] = n < K ? (float)square : far_away();
        if (n < K) {
            // A centre that is not finite makes all rows doubtful.
            spread = fmaxf(spread, apart < 1e30 ? (float)apart : far_away());
            most = fmaxf(most, fabs(square) < 1e30 ? fabsf((float)square) : far_away());
        }
    }
    tensor::publish();
    __syncthreads();
    float* shared = means;
    if (lane == 0) {
        shared[2 * warp] = spread;
        shared[2 * warp + 1] = most;
    }
    __syncthreads();
    if (warp == 0) {
        spread = largest_of_warp(lane < T / 32 ? shared[2 * lane] : 0.0f);
        most = largest_of_warp(lane < T / 32 ? shared[2 * lane + 1] : 0.0f);
        if (lane == 0) {
            scalars[0] = spread;
            scalars[1] = most * 0x1p-22f;
        }
    }
    __syncthreads();
}

// -- labels ----------------------------------------------------------------------------------------------------------

// The squared distance, by a warp.
template <int D, class C> __device__ __forceinline__ double exactly(const float* x, const C* c)
{
    constexpr int AHEAD = 8;
    double sum = 0;
    for (int i = threadIdx.x % 32; i < D; i += 32 * AHEAD) {
        float a[AHEAD];
        C b[AHEAD];
        #pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const bool there = i + 32 * u < D;
            a[u] = there ? x[i + 32 * u] : 0.0f;
            b[u] = there ? c[i + 32 * u] : (C)0;
        }
        #pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const double apart = (double)a[u] - (double)b[u];
            sum += apart * apart;
        }
    }
    return over_warp(sum);
}

// The squared distance in float, by a warp: of D items, off by a rounding for each item of a lane and for each join.
template <int D> __device__ __forceinline__ constexpr float doubt() { return 2 * (D / 32 + 12) * 0x1p-24f; }
template <int D, class C> __device__ __forceinline__ float roughly(const float* x, const C* c)
{
    constexpr int AHEAD = 13;
    float sum = 0;
    for (int i = threadIdx.x % 32; i < D; i += 32 * AHEAD) {
        float a[AHEAD], b[AHEAD];
        #pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const bool there = i + 32 * u < D;
            a[u] = there ? x[i + 32 * u] : 0.0f;
            b[u] = there ? (float)c[i + 32 * u] : 0.0f;
        }
        #pragma unroll
        for (int u = 0; u < AHEAD; u++) sum = fmaf(a[u] - b[u], a[u] - b[u], sum);
    }
    return over_warp(sum);
}

// Does `take(n)` for each centre that the four lanes of a row have in their masks.
template <int N, int K, class Take>
__device__ __forceinline__ void over_masks(unsigned long long mask, int from, bool all, Take take)
{
    for (int q = 0; q < 4; q++) {
        unsigned long long rest = all ? ~0ull >> (64 - N / 4) : __shfl_sync(~0u, mask, from + q);
        for (; rest; rest &= rest - 1) {
            const int bit = __ffsll(rest) - 1, n = 8 * (bit / 2) + 2 * q + bit % 2;
            if (n < K) take(n);
        }
    }
}

// The label of one row by its distances from the centres in its masks: in float where these tell, else in double.
template <int N, int K, int D, Nan nan, class C>
__device__ __forceinline__ int again(unsigned long long mask, int from, bool all, const float* x, const C* centres)
{
    int where = 0;
    if (!all && sizeof(C) == 4) {
        float least = far_away(), second = far_away();
        over_masks<N, K>(mask, from, false, [&](int n) {
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
    over_masks<N, K>(mask, from, all, [&](int n) {
        double distance = exactly<D>(x, centres + (long long)n * D);
        if (nan == FIRST && distance != distance) distance = -1;
        if (distance < least || (distance == least && n < where)) {
            least = distance;
            where = n;
        }
    });
    return where;
}

// Products become labels: of the rows `lane / 4` and `lane / 4 + 8` behind x, in the lanes with lane % 4 == 0. `rows`
// says how many there are; `norms` are the parts of |x|^2 that the lane saw.
template <int N, int K, int D, Nan nan, class C>
__device__ __forceinline__ void label(float (&acc)[N / 2], const float (&norms)[2], const Factors& factors, float bound,
                                      const float* x, long long rows, const C* centres, int (&labels)[2])
{
    const int lane = threadIdx.x % 32, t = lane % 4, g = lane / 4;
    float least[2] = {far_away(), far_away()};
    #pragma unroll
    for (int j = 0; j < N / 8; j++)
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            acc[4 * j + i] = factors.squares[8 * j + 2 * t + i % 2] - 2 * acc[4 * j + i];
            least[i / 2] = fminf(least[i / 2], acc[4 * j + i]);
        }
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        float norm = norms[h];
        for (int apart = 1; apart < 4; apart *= 2) {
            least[h] = fminf(least[h], __shfl_xor_sync(~0u, least[h], apart));
            norm += __shfl_xor_sync(~0u, norm, apart);
        }
        const bool all = !(norm * factors.spread < 1e30f && norm < 1e30f);     // NaN, infinity, or nearly
        const float most = least[h] + bound * sqrtf(norm * factors.spread) + factors.slack;
        unsigned long long mask = 0;
        #pragma unroll
        for (int j = 0; j < N / 8; j++)
            #pragma unroll
            for (int i = 0; i < 2; i++)
                if (acc[4 * j + 2 * h + i] <= most) mask |= 1ull << (2 * j + i);
        const int bit = __ffsll(mask) - 1;
        int found = __popcll(mask), where = mask ? 8 * (bit / 2) + 2 * t + bit % 2 : N;
        for (int apart = 1; apart < 4; apart *= 2) {
            found += __shfl_xor_sync(~0u, found, apart);
            where = min(where, __shfl_xor_sync(~0u, where, apart));
        }
        labels[h] = where;
        unsigned todo = __ballot_sync(~0u, t == 0 && g + 8 * h < rows && (found != 1 || all));
        while (todo) {
            const int from = __ffs(todo) - 1;
            todo &= todo - 1;
            const int row = from / 4 + 8 * h;
            const bool every = __shfl_sync(~0u, all, from);
            const int exact = again<N, K, D, nan>(mask, from, every, x + (long long)row * D, centres);
            if (lane == from) labels[h] = exact;
        }
    }
}

// How far apart two scores may be and still be in the wrong order, as a share of |x| times the largest |c - mean|:
// twice twice the error of a product. That is 2^-16 of each factor and of the product of their low parts; and for each
// of three products of 16 numbers the rounding of what is added up, 2^-20 with what tensor cores cut off.
template <int D> __device__ __forceinline__ constexpr float bound()
{
    return 4 * (3 * 0x1p-16f * 1.01f + 3 * ((D + 15) / 16) * 0x1p-20f);
}

// Rows [0, rows) of x get labels, `put(row, label)`. Four warps take 64 rows at a time; T / 128 such groups work side
// by side. A lane copies what it needs of the rows of AHEAD steps into `staged`, 1024 AHEAD bytes for each warp. With
// RING > 0 the image is in device memory and comes through that many stages of shared memory.
template <int N, int K, int D, int T, int RING, int AHEAD, Nan nan, class C, class Put>
__device__ __forceinline__ void label_all(const float* x, int rows, const Factors& factors, unsigned char* staged,
                                          unsigned char* ring, unsigned long long* bars, const C* centres, Put put)
{
    constexpr int STEPS = (D + 15) / 16, BYTES = N * 64, TILE = T / 2;
    const int lane = threadIdx.x % 32, t = lane % 4, g = lane / 4;
    const int tiles = (rows + TILE - 1) / TILE, mine = threadIdx.x / 32 * 16;
    if (tiles == 0) return;
#if VISPARK_WARPGROUPS
    const int total = STEPS * tiles;
    constexpr int LAG = 3;          // a stage is filled anew when all warps are well through with it
    const unsigned full = tensor::shared_of(bars), empty = full + 8 * RING;
    int stage = 0, refilled = 0, next_image = RING % STEPS, done = 0;
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
                tensor::bring(tensor::shared_of(ring) + i * BYTES, factors.image + i % STEPS * BYTES, BYTES,
                              full + 8 * i);
    }
#endif
    // The rows of the step that is copied next, and where it goes.
    const unsigned slots = tensor::shared_of(staged) + threadIdx.x / 32 * AHEAD * 1024 + lane * 16;
    int copy_step = 0, copy_row = mine, filled = 0, used = 0;
    const float *one, *other;
    auto start = [&] {
        one = x + (long long)min(copy_row + g, rows - 1) * D + 4 * t;
        other = x + (long long)min(copy_row + g + 8, rows - 1) * D + 4 * t;
    };
    auto copy_next = [&] {
        const bool there = D % 16 == 0 || copy_step < STEPS - 1 || 4 * t < D % 16;
        tensor::copy(slots + filled * 1024, there ? one : x, there);
        tensor::copy(slots + filled * 1024 + 512, there ? other : x, there);
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
    tensor::Rows factor[2];
    for (int tile = 0; tile < tiles; tile++) {
        float norms[2] = {0, 0};
        auto advance = [&](int step, tensor::Rows& given) {
            tensor::await_copies<AHEAD - 1>();
            const float4 a = tensor::copied(slots + used * 1024), b = tensor::copied(slots + used * 1024 + 512);
            if (++used == AHEAD) used = 0;
            norms[0] = fmaf(a.x, a.x, fmaf(a.y, a.y, fmaf(a.z, a.z, fmaf(a.w, a.w, norms[0]))));
            norms[1] = fmaf(b.x, b.x, fmaf(b.y, b.y, fmaf(b.z, b.z, fmaf(b.w, b.w, norms[1]))));
            given.set(a, b);
            copy_next();
#if VISPARK_WARPGROUPS
            if (RING) tensor::wait(full + 8 * stage, phase);
            const unsigned char* at = RING ? ring + stage * BYTES : factors.image + step * BYTES;
            tensor::multiply<N>(acc, given, at, step > 0);
            tensor::end<1>();
            if (RING) {
                if (lane == 0 && step > 0) tensor::arrive(empty + 8 * (stage ? stage - 1 : RING - 1));
                if (++stage == RING) { stage = 0; phase ^= 1; }
                if (threadIdx.x == 0 && ++done > LAG && done - 1 - LAG + RING < total) {
                    tensor::wait(empty + 8 * refilled, refill_phase);
                    tensor::bring(tensor::shared_of(ring) + refilled * BYTES, factors.image + next_image * BYTES, BYTES,
                                  full + 8 * refilled);
                    if (++refilled == RING) { refilled = 0; refill_phase ^= 1; }
                    if (++next_image == STEPS) next_image = 0;
                }
            }
#else
            tensor::multiply<N>(acc, given, factors.image + step * BYTES, step > 0);
#endif
        };
        for (int step = 0; step + 1 < STEPS; step += 2) {
            advance(step, factor[0]);
            advance(step + 1, factor[1]);
        }
        if (STEPS % 2) advance(STEPS - 1, factor[0]);
        tensor::end<0>();
#if VISPARK_WARPGROUPS
        if (RING && lane == 0) tensor::arrive(empty + 8 * (stage ? stage - 1 : RING - 1));
        #pragma unroll
        for (int i = 0; i < N / 2; i++) asm volatile("" : "+f"(acc[i])::"memory");
#endif
        const int row = tile * TILE + mine;
        int labels[2];
        label<N, K, D, nan>(acc, norms, factors, bound<D>(), x + (long long)row * D, rows - row, centres, labels);
        if (t == 0 && row + g < rows) put(row + g, labels[0]);
        if (t == 0 && row + g + 8 < rows) put(row + g + 8, labels[1]);
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

// -- kernels ---------------------------------------------------------------------------------------------------------

// All that shapes a kernel: N is K rounded up to a multiple of 8, D a multiple of 4. T threads; RING stages of the
// image in shared memory, or 0 where it lies there as a whole; CHUNK rows at a time; STEPS_AHEAD steps of rows on their
// way while products are taken, and ROWS_AHEAD rows while sums are.
template <int N, int K, int D, int T, int RING, int CHUNK, int STEPS_AHEAD, int ROWS_AHEAD, Nan nan, class C>
struct Shape {
    static constexpr int STEPS = (D + 15) / 16, IMAGE = STEPS * N * 64;
    // In front of other things in device memory, where there is a ring: the image, and for each centre its square and
    // its squared distance from the mean.
    static constexpr int SCRATCH = IMAGE + N * 8;

    struct Room {
        unsigned char image[RING ? RING * N * 64 : IMAGE], staged[T / 32 * STEPS_AHEAD * 1024];
        unsigned long long bars[RING ? 2 * RING : 1];
        unsigned short order[CHUNK];
        unsigned char labels[CHUNK];
        int places[T / 32 * K], start[K + 1];
        float squares[N], scalars[2], means[STEPS * 16 < 64 ? 64 : STEPS * 16];
        long long counts[K];
    };

    // One block of 256 threads for each 8 centres.
    static __device__ void prepare(unsigned char* scratch, const C* centres)
    {
        __shared__ float means[STEPS * 16];
        for (int column = threadIdx.x; column < STEPS * 16; column += 256)
            means[column] = column < D ? mean_of<K, D>(centres, column) : 0.0f;
        __syncthreads();
        const int n = blockIdx.x * 8 + threadIdx.x / 32;
        double square = 0, apart = 0;
        for (int column = threadIdx.x % 32; column < STEPS * 16; column += 32)
            put<N, K, D>((unsigned short*)scratch, centres, n, column, means[column], square, apart);
        square = over_warp(square);
        apart = over_warp(apart);
        if (threadIdx.x % 32 == 0) {
            ((float*)(scratch + IMAGE))[n] = n < K ? (float)square : far_away();
            ((float*)(scratch + IMAGE))[N + n] = (float)apart;
        }
    }

    static __device__ Factors factors(Room& room, const unsigned char* scratch, const C* centres)
    {
        if (!RING) {
            factorise<N, K, D, T>((unsigned short*)room.image, room.squares, room.scalars, room.means, centres);
            return {room.image, room.squares, room.scalars[0], room.scalars[1]};
        }
        const float *squares = (const float*)(scratch + IMAGE), *aparts = squares + N;
        for (int n = threadIdx.x; n < N; n += T) room.squares[n] = squares[n];
        if (threadIdx.x < 32) {
            float spread = 0, most = 0;
            for (int n = threadIdx.x; n < K; n += 32) {
                spread = fmaxf(spread, aparts[n] < 1e30f ? aparts[n] : far_away());
                most = fmaxf(most, fabsf(squares[n]) < 1e30f ? fabsf(squares[n]) : far_away());
            }
            spread = largest_of_warp(spread);
            most = largest_of_warp(most);
            if (threadIdx.x == 0) {
                room.scalars[0] = spread;
                room.scalars[1] = most * 0x1p-22f;
            }
        }
        __syncthreads();
        return {scratch, room.squares, room.scalars[0], room.scalars[1]};
    }

    template <class Put>
    static __device__ void label(const float* x, int rows, Room& room, const Factors& factors, const C* centres,
                                 Put put)
    {
        label_all<N, K, D, T, RING, STEPS_AHEAD, nan>(x, rows, factors, room.staged, room.image, room.bars, centres,
                                                      put);
    }

    // The labels of a work's rows.
    static __device__ void labels(const float* x, long long rows, Room& room, const unsigned char* scratch,
                                  const C* centres, long long* out)
    {
        const Factors given = factors(room, scratch, centres);
        for (long long first = 0; first < rows; first += CHUNK) {
            const int count = (int)min((long long)CHUNK, rows - first);
            label(x + first * D, count, room, given, centres, [&](int row, int label) { out[first + row] = label; });
            __syncthreads();
        }
    }

    // The sums of a work's rows by label, and in room.counts how many there are.
    static __device__ void fold(const float* x, long long rows, Room& room, const unsigned char* scratch,
                                const C* centres, double* sums)
    {
        const Factors given = factors(room, scratch, centres);
        for (int k = threadIdx.x; k < K; k += T) room.counts[k] = 0;
        for (long long first = 0; first < rows || first == 0; first += CHUNK) {
            const int count = (int)min((long long)CHUNK, rows - first);
            label(x + first * D, count, room, given, centres,
                  [&](int row, int label) { room.labels[row] = (unsigned char)label; });
            __syncthreads();
            sort<K, T>(room.labels, count, room.order, room.places, room.start);
            for (int k = threadIdx.x; k < K; k += T) room.counts[k] += room.start[k + 1] - room.start[k];
            gather<K, D, T, ROWS_AHEAD>(x + first * D, room.order, room.start, sums, first == 0);
            __syncthreads();
        }
    }
};

}  // namespace nearest
#endif

namespace nearest {

// What a work leaves beside the sums: `put(k, count)` for each centre; the least and the greatest label that occurs.
template <int K, class Room, class Put> __device__ __forceinline__ void each(const Room& room, Put put)
{
#ifdef VISPARK_ON_HOST
    for (int k = 0; k < K; k++) put(k, room.counts[k]);
#else
    for (int k = threadIdx.x; k < K; k += blockDim.x) put(k, room.counts[k]);
#endif
}
template <int K, class Room> __device__ __forceinline__ long long least(const Room& room)
{
    for (int k = 0; k < K; k++)
        if (room.counts[k]) return k;
    return Minimum::identity<long long>();
}
template <int K, class Room> __device__ __forceinline__ long long greatest(const Room& room)
{
    for (int k = K - 1; k >= 0; k--)
        if (room.counts[k]) return k;
    return Maximum::identity<long long>();
}

}  // namespace nearest
