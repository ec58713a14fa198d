// kernels: hash_words<long long, unsigned char>, hash_words<double, unsigned short>, hash_words<unsigned char, unsigned>,
// range_words<float, unsigned char>, range_words<long long, unsigned short>, ordered_words<double, unsigned long long>,
// ordered_words<signed char, unsigned>, different_bits<unsigned long long>, count_digits<unsigned char>,
// count_digits<unsigned long long>, scan_tiles, place_rows<unsigned char>, place_rows<unsigned long long>,
// run_starts<unsigned short>, take_rows<unsigned long long>, take_rows<uint4>, deal_rows<unsigned long long, unsigned char>,
// deal_rows<unsigned char, unsigned>, mark_heads<unsigned long long>, mark_heads<unsigned char>, list_heads,
// fold_runs<Add, Value, double, Twofold, double>, fold_runs<Add, Value, float, double, float>,
// fold_runs<Add, Size, long long, double, double>, run_lengths, run_extents, match_counts<double>, match_counts<unsigned char>,
// sum_tiles, scan_sums, write_matches
//
// Rows by their keys: a stable partition by words that are made of the keys, and what is built on it. A word is where a
// row belongs (the number of a partition) or how it is ordered (a number that grows with the key). Words are sorted by
// digits of 8 bits, the lowest first, each round stable: counted by tile of rows, scanned, and each row put where its
// digit's rows begin, behind those of earlier tiles and of earlier rows of its own.
#include "vispark/fold.h"
#include "vispark/keys.h"

constexpr int DIGITS = 256;

// -- what becomes of keys --------------------------------------------------------------------------------------------

// The partition of each row by Python's hash of its key.
template <typename K, typename W>
__global__ void hash_words(const K* keys, W* words, long long rows, long long parts, u64* wrong)
{
    const long long all = (long long)gridDim.x * blockDim.x;
    for (long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += all) {
        const K key = keys[row];
        const long long rest = is_wrong(key, wrong) ? 0 : python_hash(key) % parts;
        words[row] = (W)(rest < 0 ? rest + parts : rest);
    }
}

// The partition of each row by its key's place among `count` ascending bounds: how many of them are below it; counted
// from the last partition where the order is descending.
template <typename K, typename W>
__global__ void range_words(const K* keys, W* words, long long rows, const u64* bounds, long long count, int descending,
                            u64* wrong)
{
    const long long all = (long long)gridDim.x * blockDim.x;
    for (long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += all) {
        const K key = keys[row];
        const u64 word = is_wrong(key, wrong) ? 0 : (u64)ordered(key);
        long long low = 0, high = count;
        while (low < high) {
            const long long middle = (low + high) / 2;
            if (bounds[middle] < word) low = middle + 1; else high = middle;
        }
        words[row] = (W)(descending ? count - low : low);
    }
}

// The order of each row by its key.
template <typename K, typename W>
__global__ void ordered_words(const K* keys, W* words, long long rows, int descending, u64* wrong)
{
    const long long all = (long long)gridDim.x * blockDim.x;
    for (long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += all) {
        const K key = keys[row];
        const W word = is_wrong(key, wrong) ? 0 : (W)ordered(key);
        words[row] = descending ? (W)~word : word;
    }
}

// The bits in which words differ from the first one.
template <typename W>
__global__ void different_bits(const W* words, long long rows, u64* different)
{
    __shared__ u64 found;
    if (threadIdx.x == 0) found = 0;
    __syncthreads();
    const long long all = (long long)gridDim.x * blockDim.x;
    const W first = words[0];
    u64 mine = 0;
    for (long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += all)
        mine |= (u64)(words[row] ^ first);
    atomicOr(&found, mine);
    __syncthreads();
    if (threadIdx.x == 0) atomicOr(different, found);
}

// -- one round of a stable partition ---------------------------------------------------------------------------------

// How many rows of each tile have each digit: `counts` is (DIGITS, tiles).
template <typename W>
__global__ void count_digits(const W* words, long long rows, long long tile, int shift, unsigned* counts, long long tiles)
{
    const long long first = (long long)blockIdx.x * tile, last = rows - first < tile ? rows : first + tile;
    __shared__ unsigned found[DIGITS];
    if constexpr (VISPARK_ALONE) {
        if (threadIdx.x) return;
        for (int digit = 0; digit < DIGITS; ++digit) found[digit] = 0;
        for (long long row = first; row < last; ++row) ++found[words[row] >> shift & 255];
        for (int digit = 0; digit < DIGITS; ++digit) counts[digit * tiles + blockIdx.x] = found[digit];
    } else {
        for (int digit = threadIdx.x; digit < DIGITS; digit += blockDim.x) found[digit] = 0;
        __syncthreads();
        for (long long row = first + threadIdx.x; row < last; row += blockDim.x)
            atomicAdd(&found[words[row] >> shift & 255], 1u);
        __syncthreads();
        for (int digit = threadIdx.x; digit < DIGITS; digit += blockDim.x)
            counts[digit * tiles + blockIdx.x] = found[digit];
    }
}

