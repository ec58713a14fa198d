// kernels: hash_words<long long, unsigned char>, hash_words<double, unsigned short>, hash_words<unsigned char, unsigned>,
// range_words<float, unsigned char>, range_words<long long, unsigned short>, ordered_words<double, unsigned long long>,
// ordered_words<signed char, unsigned>, different_bits<unsigned long long>, count_digits<unsigned char>,
// count_digits<unsigned long long>, scan_tiles, scan_digits, place_rows<unsigned char>, place_rows<unsigned long long>,
// take_sorted<uint4>, take_sorted<unsigned char>, run_starts<unsigned short>, take_rows<unsigned long long>, take_rows<uint4>, deal_rows<unsigned long long, unsigned char>,
// deal_rows<unsigned char, unsigned>, mark_heads<unsigned long long>, mark_heads<unsigned char>, list_heads,
// fold_runs<Add, Value, double, Twofold, double>, fold_runs<Add, Value, float, double, float>,
// fold_runs<Add, Size, long long, double, double>, run_lengths, run_extents, match_counts<double>, match_counts<unsigned char>,
// match_tuples, tuple_parts, sum_tiles, scan_sums, write_matches, fold_part<Add, Value, double, Twofold>,
// fold_part<Add, Size, long long, double>, join_lanes<Add, Twofold, double>, join_lanes<Add, double, float>
//
// Rows by their keys: a stable partition by words that are made of the keys, and what is built on it. A word is where a
// row belongs (the number of a partition) or how it is ordered (a number that grows with the key). Words are sorted by
// digits of 8 bits, the lowest first, each round stable: counted by tile of rows, scanned, and each row put where its
// digit's rows begin, behind those of earlier tiles and of earlier rows of its own.
#include "vispark/fold.h"
#include "vispark/keys.h"

constexpr int DIGITS = 256;

// Rows that are sorted lie in runs, each of which has an order of its own: `table` has the first tile of each run, and of
// all tiles; and the first row of each, and of all rows. One block has the rows of one tile, which are of one run.
struct Tile {
    int run;
    // Its place among the run's tiles, of which there are `tiles` behind `before` ones of other runs.
    long long place, tiles, before;
    // The rows of the tile, counted from the run's first one, which is `begin` of all rows.
    long long begin, first, last;
    __device__ Tile(const u64* table, int runs, int size)
    {
        int low = 0, high = runs - 1;
        while (low < high) {
            const int middle = (low + high + 1) / 2;
            if ((long long)table[middle] <= (long long)blockIdx.x) low = middle; else high = middle - 1;
        }
        run = low, before = (long long)table[low], tiles = (long long)table[low + 1] - before;
        place = (long long)blockIdx.x - before, begin = (long long)table[runs + 1 + low];
        const long long rows = (long long)table[runs + 2 + low] - begin;
        first = place * size, last = rows - first < size ? rows : first + size;
    }
    // Where a run's counts of a digit begin among those of all.
    __device__ long long counts_of(int digit) const { return before * DIGITS + digit * tiles; }
};

// The threads that go over a tile's rows, and which of them this is.
constexpr int STRIDE = VISPARK_ALONE ? 1 : THREADS;
__device__ __forceinline__ int own_row() { return VISPARK_ALONE ? 0 : threadIdx.x; }

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

// The order of each row by its key, of which each run has an array; of the rows in the order that is there (0: as they are).
template <typename K, typename W>
__global__ void ordered_words(const u64* table, int runs, int size, const u64* keys, const unsigned* order, W* words,
                              int descending, u64* wrong)
{
    if (VISPARK_ALONE && threadIdx.x) return;
    const Tile tile(table, runs, size);
    const K* run_keys = (const K*)keys[tile.run];
    for (long long row = tile.first + own_row(); row < tile.last; row += STRIDE) {
        const K key = run_keys[order ? (long long)order[tile.begin + row] : row];
        const W word = is_wrong(key, wrong) ? 0 : (W)ordered(key);
        words[tile.begin + row] = descending ? (W)~word : word;
    }
}

