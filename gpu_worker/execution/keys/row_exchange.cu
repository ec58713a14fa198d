// kernels: count_parts<long long, 0, 256>, count_parts<double, 0, 1024>, count_parts<float, 1, 256>,
// count_parts<unsigned, 2, 1024>, move_rows<long long, 0, 256>, move_rows<double, 0, 1024>, move_rows<float, 1, 256>,
// move_rows<unsigned char, 1, 1024>, move_rows<unsigned, 2, 256>
//
// Rows of several arrays to the partitions of their keys, in two readings: of the keys, whose partitions are counted by
// tile of rows; and of the rows, which are written to where their partition's rows of the tiles before end. Rows keep their
// order within a partition. A tile's rows are put in the order of partitions by their numbers alone, in shared memory, so
// that threads of neighbouring numbers write what lies side by side; what they read is near by, in the tile.
//
// The rows lie in `inputs` blocks, of which `table` has: the number of the first tile of each, and of all tiles; the rows of
// each; and for each field, and behind them for the keys, the bytes of a chunk, the chunks of a row, and the address of each
// block.
#include "vispark/keys.h"

// How a key says where it belongs: by Python's hash, by its place among bounds, or by itself.
constexpr int BY_HASH = 0, BY_RANGE = 1, BY_NUMBER = 2;

// The rows of a tile: as few as leave each partition enough of them that what is written lies side by side.
template <int DIGITS> constexpr int TILE = DIGITS > 256 ? 4096 : 2048;

// A key's partition of `parts`. `inverse` is the greatest u64 over `parts`, of which the quotient is one too small at most.
template <int HOW, typename K>
__device__ __forceinline__ unsigned part_of(K key, u64 parts, u64 inverse, const u64* bounds, int descending, u64* wrong)
{
    if (HOW == BY_NUMBER) return (unsigned)key;
    if (is_wrong(key, wrong)) return 0;
    if (HOW == BY_HASH) {
        const long long hash = python_hash(key);
        const u64 size = hash < 0 ? 0 - (u64)hash : (u64)hash;
        u64 rest = size - __umul64hi(size, inverse) * parts;
        if (rest >= parts) rest -= parts;
        return (unsigned)(hash < 0 && rest ? parts - rest : rest);
    }
    const u64 word = (u64)ordered(key);
    unsigned low = 0, high = (unsigned)parts - 1;
    while (low < high) {
        const unsigned middle = (low + high) / 2;
        if (bounds[middle] < word) low = middle + 1; else high = middle;
    }
    return descending ? (unsigned)parts - 1 - low : low;
}

// The rows of one tile: in which input, from which row on, and how many.
struct Tile {
    int input;
    long long first;
    int rows;
    __device__ Tile(const u64* table, int inputs, long long tile, int size)
    {
        int low = 0, high = inputs - 1;
        while (low < high) {
            const int middle = (low + high + 1) / 2;
            if ((long long)table[middle] <= tile) low = middle; else high = middle - 1;
        }
        input = low;
        first = (tile - (long long)table[low]) * size;
        const long long left = (long long)table[inputs + 1 + low] - first;
        rows = left < size ? (int)left : size;
    }
};

// What `table` has of a field.
struct Rows {
    int size;
    u64 chunks, address;
    __device__ Rows(const u64* table, int inputs, int field, int input)
    {
        const u64* of_field = table + 2 * inputs + 1 + field * (inputs + 2);
        size = (int)of_field[0], chunks = of_field[1], address = of_field[2 + input];
    }
};