// The counts of each digit as those of the tiles before, and their total: a block for each digit.
__global__ void scan_tiles(unsigned* counts, long long tiles, u64* totals)
{
    unsigned* mine = counts + blockIdx.x * tiles;
    __shared__ u64 shared[THREADS];
    u64 before = 0;
    if constexpr (VISPARK_ALONE) {
        if (threadIdx.x) return;
        for (long long tile = 0; tile < tiles; ++tile) {
            const unsigned count = mine[tile];
            mine[tile] = (unsigned)before;
            before += count;
        }
        totals[blockIdx.x] = before;
    } else {
        for (long long first = 0; first < tiles; first += THREADS) {
            const long long tile = first + threadIdx.x;
            u64 total;
            const u64 sum = sum_before(tile < tiles ? mine[tile] : 0, shared, &total);
            if (tile < tiles) mine[tile] = (unsigned)(before + sum);
            before += total;
        }
        if (threadIdx.x == 0) totals[blockIdx.x] = before;
    }
}

// Put each row's number behind those of the rows before it whose digits are not greater. `order` are the rows' numbers
// (0: their own places), `placed` the words in the new order (0: not wanted).
template <typename W>
__global__ void place_rows(const W* words, const unsigned* order, long long rows, long long tile, int shift,
                           const unsigned* counts, long long tiles, const u64* totals, W* placed, unsigned* after)
{
    const long long first = (long long)blockIdx.x * tile, last = rows - first < tile ? rows : first + tile;
    if constexpr (VISPARK_ALONE) {
        if (threadIdx.x) return;
        unsigned next[DIGITS];
        u64 start = 0;
        for (int digit = 0; digit < DIGITS; ++digit) {
            next[digit] = (unsigned)start + counts[digit * tiles + blockIdx.x];
            start += totals[digit];
        }
        for (long long row = first; row < last; ++row) {
            const W word = words[row];
            const unsigned place = next[word >> shift & 255]++;
            after[place] = order ? order[row] : (unsigned)row;
            if (placed) placed[place] = word;
        }
    } else {
        __shared__ unsigned next[WARPS][DIGITS];
        __shared__ u64 shared[THREADS];
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        // Each warp has a run of the tile's rows, so that rows of one digit stay in their order.
        const long long run = (tile + WARPS - 1) / WARPS, begin = first + warp * run;
        const long long end = begin + run < last ? begin + run : last;
        for (int digit = lane; digit < DIGITS; digit += 32) next[warp][digit] = 0;
        __syncwarp();
        for (long long base = begin; base < end; base += 32) {
            const long long row = base + lane;
            const int digit = row < end ? (int)(words[row] >> shift & 255) : DIGITS;
            const unsigned alike = __match_any_sync(0xffffffffu, digit);
            if (digit < DIGITS && (alike & ((1u << lane) - 1)) == 0) next[warp][digit] += __popc(alike);
            __syncwarp();
        }
        u64 total;
        const u64 start = sum_before(totals[threadIdx.x], shared, &total);
        unsigned place = (unsigned)start + counts[threadIdx.x * tiles + blockIdx.x];
        for (int each = 0; each < WARPS; ++each) {
            const unsigned here = next[each][threadIdx.x];
            next[each][threadIdx.x] = place;
            place += here;
        }
        __syncthreads();
        for (long long base = begin; base < end; base += 32) {
            const long long row = base + lane;
            const W word = row < end ? words[row] : (W)0;
            const int digit = row < end ? (int)(word >> shift & 255) : DIGITS;
            const unsigned alike = __match_any_sync(0xffffffffu, digit), before = alike & ((1u << lane) - 1);
            const unsigned to = digit < DIGITS ? next[warp][digit] + __popc(before) : 0;
            __syncwarp();
            if (digit < DIGITS && before == 0) next[warp][digit] += __popc(alike);
            __syncwarp();
            if (digit < DIGITS) {
                after[to] = order ? order[row] : (unsigned)row;
                if (placed) placed[to] = word;
            }
        }
    }
}

// Where the rows of each of `parts` words begin among words in ascending order, and their number behind the last.
template <typename W>
__global__ void run_starts(const W* words, long long rows, long long parts, long long* starts)
{
    const long long all = (long long)gridDim.x * blockDim.x;
    for (long long part = (long long)blockIdx.x * blockDim.x + threadIdx.x; part <= parts; part += all) {
        long long low = 0, high = rows;
        while (low < high) {
            const long long middle = (low + high) / 2;
            if ((long long)words[middle] < part) low = middle + 1; else high = middle;
        }
        starts[part] = low;
    }
}