// The bits in which words differ from the first one of their run.
template <typename W>
__global__ void different_bits(const u64* table, int runs, int size, const W* words, u64* different)
{
    __shared__ u64 differing;
    const Tile tile(table, runs, size);
    const W* run_words = words + tile.begin;
    u64 differ = 0;
    if constexpr (VISPARK_ALONE) {
        if (threadIdx.x) return;
        for (long long row = tile.first; row < tile.last; ++row) differ |= (u64)(run_words[row] ^ run_words[0]);
        atomicOr(different, differ);
    } else {
        if (threadIdx.x == 0) differing = 0;
        __syncthreads();
        for (long long row = tile.first + threadIdx.x; row < tile.last; row += THREADS)
            differ |= (u64)(run_words[row] ^ run_words[0]);
        if (differ) atomicOr(&differing, differ);
        __syncthreads();
        if (threadIdx.x == 0 && differing) atomicOr(different, differing);
    }
}

// -- keys that are tuples --------------------------------------------------------------------------------------------

constexpr int MOST_ITEMS = 8;

// One item of a row's key: its hash, and its word in the order of such items.
struct Item {
    long long hash;
    u64 word;
    bool is_nan;
};

template <typename K> __device__ __forceinline__ Item item_of(K key)
{
    const Item item = {key == key ? python_hash(key) : 0, key == key ? (u64)ordered(key) : 0, key != key};
    return item;
}

// An item of a row; `items` has the type of each item, as the place in KEYS, and then where each is.
__device__ __forceinline__ Item item_at(const u64* items, int count, int item, long long row)
{
    const u64 address = items[count + item];
    switch ((int)items[item]) {
        case 0: return item_of(((const float*)address)[row]);
        case 1: return item_of(((const double*)address)[row]);
        case 3: return item_of(((const signed char*)address)[row]);
        case 4: return item_of(((const short*)address)[row]);
        case 5: return item_of(((const int*)address)[row]);
        case 6: return item_of(((const long long*)address)[row]);
        case 8: return item_of(((const unsigned short*)address)[row]);
        case 9: return item_of(((const unsigned*)address)[row]);
        case 10: return item_of(((const u64*)address)[row]);
        default: return item_of(((const unsigned char*)address)[row]);
    }
}

// Whether words come before others; of `count` items.
__device__ __forceinline__ bool is_before(const u64* one, const u64* other, int count)
{
    for (int item = 0; item < count; ++item)
        if (one[item] != other[item]) return one[item] < other[item];
    return false;
}

// The partition of each row: by PySpark's portable_hash of its key (`how` 0), or by how many of the `edges` bounds are below
// it (1), counted from the last partition (2). Python's hash of a number below `parts` is that number.
__global__ void tuple_parts(const u64* items, int count, long long rows, long long parts, const u64* bounds, long long edges,
                            int how, unsigned* numbers, u64* wrong)
{
    const long long all = (long long)gridDim.x * blockDim.x;
    for (long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += all) {
        u64 words[MOST_ITEMS], hash = 0x345678;
        bool is_nan = false;
        for (int number = 0; number < count; ++number) {
            const Item item = item_at(items, count, number, row);
            words[number] = item.word;
            hash = (hash ^ (u64)item.hash) * 1000003 & ~(1ull << 63);
            is_nan = is_nan || item.is_nan;
        }
        if (is_nan) atomicAdd(wrong, 1ull);
        if (how == 0) {
            numbers[row] = (unsigned)((hash ^ (u64)count) % (u64)parts);
            continue;
        }
        long long low = 0, high = edges;
        while (low < high) {
            const long long middle = (low + high) / 2;
            if (is_before(bounds + middle * count, words, count)) low = middle + 1; else high = middle;
        }
        numbers[row] = (unsigned)(how == 2 ? edges - low : low);
    }
}

// -- one round of a stable partition ---------------------------------------------------------------------------------

// How many rows of each tile have each digit: `counts` is (DIGITS, tiles) for each run, one behind the other.
template <typename W>
__global__ void count_digits(const u64* table, int runs, int size, const W* words, int shift, unsigned* counts)
{
    __shared__ unsigned count_of[DIGITS];
    const Tile tile(table, runs, size);
    const W* run_words = words + tile.begin;
    if constexpr (VISPARK_ALONE) {
        if (threadIdx.x) return;
        for (int digit = 0; digit < DIGITS; ++digit) count_of[digit] = 0;
        for (long long row = tile.first; row < tile.last; ++row) ++count_of[run_words[row] >> shift & 255];
    } else {
        for (int digit = threadIdx.x; digit < DIGITS; digit += blockDim.x) count_of[digit] = 0;
        __syncthreads();
        for (long long row = tile.first + threadIdx.x; row < tile.last; row += blockDim.x)
            atomicAdd(&count_of[run_words[row] >> shift & 255], 1u);
        __syncthreads();
    }
    for (int digit = own_row(); digit < DIGITS; digit += STRIDE)
        counts[tile.counts_of(digit) + tile.place] = count_of[digit];
}