// How many rows of each tile go to each partition: `counts` is (parts, tiles).
template <typename K, int HOW, int DIGITS>
__global__ void __launch_bounds__(THREADS)
count_parts(const u64* table, int inputs, int keys, long long parts, u64 inverse, const u64* bounds, int descending,
            unsigned* counts, long long tiles, u64* wrong)
{
    constexpr int ROUNDS = TILE<DIGITS> / THREADS;
    __shared__ unsigned count_of[DIGITS];
    const Tile tile(table, inputs, blockIdx.x, TILE<DIGITS>);
    const K* tile_keys = (const K*)Rows(table, inputs, keys, tile.input).address + tile.first;
    const int first = VISPARK_ALONE ? 0 : threadIdx.x, step = VISPARK_ALONE ? 1 : THREADS;
    if (VISPARK_ALONE && threadIdx.x) return;
    for (int part = first; part < parts; part += step) count_of[part] = 0;
    if constexpr (!VISPARK_ALONE) __syncthreads();
    K read[ROUNDS];
    if (VISPARK_ALONE) {
        for (int row = 0; row < tile.rows; ++row)
            ++count_of[part_of<HOW>(tile_keys[row], (u64)parts, inverse, bounds, descending, wrong)];
    } else {
        VISPARK_UNROLL
        for (int round = 0; round < ROUNDS; ++round)
            if (round * THREADS + first < tile.rows) read[round] = tile_keys[round * THREADS + first];
        VISPARK_UNROLL
        for (int round = 0; round < ROUNDS; ++round)
            if (round * THREADS + first < tile.rows)
                atomicAdd(&count_of[part_of<HOW>(read[round], (u64)parts, inverse, bounds, descending, wrong)], 1u);
    }
    if constexpr (!VISPARK_ALONE) __syncthreads();
    for (int part = first; part < parts; part += step) counts[part * tiles + blockIdx.x] = count_of[part];
}

// Copy the chunks of a tile's rows, in the order `source`, of which each has the partition `part`, to where `to` says that
// row 0 of the tile would be if it were of that partition. Some are read before the first is written.
constexpr int AHEAD = 4, LONG = 2 * THREADS;

template <typename C>
__device__ __forceinline__ void move_chunks(const C* in, const u64* to, const unsigned short* source,
                                            const unsigned short* part, int rows, unsigned chunks)
{
    const unsigned all = rows * chunks, first = VISPARK_ALONE ? 0 : threadIdx.x, step = VISPARK_ALONE ? 1 : THREADS;
    VISPARK_UNROLL_SOME(1)
    for (unsigned base = first; base < all; base += AHEAD * step) {
        C read[AHEAD];
        VISPARK_UNROLL
        for (int turn = 0; turn < AHEAD; ++turn) {
            const unsigned at = base + turn * step, row = chunks == 1 ? at : at / chunks;
            if (at < all) read[turn] = in[source[row] * chunks + (at - row * chunks)];
        }
        VISPARK_UNROLL
        for (int turn = 0; turn < AHEAD; ++turn) {
            const unsigned at = base + turn * step, row = chunks == 1 ? at : at / chunks;
            if (at < all) ((C*)to[part[row]])[at] = read[turn];
        }
    }
}

// The same of rows that are long enough to be copied one by one.
template <typename C>
__device__ __forceinline__ void move_long_rows(const C* in, const u64* to, const unsigned short* source,
                                            const unsigned short* part, int rows, u64 chunks)
{
    const int first = VISPARK_ALONE ? 0 : threadIdx.x, step = VISPARK_ALONE ? 1 : THREADS;
    for (int row = 0; row < rows; ++row) {
        const C* from = in + source[row] * chunks;
        C* target = (C*)to[part[row]] + row * chunks;
        for (u64 chunk = first; chunk < chunks; chunk += step) target[chunk] = from[chunk];
    }
}

// Not inlined, as the compiler would keep registers for all of its instances at once.
template <typename C>
__device__ __noinline__ void move_tile(const Rows& of, long long first, const u64* to, const unsigned short* source,
                                          const unsigned short* part, int rows)
{
    const C* in = (const C*)of.address + (u64)first * of.chunks;
    if (of.chunks >= LONG) move_long_rows(in, to, source, part, rows, of.chunks);
    else move_chunks(in, to, source, part, rows, (unsigned)of.chunks);
}