// -- moving rows -----------------------------------------------------------------------------------------------------

// Rows of `chunks` chunks, each from where `order` says.
template <typename C>
__global__ void take_rows(const C* in, C* out, const unsigned* order, long long rows, long long chunks)
{
    const long long all = (long long)gridDim.x * blockDim.x;
    const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (chunks == 1) {
        for (long long row = first; row < rows; row += all) out[row] = in[order[row]];
    } else if (VISPARK_ALONE) {
        for (long long row = first; row < rows; row += all)
            for (long long chunk = 0; chunk < chunks; ++chunk)
                out[row * chunks + chunk] = in[order[row] * chunks + chunk];
    } else {
        for (long long i = first; i < rows * chunks; i += all) {
            const long long row = rows * chunks >> 32 ? i / chunks : (unsigned)i / (unsigned)chunks;
            out[i] = in[order[row] * chunks + (i - row * chunks)];
        }
    }
}

// The same into an array for each word: `bases` are their addresses, less what comes before each word's rows.
template <typename C, typename W>
__global__ void deal_rows(const C* in, const unsigned* order, const W* words, const u64* bases, long long rows,
                          long long chunks)
{
    const long long all = (long long)gridDim.x * blockDim.x;
    const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (chunks == 1) {
        for (long long row = first; row < rows; row += all)
            *(C*)(bases[words[row]] + (u64)row * sizeof(C)) = in[order[row]];
    } else if (VISPARK_ALONE) {
        for (long long row = first; row < rows; row += all) {
            C* out = (C*)(bases[words[row]] + (u64)(row * chunks) * sizeof(C));
            for (long long chunk = 0; chunk < chunks; ++chunk) out[chunk] = in[order[row] * chunks + chunk];
        }
    } else {
        for (long long i = first; i < rows * chunks; i += all) {
            const long long row = rows * chunks >> 32 ? i / chunks : (unsigned)i / (unsigned)chunks;
            *(C*)(bases[words[row]] + (u64)i * sizeof(C)) = in[order[row] * chunks + (i - row * chunks)];
        }
    }
}

// -- runs of equal keys ----------------------------------------------------------------------------------------------

// Whether a row differs from the one before it in an array; joined with what was found in others unless it is the first.
template <typename T>
__global__ void mark_heads(const T* values, unsigned char* heads, long long rows, long long columns, int joined)
{
    const long long all = (long long)gridDim.x * blockDim.x;
    for (long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += all) {
        bool is_head = row == 0 || (joined && heads[row]);
        for (long long i = row * columns; !is_head && i < (row + 1) * columns; ++i)
            is_head = values[i] != values[i - columns];
        heads[row] = is_head;
    }
}

// The rows of the heads, of which there are as many as `order` says in its first round: those behind the others.
__global__ void list_heads(const unsigned* order, unsigned* heads, long long others, long long count, long long rows)
{
    const long long all = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i <= count; i += all)
        heads[i] = i < count ? order[others + i] : (unsigned)rows;
}

// The rows of each run.
__global__ void run_lengths(const unsigned* heads, long long* lengths, long long runs)
{
    const long long all = (long long)gridDim.x * blockDim.x;
    for (long long run = (long long)blockIdx.x * blockDim.x + threadIdx.x; run < runs; run += all)
        lengths[run] = (long long)heads[run + 1] - (long long)heads[run];
}

// Where the rows of each run begin, and how many there are.
__global__ void run_extents(const unsigned* heads, long long* starts, long long runs)
{
    const long long all = (long long)gridDim.x * blockDim.x;
    for (long long run = (long long)blockIdx.x * blockDim.x + threadIdx.x; run < runs; run += all) {
        starts[2 * run] = (long long)heads[run];
        starts[2 * run + 1] = (long long)heads[run + 1] - (long long)heads[run];
    }
}