// The counts of some tiles as those of the tiles before, and their total; for a block.
__device__ __forceinline__ void scan(unsigned* counts, long long tiles, u64* all, u64* shared)
{
    u64 before = 0;
    if constexpr (VISPARK_ALONE) {
        if (threadIdx.x) return;
        for (long long tile = 0; tile < tiles; ++tile) {
            const unsigned count = counts[tile];
            counts[tile] = (unsigned)before;
            before += count;
        }
        *all = before;
    } else {
        for (long long first = 0; first < tiles; first += THREADS) {
            const long long tile = first + threadIdx.x;
            u64 total;
            const u64 sum = sum_before(tile < tiles ? counts[tile] : 0, shared, &total);
            if (tile < tiles) counts[tile] = (unsigned)(before + sum);
            before += total;
        }
        if (threadIdx.x == 0) *all = before;
    }
}

// The same of the counts (digits, tiles): a block for each digit.
__global__ void scan_tiles(unsigned* counts, long long tiles, u64* totals)
{
    __shared__ u64 shared[THREADS];
    scan(counts + blockIdx.x * tiles, tiles, totals + blockIdx.x, shared);
}

// The same of the counts of each run: a block for each digit of each run.
__global__ void scan_digits(const u64* table, int runs, unsigned* counts, u64* totals)
{
    __shared__ u64 shared[THREADS];
    const long long run = blockIdx.x / DIGITS, digit = blockIdx.x % DIGITS, before = (long long)table[run];
    const long long tiles = (long long)table[run + 1] - before;
    scan(counts + before * DIGITS + digit * tiles, tiles, totals + blockIdx.x, shared);
}