// Copy the rows of all fields to their partitions. `counts` says how many of a partition's rows the tiles before have, and
// `bases`, of shape (fields, parts), where the first of them is to be.
template <typename K, int HOW, int DIGITS>
__global__ void __launch_bounds__(THREADS, 4)
move_rows(const u64* table, int inputs, int keys, long long parts, u64 inverse, const u64* bounds, int descending,
          const unsigned* counts, long long tiles, int fields, const u64* bases, u64* wrong)
{
    constexpr int ROWS = TILE<DIGITS>, ROUNDS = ROWS / THREADS;
    __shared__ unsigned short source[ROWS], part[ROWS], counted[WARPS][DIGITS], begins[DIGITS];
    __shared__ u64 to[DIGITS];
    const Tile tile(table, inputs, blockIdx.x, ROWS);
    const K* tile_keys = (const K*)Rows(table, inputs, keys, tile.input).address + tile.first;
    if constexpr (VISPARK_ALONE) {
        if (threadIdx.x) return;
        for (int digit = 0; digit < parts; ++digit) counted[0][digit] = 0;
        for (int row = 0; row < tile.rows; ++row)
            ++counted[0][part_of<HOW>(tile_keys[row], (u64)parts, inverse, bounds, descending, wrong)];
        int begin = 0;
        for (int digit = 0; digit < parts; ++digit) {
            begins[digit] = (unsigned short)begin;
            begin += counted[0][digit];
            counted[0][digit] = begins[digit];
        }
        for (int row = 0; row < tile.rows; ++row) {
            const unsigned digit = part_of<HOW>(tile_keys[row], (u64)parts, inverse, bounds, descending, wrong);
            const int place = counted[0][digit]++;
            source[place] = (unsigned short)row;
            part[place] = (unsigned short)digit;
        }
    } else {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, own = warp * (ROWS / WARPS) + lane;
        for (int digit = lane; digit < DIGITS; digit += 32) counted[warp][digit] = 0;
        // Each warp has a run of the tile's rows, so that rows of one partition stay in their order; of each row its
        // partition, and the number of those before it in the run.
        VISPARK_UNROLL_SOME(4)
        for (int row = own; row < own + ROWS / WARPS; row += 32)
            part[row] = (unsigned short)(row < tile.rows
                ? part_of<HOW>(tile_keys[row], (u64)parts, inverse, bounds, descending, wrong) : DIGITS);
        __syncwarp();
        VISPARK_UNROLL_SOME(2)
        for (int row = own; row < own + ROWS / WARPS; row += 32) {
            const unsigned digit = part[row];
            const unsigned alike = __match_any_sync(0xffffffffu, digit), before = alike & ((1u << lane) - 1);
            const unsigned behind = digit < DIGITS ? counted[warp][digit] : 0;
            __syncwarp();
            if (digit < DIGITS && before == 0) counted[warp][digit] = (unsigned short)(behind + __popc(alike));
            __syncwarp();
            source[row] = (unsigned short)(behind + __popc(before));
        }
        __syncthreads();
        constexpr int OWN = DIGITS / THREADS;
        u64 all = 0, sum = 0;
        VISPARK_UNROLL
        for (int offset = 0; offset < OWN; ++offset)
            for (int of = 0; of < WARPS; ++of) all += counted[of][threadIdx.x * OWN + offset];
        unsigned place = (unsigned)sum_before(all, to, &sum);
        VISPARK_UNROLL
        for (int offset = 0; offset < OWN; ++offset) {
            const int digit = threadIdx.x * OWN + offset;
            begins[digit] = (unsigned short)place;
            for (int of = 0; of < WARPS; ++of) {
                const unsigned here = counted[of][digit];
                counted[of][digit] = (unsigned short)place;
                place += here;
            }
        }
        unsigned places[ROUNDS];
        VISPARK_UNROLL
        for (int round = 0; round < ROUNDS; ++round)
            places[round] = (unsigned)part[own + round * 32] << 16 | source[own + round * 32];
        __syncthreads();
        VISPARK_UNROLL
        for (int round = 0; round < ROUNDS; ++round) {
            const unsigned digit = places[round] >> 16;
            if (digit < DIGITS) {
                const unsigned at = counted[warp][digit] + (places[round] & 0xffff);
                source[at] = (unsigned short)(own + round * 32);
                part[at] = (unsigned short)digit;
            }
        }
    }
    for (int field = 0; field < fields; ++field) {
        const Rows of(table, inputs, field, tile.input);
        const int first = VISPARK_ALONE ? 0 : threadIdx.x, step = VISPARK_ALONE ? 1 : THREADS;
        if constexpr (!VISPARK_ALONE) __syncthreads();
        for (int digit = first; digit < parts; digit += step)
            to[digit] = bases[field * parts + digit]
                + ((u64)counts[digit * tiles + blockIdx.x] - begins[digit]) * of.chunks * of.size;
        if constexpr (!VISPARK_ALONE) __syncthreads();
        if (of.size == 16) move_tile<uint4>(of, tile.first, to, source, part, tile.rows);
        else if (of.size == 8) move_tile<u64>(of, tile.first, to, source, part, tile.rows);
        else if (of.size == 4) move_tile<unsigned>(of, tile.first, to, source, part, tile.rows);
        else if (of.size == 2) move_tile<unsigned short>(of, tile.first, to, source, part, tile.rows);
        else if (of.size == 1) move_tile<unsigned char>(of, tile.first, to, source, part, tile.rows);
    }
}