// Fold the rows of each run, column by column: a warp for each, whose lanes take rows in turn and are joined in order.
template <typename Op, typename Of, typename T, typename A, typename R>
__global__ void fold_runs(const T* in, R* out, const unsigned* heads, long long runs, long long columns)
{
    if constexpr (VISPARK_ALONE) {
        const long long all = (long long)gridDim.x * blockDim.x;
        for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < runs * columns; i += all) {
            const long long run = i / columns, column = i - run * columns;
            A folded = Of::template of<A>(in[heads[run] * columns + column]);
            for (long long row = (long long)heads[run] + 1; row < (long long)heads[run + 1]; ++row)
                folded = Op::of(folded, Of::template of<A>(in[row * columns + column]));
            out[i] = (R)folded;
        }
    } else {
        __shared__ A lanes[WARPS][32];
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const long long all = (long long)gridDim.x * WARPS;
        for (long long i = (long long)blockIdx.x * WARPS + warp; i < runs * columns; i += all) {
            const long long run = i / columns, column = i - run * columns;
            const long long first = heads[run], count = (long long)heads[run + 1] - first;
            if (lane < count) {
                A folded = Of::template of<A>(in[(first + lane) * columns + column]);
                for (long long row = lane + 32; row < count; row += 32)
                    folded = Op::of(folded, Of::template of<A>(in[(first + row) * columns + column]));
                lanes[warp][lane] = folded;
            }
            __syncwarp();
            for (int half = 16; half > 0; half /= 2) {
                if (lane < half && lane + half < count)
                    lanes[warp][lane] = Op::of(lanes[warp][lane], lanes[warp][lane + half]);
                __syncwarp();
            }
            if (lane == 0) out[i] = (R)lanes[warp][0];
            __syncwarp();
        }
    }
}

// -- joins of two sorted arrays of keys ------------------------------------------------------------------------------

// How many rows of the right side have the key of each row of the left one, and where they begin.
template <typename K>
__global__ void match_counts(const K* left, long long rows, const K* right, long long others, unsigned* begins,
                             unsigned* counts)
{
    const long long all = (long long)gridDim.x * blockDim.x;
    for (long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += all) {
        const K key = left[row];
        long long low = 0, high = others;
        while (low < high) {
            const long long middle = (low + high) / 2;
            if (right[middle] < key) low = middle + 1; else high = middle;
        }
        const long long begin = low;
        high = others;
        while (low < high) {
            const long long middle = (low + high) / 2;
            if (key < right[middle]) high = middle; else low = middle + 1;
        }
        begins[row] = (unsigned)begin;
        counts[row] = (unsigned)(low - begin);
    }
}

// The sum of each tile's counts.
__global__ void sum_tiles(const unsigned* counts, long long rows, long long tile, u64* sums)
{
    const long long first = (long long)blockIdx.x * tile, last = rows - first < tile ? rows : first + tile;
    __shared__ u64 shared[THREADS];
    u64 mine = 0, total;
    if constexpr (VISPARK_ALONE) {
        if (threadIdx.x) return;
        for (long long row = first; row < last; ++row) mine += counts[row];
        sums[blockIdx.x] = mine;
    } else {
        for (long long row = first + threadIdx.x; row < last; row += THREADS) mine += counts[row];
        sum_before(mine, shared, &total);
        if (threadIdx.x == 0) sums[blockIdx.x] = total;
    }
}

// The sums as those of the tiles before, and behind them their total; one block.
__global__ void scan_sums(u64* sums, long long tiles)
{
    __shared__ u64 shared[THREADS];
    u64 before = 0;
    if constexpr (VISPARK_ALONE) {
        if (threadIdx.x) return;
        for (long long tile = 0; tile < tiles; ++tile) {
            const u64 sum = sums[tile];
            sums[tile] = before;
            before += sum;
        }
        sums[tiles] = before;
    } else {
        for (long long first = 0; first < tiles; first += THREADS) {
            const long long tile = first + threadIdx.x;
            u64 total;
            const u64 sum = sum_before(tile < tiles ? sums[tile] : 0, shared, &total);
            if (tile < tiles) sums[tile] = before + sum;
            before += total;
        }
        if (threadIdx.x == 0) sums[tiles] = before;
    }
}

// The rows of both sides of each pair, pairs of one left row behind each other.
__global__ void write_matches(const unsigned* begins, const unsigned* counts, long long rows, long long tile,
                              const u64* sums, unsigned* left, unsigned* right)
{
    const long long first = (long long)blockIdx.x * tile, last = rows - first < tile ? rows : first + tile;
    __shared__ u64 shared[THREADS];
    u64 before = sums[blockIdx.x];
    if constexpr (VISPARK_ALONE) {
        if (threadIdx.x) return;
        for (long long row = first; row < last; ++row)
            for (unsigned i = 0; i < counts[row]; ++i, ++before) {
                left[before] = (unsigned)row;
                right[before] = begins[row] + i;
            }
    } else {
        for (long long base = first; base < last; base += THREADS) {
            const long long row = base + threadIdx.x;
            const unsigned count = row < last ? counts[row] : 0;
            u64 total;
            const u64 at = before + sum_before(count, shared, &total);
            for (unsigned i = 0; i < count; ++i) {
                left[at + i] = (unsigned)row;
                right[at + i] = begins[row] + i;
            }
            before += total;
        }
    }
}
