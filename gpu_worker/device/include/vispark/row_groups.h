// Sums of outer products of rows that are multiplied with matrices, as of a network's gradient, by groups of four warps.
// A group takes tiles of 64 rows all the way, and waits for no other: it multiplies the rows with a matrix, computes
// with the products in registers, multiplies what comes out with the next matrix, and adds up the outer products. Four
// lanes have a row: lane t of them the numbers t, t + 4, ...; which is how tensor cores leave products if the matrix's
// columns lie in the right order, and how they read rows. So nothing of a row goes through shared memory but the factors
// of outer products, whose terms are rows.
//
// Tensor cores cut off what they add: they add up 64 rows, or 64 terms. 1,024 rows are added up in floats, and these in
// doubles, in memory of each thread's own.
#pragma once

#include "vispark/barriers.h"
#include "vispark/outer.h"
#include "vispark/products.h"

#if VISPARK_ONE_PASS

namespace rows {

constexpr int GROUP_THREADS = 128, GROUP_ROWS = 64, GROUP_TURNS = 16;

// A group of four warps, and the barrier at which it meets.
struct Group {
    Bar& bar;
    const int number;
    unsigned turn;
    __device__ __forceinline__ Group(Bar* bars)
        : bar(bars[threadIdx.x / GROUP_THREADS]), number(__shfl_sync(0xffffffffu, threadIdx.x / GROUP_THREADS, 0)), turn(0)
    {
    }
    __device__ __forceinline__ void meet() { tensor::meet<GROUP_THREADS>(tensor::shared_of(&bar), number, turn++); }
    // What a thread is in its group; of a tile's rows a quad has this one and the one 8 below.
    static __device__ __forceinline__ int warp() { return threadIdx.x / 32 % 4; }
    static __device__ __forceinline__ int quad() { return threadIdx.x % 32 / 4; }
    static __device__ __forceinline__ int lane() { return threadIdx.x % 4; }
    static __device__ __forceinline__ int row() { return warp() * 16 + quad(); }
};

// -- rows of four lanes ----------------------------------------------------------------------------------------------

// A number of a row whose place the row's lanes know.
template <class Row> __device__ __forceinline__ auto number_at(const Row& row, int place)
{
    auto own = row.item(0);
    VISPARK_UNROLL
    for (int slot = 1; slot < Row::SLOTS; ++slot) {
        const auto other = row.item(slot);
        own = place / 4 == slot ? other : own;
    }
    return __shfl_sync(row_mask<4>(), own, threadIdx.x % 32 / 4 * 4 + place % 4);
}
template <class Row, class T> __device__ __forceinline__ void put_at(Row& row, int place, T value)
{
    VISPARK_UNROLL
    for (int slot = 0; slot < Row::SLOTS; ++slot)
        if (place == slot * 4 + Group::lane()) row.item(slot) = value;
}

// An array of N numbers that a row function makes.
template <class T, int N> struct LanesArray {
    static constexpr int SLOTS = (N + 3) / 4;
    T own[SLOTS];
    __device__ __forceinline__ T& item(int slot) { return own[slot]; }
    __device__ __forceinline__ const T& item(int slot) const { return own[slot]; }
    __device__ __forceinline__ T& operator[](int place) { return own[(unsigned)place / 4]; }
};
// One of the two rows of N numbers that tensor cores left in a thread's registers, or read from there.
template <int N, int ROW> struct LanesRow {
    static constexpr int SLOTS = N / 4;
    float (&own)[N / 2];
    __device__ __forceinline__ LanesRow(float (&own)[N / 2]) : own(own) {}
    __device__ __forceinline__ float& item(int slot) const { return own[slot / 2 * 4 + ROW * 2 + slot % 2]; }
    __device__ __forceinline__ float& operator[](int place) const { return item((unsigned)place / 4); }
};

template <int COUNT> __device__ __forceinline__ bool is_odd(const float (&sums)[COUNT])
{
    bool odd = false;
    VISPARK_UNROLL
    for (int i = 0; i < COUNT; ++i) odd |= !(fabsf(sums[i]) < tensor::SPLIT_MOST);
    return odd;
}

// -- factors in shared memory, as tensor cores read them -------------------------------------------------------------

// The parts of N columns in steps of 8 terms: both halves of a step, PAD floats apart, and their columns.
template <int N, int PAD> struct StepParts {
    static constexpr int HALF = 4 * N + PAD, STEP = 2 * HALF;
    static __device__ __forceinline__ int at(int step, int half, int column, int term)
    {
        return step * STEP + half * HALF + column * 4 + term;
    }
};

// A matrix that rows are multiplied with, N columns of which some are beyond its own. Rows are in registers, or in shared
// memory, STRIDE floats apart: of these, if they are an odd number, lanes read two of the 8 terms that each has of 32, and
// else of each 8 two that are 4 apart; so they meet in no bank.
template <class Matrix, int STRIDE = 0> struct GroupMatrix {
    static constexpr int N = (Matrix::width + 7) / 8 * 8, COUNT = N / 2, TERMS = Matrix::terms;
    static constexpr bool ODD = STRIDE % 2 == 1;
    static constexpr int STEPS = ODD ? (TERMS + 31) / 32 * 4 : (TERMS + 7) / 8, TOGETHER = 8;
    static_assert(ODD || STRIDE % 8 == 4 || STRIDE == 0, "lanes meet in no bank");
    static __device__ __forceinline__ int term_of(int step, int t, int half)
    {
        return ODD ? step / 4 * 32 + t * 8 + step % 4 * 2 + half : step * 8 + t + half * 4;
    }
    typedef StepParts<N, 0> Steps;
    static constexpr int LOWER = STEPS * Steps::STEP, SIZE = 2 * LOWER;

    static __device__ __forceinline__ void bring(unsigned* parts, const Matrix matrix)
    {
        for (int i = threadIdx.x; i < LOWER; i += blockDim.x) {
            const int step = i / (8 * N), half = i / (4 * N) % 2, n = i / 4 % N, t = i % 4;
            const int k = term_of(step, t, half);
            const int j = n / 8 * 8 + n % 8 / 2 + n % 2 * 4;
            tensor::Halves one;
            one.set(k < TERMS && j < Matrix::width ? (float)matrix(k, j) : 0.0f);
            parts[Steps::at(step, half, n, t)] = one.high;
            parts[Steps::at(step, half, n, t) + LOWER] = one.low;
        }
    }
    static __device__ __forceinline__ void step(float (&sums)[COUNT], const tensor::Halves (&rows)[4],
                                                const unsigned* parts, int step)
    {
        const unsigned* const high = parts + step * Steps::STEP;
        tensor::multiply_parts<N, Steps::HALF>(sums, rows, high, high + LOWER);
    }
    // Rows of a tile.
    static __device__ __forceinline__ void of_tile(float (&sums)[COUNT], const float* rows, const unsigned* parts)
    {
        const float* const upper = rows + Group::row() * STRIDE;
        VISPARK_UNROLL
        for (int i = 0; i < COUNT; ++i) sums[i] = 0.0f;
        VISPARK_UNROLL
        for (int first = 0; first < STEPS; first += TOGETHER) {
            float near[COUNT];
            VISPARK_UNROLL
            for (int i = 0; i < COUNT; ++i) near[i] = 0.0f;
            VISPARK_UNROLL
            for (int k = first; k < first + TOGETHER && k < STEPS; ++k) {
                tensor::Halves down[4];
                VISPARK_UNROLL
                for (int i = 0; i < 4; ++i) {
                    const int term = term_of(k, Group::lane(), i / 2);
                    const bool is_there = TERMS % (ODD ? 32 : 8) == 0 || term < TERMS;
                    down[i].set(is_there ? upper[i % 2 * 8 * STRIDE + term] : 0.0f);
                }
                step(near, down, parts, k);
                if (k % 2) tensor::end<2>();    // one by one they would wait more often
            }
            tensor::end<0>();
            VISPARK_UNROLL
            for (int i = 0; i < COUNT; ++i) sums[i] += near[i];
        }
    }
    // Rows in registers.
    template <int OWN>
    static __device__ __forceinline__ void of_rows(float (&sums)[COUNT], const float (&rows)[OWN], const unsigned* parts)
    {
        static_assert(STRIDE == 0 && OWN == 4 * STEPS, "rows are whole steps");
        VISPARK_UNROLL
        for (int i = 0; i < COUNT; ++i) sums[i] = 0.0f;
        VISPARK_UNROLL
        for (int k = 0; k < STEPS; ++k) {
            tensor::Halves down[4];
            VISPARK_UNROLL
            for (int i = 0; i < 4; ++i) down[i].set(rows[k * 4 + i % 2 * 2 + i / 2]);
            step(sums, down, parts, k);
            tensor::end<1>();
        }
        tensor::end<0>();
    }
};

// -- sums of outer products ------------------------------------------------------------------------------------------

// Sums of the outer products of LEFT and RIGHT numbers, of which the right ones are in registers, and the left ones in
// a tile (TILED), whose rows are STRIDE apart, or in registers, too. A group adds up BATCH of its rows at once. TURNED:
// the matrix has LEFT columns.
template <int LEFT, int RIGHT, int STRIDE, bool TILED, int BATCH, bool TURNED> struct GroupOuter {
    static constexpr int N = (RIGHT + 7) / 8 * 8, COUNT = N / 2, HIGH = (LEFT + 63) / 64, STEPS = BATCH / 8;
    static constexpr int PITCH = TILED ? STRIDE : HIGH * 64 + 4;
    static constexpr bool ODD = PITCH % 2 == 1;
    static_assert(ODD || PITCH % 8 == 4, "lanes meet in no bank");
    typedef StepParts<N, 16> Steps;
    static constexpr int LOWER = STEPS * Steps::STEP, SIZE = 2 * LOWER + (TILED ? 0 : BATCH * PITCH);

    static constexpr int FAR = HIGH * COUNT;

    float middle[HIGH][COUNT];
    double* const far;

    // Sums in double are where the compiler does not know them from registers; apart from others, which stay in these.
    __device__ __forceinline__ GroupOuter(double (&sums)[FAR])
        : far((double*)vispark::opaque<long long>((long long)sums))
    {
        VISPARK_PRAGMA(unroll 1)
        for (int i = 0; i < FAR; ++i) far[i] = -0.0;
        VISPARK_UNROLL
        for (int m = 0; m < HIGH; ++m)
            VISPARK_UNROLL
            for (int i = 0; i < COUNT; ++i) middle[m][i] = -0.0f;
    }

    // The right numbers of a batch as parts, whose terms are rows: of 32 of them lanes read two of 8 each where their
    // floats are an odd number apart, and two neighbours of each 8 elsewhere.
    static __device__ __forceinline__ void split(unsigned* parts, const float (&rows)[COUNT])
    {
        const int own = Group::warp() * 16 % BATCH, quad = Group::quad(), t = Group::lane();
        unsigned* const to = parts + (ODD ? Steps::at(own / 32 * 4 + quad / 2, quad % 2, t, own % 32 / 8)
                                          : Steps::at(own / 8, quad % 2, t, quad / 2));
        VISPARK_UNROLL
        for (int slot = 0; slot < N / 4; ++slot) {
            tensor::Halves upper, lower;
            upper.set(rows[slot / 2 * 4 + slot % 2]);
            lower.set(rows[slot / 2 * 4 + slot % 2 + 2]);
            unsigned* const place = to + slot * 16;
            if (ODD) {
                *(Pack<unsigned, 2>*)place = {upper.high, lower.high};
                *(Pack<unsigned, 2>*)(place + LOWER) = {upper.low, lower.low};
            } else {
                place[0] = upper.high, place[Steps::STEP] = lower.high;
                place[LOWER] = upper.low, place[LOWER + Steps::STEP] = lower.low;
            }
        }
    }
    template <int OWN> static __device__ __forceinline__ void keep(float* tile, const float (&rows)[OWN])
    {
        float* const to = tile + Group::row() % BATCH * PITCH + Group::lane();
        VISPARK_UNROLL
        for (int slot = 0; slot < OWN / 2; ++slot)
            VISPARK_UNROLL
            for (int row = 0; row < 2; ++row) to[slot * 4 + row * 8 * PITCH] = rows[slot / 2 * 4 + slot % 2 + 2 * row];
    }
    static __device__ __forceinline__ void multiply(float (&near)[HIGH][COUNT], const float* left, const unsigned* parts)
    {
        const float* const from = left + (ODD ? 8 : 2) * Group::lane() * PITCH + Group::row();
        VISPARK_UNROLL
        for (int step = 0; step < STEPS; ++step) {
            const float* const some = from + (ODD ? step / 4 * 32 + step % 4 * 2 : step * 8) * PITCH;
            const unsigned* const high = parts + step * Steps::STEP;
            VISPARK_UNROLL
            for (int m = 0; m < HIGH; ++m) {
                tensor::Halves down[4];
                VISPARK_UNROLL
                for (int i = 0; i < 4; ++i) down[i].set(some[m * 64 + i % 2 * 8 + i / 2 * PITCH]);
                tensor::multiply_parts<N, Steps::HALF>(near[m], down, high, high + LOWER);
            }
            if (step % 2) tensor::end<2 * HIGH>();
        }
        tensor::end<0>();
    }
    // A tile's products, with left numbers from `left` on, or of the group's registers. The group's `storage` is free
    // before and after.
    template <class Left>
    __device__ __forceinline__ void add(Group& group, unsigned* storage, const Left& left, const float (&right)[COUNT])
    {
        float near[HIGH][COUNT];
        VISPARK_UNROLL
        for (int m = 0; m < HIGH; ++m)
            VISPARK_UNROLL
            for (int i = 0; i < COUNT; ++i) near[m][i] = 0.0f;
        VISPARK_UNROLL
        for (int batch = 0; batch < GROUP_ROWS / BATCH; ++batch) {
            float* const kept = (float*)(storage + 2 * LOWER);
            if (Group::warp() * 16 / BATCH == batch) {
                split(storage, right);
                if constexpr (!TILED) keep(kept, left);
            }
            tensor::publish();
            group.meet();
            if constexpr (TILED) multiply(near, left + batch * BATCH * PITCH, storage);
            else multiply(near, kept, storage);
            group.meet();
        }
        VISPARK_UNROLL
        for (int m = 0; m < HIGH; ++m)
            VISPARK_UNROLL
            for (int i = 0; i < COUNT; ++i) middle[m][i] += near[m][i];
    }
    __device__ __forceinline__ void flush()
    {
        VISPARK_UNROLL
        for (int m = 0; m < HIGH; ++m)
            VISPARK_UNROLL
            for (int i = 0; i < COUNT; ++i) far[m * COUNT + i] += middle[m][i], middle[m][i] = -0.0f;
    }
    // The place of a thread's sum.
    static __device__ __forceinline__ int down(int i) { return i / COUNT * 64 + Group::row() + i % 4 / 2 * 8; }
    static __device__ __forceinline__ int across(int i) { return i % COUNT / 4 * 8 + Group::lane() * 2 + i % 2; }
    static __device__ __forceinline__ bool has(int i) { return down(i) < LEFT && across(i) < RIGHT; }

    __device__ __forceinline__ bool is_odd() const
    {
        bool odd = false;
        VISPARK_PRAGMA(unroll 1)
        for (int i = 0; i < FAR; ++i) odd |= has(i) && far[i] - far[i] != 0;
        return odd;
    }
    // The work's sums: the groups' in their order.
    __device__ __forceinline__ void leave(const Group& group, int groups, double* partials) const
    {
        double* const partial = partials + (long long)blockIdx.x * LEFT * RIGHT;
        for (int turn = 0; turn < groups; ++turn) {
            VISPARK_PRAGMA(unroll 1)
            for (int i = 0; i < FAR && turn == group.number; ++i) {
                if (!has(i)) continue;
                double* const to = partial + (TURNED ? across(i) * LEFT + down(i) : down(i) * RIGHT + across(i));
                *to = turn ? *to + far[i] : far[i];
            }
            barrier();
        }
    }
};

// -- tiles -----------------------------------------------------------------------------------------------------------

// Tiles of 64 rows of WIDTH floats, STRIDE apart, of which SLOTS are in shared memory or on their way there: all at once
// where rows lie as in memory, or row by row, which are whole chunks of 16 bytes then.
template <int WIDTH, int STRIDE, int SLOTS> struct GroupTiles {
    static constexpr int NUMBERS = GROUP_ROWS * WIDTH, BYTES = (GROUP_ROWS * STRIDE * 4 + 16 + 127) / 128 * 128;
    static constexpr bool FLAT = WIDTH == STRIDE;
    static_assert(FLAT || WIDTH % 4 == 0, "rows are whole chunks");
    unsigned char* const tiles;
    Bar* const bars;
    const float* const rows;
    const long long count;
    // What the rows begin beyond a multiple of 16 bytes, in floats; and the number of tiles.
    const int beyond, turns;

    __device__ __forceinline__ GroupTiles(unsigned char* tiles, Bar* bars, const float* rows, long long count)
        : tiles(tiles), bars(bars), rows(rows), count(count), beyond((int)((unsigned long long)rows % 16 / 4)),
          turns((int)((count + GROUP_ROWS - 1) / GROUP_ROWS))
    {
    }
    __device__ __forceinline__ int rows_of(int turn) const
    {
        return least(count - (long long)turn * GROUP_ROWS, GROUP_ROWS);
    }
    // Whether a tile comes by bulk copies: not the last one, which may have fewer rows.
    __device__ __forceinline__ bool comes_at_once(int turn) const { return turn < turns - 1 && (FLAT || !beyond); }
    // By one thread, where nobody reads the tile any more that was in its place.
    __device__ __forceinline__ void bring(int turn) const
    {
        if (turn >= turns) return;
        unsigned char* const tile = tiles + turn % SLOTS * BYTES;
        const tensor::Shared bar = tensor::shared_of(&bars[turn % SLOTS]);
        const float* const from = rows + (long long)turn * NUMBERS;
        if (!comes_at_once(turn)) {
            tensor::arrive(bar);
        } else if (FLAT) {
            tensor::bring_once(tensor::shared_of(tile), from - beyond, (NUMBERS + beyond + 3) / 4 * 16, bar);
        } else {
            tensor::expect(bar, NUMBERS * 4);
            for (int row = 0; row < GROUP_ROWS; ++row)
                tensor::add_once(tensor::shared_of(tile + row * STRIDE * 4), from + row * WIDTH, WIDTH * 4, bar);
        }
    }
    // By a group.
    __device__ __forceinline__ const float* wait_for(int turn, Group& group) const
    {
        float* const tile = (float*)(tiles + turn % SLOTS * BYTES) + (FLAT ? beyond : 0);
        wait(bars[turn % SLOTS], turn / SLOTS);
        if (comes_at_once(turn)) return tile;
        const long long first = (long long)turn * NUMBERS, all = count * WIDTH;
        for (int i = threadIdx.x % GROUP_THREADS; i < NUMBERS; i += GROUP_THREADS)
            tile[i / WIDTH * STRIDE + i % WIDTH] = first + i < all ? rows[first + i] : 0.0f;
        group.meet();
        return tile;
    }
};

// The barriers of tiles and of groups.
template <int SLOTS, int GROUPS> struct GroupBars {
    Bar loaded[SLOTS], met[GROUPS];
    __device__ __forceinline__ void prepare()
    {
        if (threadIdx.x == 0) {
            for (int i = 0; i < SLOTS; ++i) tensor::prepare(tensor::shared_of(&loaded[i]), 1);
            for (int i = 0; i < GROUPS; ++i) tensor::prepare(tensor::shared_of(&met[i]), GROUP_THREADS / 32);
            tensor::prepared();
        }
        barrier();
    }
};

}  // namespace rows

#endif