// Put each row's number behind those of the rows before it, in its run, whose digits are not greater. `order` are the rows'
// numbers (0: their own places), `placed` the words in the new order (0: not wanted).
template <typename W>
__global__ void place_rows(const u64* table, int runs, int size, const W* words, const unsigned* order, int shift,
                           const unsigned* counts, const u64* totals, W* placed, unsigned* after)
{
    const Tile tile(table, runs, size);
    const long long first = tile.first, last = tile.last;
    words += tile.begin, after += tile.begin, totals += (long long)tile.run * DIGITS;
    if (order) order += tile.begin;
    if (placed) placed += tile.begin;
    if constexpr (VISPARK_ALONE) {
        if (threadIdx.x) return;
        unsigned next[DIGITS];
        u64 start = 0;
        for (int digit = 0; digit < DIGITS; ++digit) {
            next[digit] = (unsigned)start + counts[tile.counts_of(digit) + tile.place];
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
        const long long run = (size + WARPS - 1) / WARPS, begin = first + warp * run;
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
        unsigned place = (unsigned)start + counts[tile.counts_of(threadIdx.x) + tile.place];
        for (int warp = 0; warp < WARPS; ++warp) {
            const unsigned here = next[warp][threadIdx.x];
            next[warp][threadIdx.x] = place;
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

// The first rows of each run in their order: `addresses` has where each run's rows are, and then where they are to be;
// `starts` its first place in `order` (0: as they are). The tiles are of the rows that are taken.
template <typename C>
__global__ void take_sorted(const u64* table, int runs, int size, const u64* addresses, const u64* starts,
                            const unsigned* order, long long chunks)
{
    if (VISPARK_ALONE && threadIdx.x) return;
    const Tile tile(table, runs, size);
    const C* in = (const C*)addresses[tile.run];
    C* out = (C*)addresses[runs + tile.run];
    const unsigned* run_order = order ? order + starts[tile.run] : order;
    if (chunks == 1) {
        for (long long row = tile.first + own_row(); row < tile.last; row += STRIDE)
            out[row] = in[run_order ? (long long)run_order[row] : row];
    } else if (VISPARK_ALONE) {
        for (long long row = tile.first; row < tile.last; ++row)
            for (long long chunk = 0; chunk < chunks; ++chunk)
                out[row * chunks + chunk] = in[(run_order ? (long long)run_order[row] : row) * chunks + chunk];
    } else {
        const long long all = (tile.last - tile.first) * chunks;
        for (long long i = threadIdx.x; i < all; i += THREADS) {
            const long long row = tile.first + (all >> 32 ? i / chunks : (unsigned)i / (unsigned)chunks);
            const long long chunk = i - (row - tile.first) * chunks;
            out[row * chunks + chunk] = in[(run_order ? (long long)run_order[row] : row) * chunks + chunk];
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

// Where the rows of each run begin, behind `before` others, and how many there are.
__global__ void run_extents(const unsigned* heads, long long* starts, long long runs, long long before)
{
    const long long all = (long long)gridDim.x * blockDim.x;
    for (long long run = (long long)blockIdx.x * blockDim.x + threadIdx.x; run < runs; run += all) {
        starts[2 * run] = before + (long long)heads[run];
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

// Fold rows of one run, of which parts come one after the other, into accumulators: for each column as many `lanes` as
// fold_runs has, which take rows in turn as its own do. Each part but the last has a multiple of their number of rows.
template <typename Op, typename Of, typename T, typename A>
__global__ void fold_part(const T* in, A* folded, long long rows, long long columns, int lanes, int is_first)
{
    const long long all = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < lanes * columns; i += all) {
        const long long lane = i / columns, column = i - lane * columns;
        if (lane >= rows) continue;
        A carried = is_first ? Of::template of<A>(in[i]) : folded[i];
        for (long long row = is_first ? lane + lanes : lane; row < rows; row += lanes)
            carried = Op::of(carried, Of::template of<A>(in[row * columns + column]));
        folded[i] = carried;
    }
}

// Join the lanes that fold_part leaves of a run of so many rows, in the order of fold_runs.
template <typename Op, typename A, typename R>
__global__ void join_lanes(A* folded, R* out, long long rows, long long columns, int lanes)
{
    const long long all = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < columns; i += all) {
        for (int half = lanes / 2; half > 0; half /= 2)
            for (int lane = 0; lane < half && lane + half < rows; ++lane)
                folded[lane * columns + i] = Op::of(folded[lane * columns + i], folded[(lane + half) * columns + i]);
        out[i] = (R)folded[i];
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

// The first row among sorted ones whose key is not before others (`behind` 0), or is behind them (1).
__device__ __forceinline__ long long tuple_bound(const u64* items, int count, long long rows, const u64* words, int behind)
{
    long long low = 0, high = rows;
    while (low < high) {
        const long long middle = (low + high) / 2;
        u64 item_words[MOST_ITEMS];
        for (int item = 0; item < count; ++item) item_words[item] = item_at(items, count, item, middle).word;
        const bool is_below = behind ? !is_before(words, item_words, count) : is_before(item_words, words, count);
        if (is_below) low = middle + 1; else high = middle;
    }
    return low;
}

// The same as match_counts of keys that are tuples.
__global__ void match_tuples(const u64* left, const u64* right, int count, long long rows, long long others, unsigned* begins,
                             unsigned* counts)
{
    const long long all = (long long)gridDim.x * blockDim.x;
    for (long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += all) {
        u64 words[MOST_ITEMS];
        for (int item = 0; item < count; ++item) words[item] = item_at(left, count, item, row).word;
        const long long begin = tuple_bound(right, count, others, words, 0);
        begins[row] = (unsigned)begin;
        counts[row] = (unsigned)(tuple_bound(right, count, others, words, 1) - begin);
    }
}

// The sum of each tile's counts.
__global__ void sum_tiles(const unsigned* counts, long long rows, long long tile, u64* sums)
{
    const long long first = (long long)blockIdx.x * tile, last = rows - first < tile ? rows : first + tile;
    __shared__ u64 shared[THREADS];
    u64 sum = 0, total;
    if constexpr (VISPARK_ALONE) {
        if (threadIdx.x) return;
        for (long long row = first; row < last; ++row) sum += counts[row];
        sums[blockIdx.x] = sum;
    } else {
        for (long long row = first + threadIdx.x; row < last; row += THREADS) sum += counts[row];
        sum_before(sum, shared, &total);
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
