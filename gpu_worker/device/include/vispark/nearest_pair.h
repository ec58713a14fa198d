// The sums of rows by their nearest centre in one pass, by pairs of thread blocks that deal the columns of a row: for
// sums that fit the registers of two multiprocessors, and not those of one. Roles are as in nearest_roles.h, but:
//
// Of each tile of 16 rows block 0 labels the first eight and block 1 the others, the two deciders of a block every
// second tile. Scores of the other block's rows go over, and labels come back, by stores that count at a barrier of the
// receiver, so that nobody waits for a pair. Products are taken of rows as one float16, which leaves more rows open
// than two do and takes half the time. A row with two or three candidates goes without a label until an epoch of
// tiles is through: then all warps compute such rows again from memory, sort them by label and add them to the sums. Of
// a row with more candidates, a decider computes the label at once.
#pragma once

#include "vispark/nearest_ring.h"

namespace nearest {

// N is K rounded up to a multiple of 8, D a multiple of 4. SLOTS tiles in the ring. Work is for two neighbouring thread
// blocks of THREADS, a cluster.
template <int N, int K, int D, int SLOTS, Nan nan, class C> struct Pair {
    static constexpr int ADDERS = 8, MULTIPLIERS = 4, DECIDERS = 2, THREADS = 512;
    static constexpr int FIRST_MULTIPLIER = ADDERS, FIRST_DECIDER = FIRST_MULTIPLIER + MULTIPLIERS;
    static constexpr int LOADER = FIRST_DECIDER + DECIDERS;
    static constexpr int TILE = 16, QUARTER = 4, QUARTERS = TILE / QUARTER, HALF = TILE / 2, FLUSH = 4096;
    // Tiles of an epoch, and the rows of it that a decider may leave open; rows on their way while these are added.
    static constexpr int EPOCH = 1024, OPEN = 1024, ROWS_AHEAD = 16;
    // Steps of 16 columns: block 0 has OWN_STEPS, block 1 the others, and each multiplier SHORT of them or one more.
    static constexpr int STEPS = (D + 15) / 16, OWN_STEPS = (STEPS + 1) / 2, SHORT = STEPS / 2 / MULTIPLIERS;
    // Rows lie so far apart that those of neighbouring lanes are in different banks.
    static constexpr int PITCH = (OWN_STEPS | 1) * 16;
    // An adder's centres, and the columns of a lane of it.
    static constexpr int OWN = (K + ADDERS - 1) / ADDERS, COLUMNS = (OWN_STEPS * 16 + 31) / 32;
    // Two tiles of 8 centres side by side are one read, and those of a lane one store, where they are even.
    static constexpr int NT = N / 8, WIDE = NT % 2 ? 2 : 4, PACKS = NT * 2 / WIDE;
    static constexpr int SENDERS = 2 * MULTIPLIERS, SENT = 32 * (NT * 8 + 4);
    static constexpr unsigned NONE = 255;

    typedef Shape<N, K, D, THREADS, 0, TILE, 1, 1, nan, float, C, 1> Prepared;

    // Rows that were left open, and their order by label.
    struct Late {
        unsigned short rows[2 * DECIDERS * OPEN], order[2 * DECIDERS * OPEN];
        unsigned char labels[2 * DECIDERS * OPEN];
        int places[THREADS / 32 * K], start[K + 1];
    };

    struct Room {
        union {                                                 // between epochs no rows are on their way
            float rows[SLOTS][TILE][PITCH];
            Late late;
        };
        unsigned char image[OWN_STEPS * N * 32];
        float scores[DECIDERS][SENDERS][PACKS][32][WIDE];             // of both blocks' multipliers
        float norms[DECIDERS][SENDERS][32];
        float means[STEPS * 16], numbers[NUMBERS * N], greatest[NUMBERS];
        unsigned long long labels[SLOTS][2];                    // a byte a row
        int open[DECIDERS][OPEN];                               // a row's number in the epoch, and two candidates
        unsigned char third[DECIDERS][OPEN];                    // one more, or one of these
        int left_open[2][DECIDERS];                             // how many, in one epoch and the next
        Bar full[SLOTS], empty[SLOTS][QUARTERS], labelled[SLOTS], scored[DECIDERS], taken[DECIDERS];
        int counts[K];
    };

    // A block's share of an epoch's tiles: all rows, some columns.
    struct Given {
        const float* x;
        int rows, first, end, first_step, steps, columns;
        unsigned rank;
    };

    // Where a number of the centres' image lies: as in the step that tensor.h has, but what a lane takes of two tiles
    // of 8 centres side by side.
    struct Place {
        static __device__ __forceinline__ int of(int n, int c)
        {
            const int lane = n % 8 * 4 + c / 4, word = c % 4 / 2, tile = n / 8;
            const int pair = NT % 2 ? tile * 32 + lane : (tile / 2 * 32 + lane) * 2 + tile % 2;
            return (pair * 2 + word) * 2 + c % 2;
        }
    };

    // The sums of a work's rows by label, and in room.counts of block 0 how many there are. Whether the thread is one
    // of those that know these; the others have nothing left to do.
    static __device__ bool fold(const float* x, long long rows, Room& room, const C* centres, double* sums)
    {
        const int tiles = (int)((rows + TILE - 1) / TILE);
        const unsigned rank = tensor::rank();
        Given given = {x, (int)rows, 0, 0, 0, OWN_STEPS, OWN_STEPS * 16, rank};
        if (rank) {
            given.first_step = OWN_STEPS;
            given.steps = STEPS - OWN_STEPS;
            given.columns = D - OWN_STEPS * 16;
        }
        const Factors factors = Prepared::template factors<SHORT + 2, Place>(room, nullptr, centres, given.first_step,
                                                                             given.steps);
        prepare(room);
        __syncthreads();
        tensor::join_cluster();
        #pragma unroll 1
        for (int turn = 0; given.first < tiles || given.first == 0; turn ^= 1, given.first += EPOCH) {
            given.end = min(given.first + EPOCH, tiles);
            take_part(room, factors, given, centres, sums, turn);
            settle(room, given, centres, sums, turn);
        }
        if (rank == 0)
            for (int k = tensor::thread(); k < K; k += THREADS) room.counts[k] += tensor::there(&room.counts[k], 1);
        tensor::join_cluster();
        return rank == 0 && tensor::thread() < FIRST_MULTIPLIER * 32;
    }

    // The warp's role, until both blocks are through. Registers go back where all have left what they took.
    static __device__ __forceinline__ void take_part(Room& room, const Factors& factors, const Given& given,
                                                     const C* centres, double* sums, int turn)
    {
        const int warp = tensor::thread() / 32;
        if (warp < FIRST_MULTIPLIER) {
            tensor::take_registers<168>();
            add(room, given, sums);
            tensor::leave_registers<128>();
            tensor::join_cluster();
        } else if (warp < FIRST_DECIDER) {
            tensor::leave_registers<112>();
            multiply(room, factors, given, warp - FIRST_MULTIPLIER);
            tensor::join_cluster();
            tensor::take_registers<128>();
        } else {
            tensor::leave_registers<64>();
            if (warp < LOADER) decide(room, factors, given, centres, warp - FIRST_DECIDER, turn);
            else if (warp == LOADER) load(room, given);
            tensor::join_cluster();
            tensor::take_registers<128>();
        }
    }

    // Rows that both blocks left open get labels, and are added to the sums of the own columns.
    static __device__ __forceinline__ void settle(Room& room, const Given& given, const C* centres, double* sums,
                                                  int turn)
    {
        const int own = room.left_open[turn][0], both = own + room.left_open[turn][1], warp = tensor::thread() / 32;
        int ends[2 * DECIDERS], all = 0;
        for (int i = 0; i < 2 * DECIDERS; i++)
            ends[i] = all += tensor::there(&room.left_open[turn][i % DECIDERS], i / DECIDERS);
        if (all == 0) return;
        const float* const x = given.x + (long long)given.first * TILE * D;
        #pragma unroll 1
        for (int i = warp; i < both; i += THREADS / 32) {
            const int list = i < own ? 0 : 1, place = i - list * own;
            int* const at = &room.open[list][place];
            const unsigned row = *at & 0xffff, low = *at >> 16 & 0xff, high = (unsigned)*at >> 24;
            const unsigned third = room.third[list][place];
            const int label = again<N, K, D, nan, 25>(
                [&](unsigned q) { return mask_of(low, q) | mask_of(high, q) | mask_of(third, q); }, false,
                x + (long long)row * D, centres);
            if (tensor::thread() % 32) continue;
            *at = row | label << 16;
            atomicAdd(&room.counts[label], 1);
        }
        tensor::join_cluster();
        Late& late = room.late;
        #pragma unroll 1
        for (int i = tensor::thread(), list = 0; i < all; i += THREADS) {
            while (i >= ends[list]) list++;
            const int place = list ? i - ends[list - 1] : i;
            const int row = tensor::there(&room.open[list % DECIDERS][place], list / DECIDERS);
            late.rows[i] = (unsigned short)row;
            late.labels[i] = (unsigned char)(row >> 16);
        }
        tensor::join_cluster();
        sort<K, THREADS>(late.labels, all, late.order, late.places, late.start);
        gather<K, D, THREADS, ROWS_AHEAD, OWN_STEPS * 16>(x + given.first_step * 16, given.columns,
                                                          [&](int i) { return late.rows[late.order[i]]; }, late.start,
                                                          sums + given.first_step * 16, false);
        // Bulk copies write there next.
        tensor::publish();
        __syncthreads();
    }
    // A candidate as a bit of the q-th of four masks.
    static __device__ __forceinline__ unsigned long long mask_of(unsigned n, unsigned q)
    {
        return n % 8 / 2 == q ? 1ull << (n / 8 * 2 + n % 2) : 0;
    }

    static __device__ __forceinline__ void prepare(Room& room)
    {
        for (int k = threadIdx.x; k < K; k += THREADS) room.counts[k] = 0;
        if (threadIdx.x) return;
        for (int slot = 0; slot < SLOTS; slot++) {
            tensor::prepare(tensor::shared_of(&room.full[slot]), QUARTERS);
            for (int i = 0; i < QUARTERS; i++) tensor::prepare(tensor::shared_of(&room.empty[slot][i]), ADDERS);
            tensor::prepare(tensor::shared_of(&room.labelled[slot]), 1);
        }
        for (int i = 0; i < DECIDERS; i++) {
            tensor::prepare(tensor::shared_of(&room.scored[i]), MULTIPLIERS);
            tensor::prepare(tensor::shared_of(&room.taken[i]), 2);
        }
        tensor::prepared();
    }

    // -- the loader, one warp, a lane for each row of a quarter -------------------------------------------------------

    static __device__ __forceinline__ void load(Room& room, const Given& given)
    {
        const int lane = tensor::thread() % 32;
        Turn<SLOTS> at(given.first);
        #pragma unroll 1
        for (int tile = given.first; tile < given.end; tile++, at.next())
            #pragma unroll 1
            for (int quarter = 0; quarter < QUARTERS; quarter++) {
                const int first = tile * TILE + quarter * QUARTER, rows = max(0, min(QUARTER, given.rows - first));
                wait(room.empty[at.slot][quarter], at.turn + 1);
                const tensor::Shared full = tensor::shared_of(&room.full[at.slot]);
                if (lane == 0) tensor::expect(full, rows * given.columns * 4);
                __syncwarp();
                if (lane < rows)
                    tensor::add_once(tensor::shared_of(room.rows[at.slot][quarter * QUARTER + lane]),
                                     given.x + (long long)(first + lane) * D + given.first_step * 16, given.columns * 4,
                                     full);
            }
    }

    // -- multipliers --------------------------------------------------------------------------------------------------

    static __device__ __forceinline__ void multiply(Room& room, const Factors& factors, const Given& given, int number)
    {
        const int lane = tensor::thread() % 32, t = lane % 4, g = lane / 4, longer = given.steps - SHORT * MULTIPLIERS;
        const int step = number * SHORT + min(number, longer);
        const uint2* const image = (const uint2*)room.image + step * NT * 32 + (NT % 2 ? lane : 2 * lane);
        const float* const means = room.means + (given.first_step + step) * 16 + t * 4;
        Turn<SLOTS> at(given.first);
        #pragma unroll 1
        for (int tile = given.first; tile < given.end; tile++, at.next()) {
            float acc[NT][4], norms[2] = {0, 0};
            #pragma unroll
            for (int j = 0; j < NT; j++) acc[j][0] = acc[j][1] = acc[j][2] = acc[j][3] = 0;
            const float* const x = room.rows[at.slot][g] + step * 16 + t * 4;
            wait(room.full[at.slot], at.turn);
            #pragma unroll
            for (int s = 0; s < SHORT; s++)
                multiply_step(acc, norms, x + s * 16, means + s * 16, image + s * NT * 32, factors.scale,
                              has_columns<D>(given.first_step + step + s, t));
            if (number < longer)
                multiply_step(acc, norms, x + SHORT * 16, means + SHORT * 16, image + SHORT * NT * 32, factors.scale,
                              has_columns<D>(given.first_step + step + SHORT, t));
            wait(room.taken[tile % DECIDERS], tile / DECIDERS + 1);
            leave(room, given.rank, tile % DECIDERS, number, acc, norms);
        }
    }

    // 16 columns of 16 rows.
    static __device__ __forceinline__ void multiply_step(float (&acc)[NT][4], float (&norms)[2], const float* x,
                                                         const float* means, const uint2* image, float scale,
                                                         bool there)
    {
        const float4 none = make_float4(0, 0, 0, 0), mean = *(const float4*)means;
        const float4 a = from(mean, scale, there ? *(const float4*)x : none);
        const float4 b = from(mean, scale, there ? *(const float4*)(x + 8 * PITCH) : none);
        norms[0] = squares(a, norms[0]);
        norms[1] = squares(b, norms[1]);
        const unsigned row[4] = {tensor::pack(a.x, a.y), tensor::pack(b.x, b.y), tensor::pack(a.z, a.w),
                                 tensor::pack(b.z, b.w)};
        alignas(16) uint2 factor[NT];
        #pragma unroll
        for (int j = 0; j < NT; j++)
            if (NT % 2) factor[j] = image[j * 32];
            else if (j % 2 == 0) *(uint4*)(factor + j) = *(const uint4*)(image + j * 32);
        #pragma unroll
        for (int j = 0; j < NT; j++) {
            const unsigned two[2] = {factor[j].x, factor[j].y};
            tensor::mma(acc[j], row, two);
        }
    }

    // Scores of the eight rows that the own block labels stay, those of the others go over.
    static __device__ __forceinline__ void leave(Room& room, unsigned rank, int buffer, int number,
                                                 const float (&acc)[NT][4], const float (&norms)[2])
    {
        const int lane = tensor::thread() % 32, from = rank * MULTIPLIERS + number;
        Bar* const scored = &room.scored[buffer];
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            const bool over = h != (int)rank;
            #pragma unroll
            for (int p = 0; p < PACKS; p++) {
                float* const to = room.scores[buffer][from][p][lane];
                if (WIDE == 4) {
                    const float4 four = make_float4(acc[2 * p][2 * h], acc[2 * p][2 * h + 1],
                                                    acc[(2 * p + 1) % NT][2 * h], acc[(2 * p + 1) % NT][2 * h + 1]);
                    if (over) tensor::send(to, rank ^ 1, four, scored);
                    else *(float4*)to = four;
                } else {
                    const float2 two = make_float2(acc[p % NT][2 * h], acc[p % NT][2 * h + 1]);
                    if (over) tensor::send(to, rank ^ 1, two, scored);
                    else *(float2*)to = two;
                }
            }
            float* const to = &room.norms[buffer][from][lane];
            if (over) tensor::send(to, rank ^ 1, norms[h], scored);
            else *to = norms[h];
        }
        __syncwarp();
        // The warp of the same number of the other block sends as much.
        if (lane == 0) tensor::expect(tensor::shared_of(scored), SENT);
    }

    // -- deciders -----------------------------------------------------------------------------------------------------

    // The labels of the block's half of every second tile, by four lanes a row.
    static __device__ __forceinline__ void decide(Room& room, const Factors& factors, const Given& given,
                                                  const C* centres, int number, int turn)
    {
        const int lane = tensor::thread() % 32, row = given.rank * HALF + lane / 4;
        int left = 0;
        #pragma unroll 1
        for (int tile = given.first + number; tile < given.end; tile += DECIDERS) {
            float score[N / 4];
            unsigned long long candidates;
            wait(room.scored[number], tile / DECIDERS);
            const float norm = add_parts(room, number, score);
            arrive(room.taken[number]);
            if (lane == 0) tensor::arrive_there(&room.taken[number], given.rank ^ 1);
            const long long place = (long long)tile * TILE + row;
            const bool is_row = place < given.rows, all = !(norm < factors.limit);
            int label = nearest_by<N>(factors, score, norm, candidates);
            unsigned open = __ballot_sync(~0u, lane % 4 == 0 && is_row && (all || label < 0));
            if (open)
                open = leave_open(room, number, left, (tile - given.first) * TILE + row, open, candidates, all);
            if (open) {
                const float* const rows = given.x + ((long long)tile * TILE + given.rank * HALF) * D;
                label = labels_of_open<N, K, D, nan>([&](int i) { return rows + (long long)i * D; }, centres, open,
                                                     candidates, all, label);
            }
            if (lane % 4 == 0 && is_row && label >= 0) atomicAdd(&room.counts[label], 1);
            tell(room, given.rank, tile % SLOTS, is_row && label >= 0 ? (unsigned)label : NONE);
        }
        if (lane == 0) room.left_open[turn][number] = left;
    }

    // Of the rows whose first lane is in `open`, those that are not left open for later.
    static __device__ __forceinline__ unsigned leave_open(Room& room, int list, int& left, int number, unsigned open,
                                                          unsigned long long candidates, bool all)
    {
        const int lane = tensor::thread() % 32;
        int count = 0, sum = 0, low = N, high = 0;
        for (unsigned long long rest = candidates; rest; rest &= rest - 1) {
            const int bit = __ffsll(rest) - 1, n = bit / 2 * 8 + 2 * (lane % 4) + bit % 2;
            count++;
            sum += n;
            low = min(low, n);
            high = max(high, n);
        }
        for (int apart = 1; apart < 4; apart *= 2) {
            count += __shfl_xor_sync(~0u, count, apart);
            sum += __shfl_xor_sync(~0u, sum, apart);
            low = min(low, __shfl_xor_sync(~0u, low, apart));
            high = max(high, __shfl_xor_sync(~0u, high, apart));
        }
        const unsigned later = __ballot_sync(~0u, open >> lane & 1 && (count == 2 || count == 3) && !all);
        const int place = left + __popc(later & ((1u << lane) - 1));
        const bool fits = later >> lane & 1 && place < OPEN;
        if (fits) {
            room.open[list][place] = number | low << 16 | high << 24;
            room.third[list][place] = (unsigned char)(count == 2 ? low : sum - low - high);
        }
        left = min(OPEN, left + __popc(later));
        return open & ~__ballot_sync(~0u, fits);
    }

    // A lane's scores by all multipliers, and |x - m|^2.
    static __device__ __forceinline__ float add_parts(const Room& room, int buffer, float (&score)[N / 4])
    {
        const int lane = tensor::thread() % 32;
        float norm = 0;
        #pragma unroll
        for (int i = 0; i < N / 4; i++) score[i] = 0;
        #pragma unroll
        for (int from = 0; from < SENDERS; from++) {
            #pragma unroll
            for (int p = 0; p < PACKS; p++) {
                const float* const at = room.scores[buffer][from][p][lane];
                float given[WIDE];
                if (WIDE == 4) *(float4*)given = *(const float4*)at;
                else *(float2*)given = *(const float2*)at;
                #pragma unroll
                for (int i = 0; i < WIDE; i++) score[p * WIDE + i] += given[i];
            }
            norm += room.norms[buffer][from][lane];
        }
        for (int apart = 1; apart < 4; apart *= 2) norm += __shfl_xor_sync(~0u, norm, apart);
        return norm;
    }

    // Eight labels, one in the first of each four lanes, to the adders of both blocks.
    static __device__ __forceinline__ void tell(Room& room, unsigned rank, int slot, unsigned label)
    {
        const int lane = tensor::thread() % 32;
        unsigned word = __shfl_sync(~0u, label, lane & ~3) << lane / 4 % 4 * 8;
        for (int apart = 4; apart < 16; apart *= 2) word |= __shfl_xor_sync(~0u, word, apart);
        const unsigned high = __shfl_sync(~0u, word, 16);
        if (lane) return;
        const unsigned long long labels = (unsigned long long)high << 32 | word;
        room.labels[slot][rank] = labels;
        tensor::expect(tensor::shared_of(&room.labelled[slot]), 8);
        tensor::send(&room.labels[slot][rank], rank ^ 1, labels, &room.labelled[slot]);
    }

    // -- adders -------------------------------------------------------------------------------------------------------

    static __device__ __forceinline__ void add(Room& room, const Given& given, double* sums)
    {
        const int lane = tensor::thread() % 32, group = tensor::thread() / 32;
        float near[OWN * COLUMNS];
        #pragma unroll
        for (int i = 0; i < OWN * COLUMNS; i++) near[i] = 0;
        int since = 0;
        bool started = given.first > 0;
        Turn<SLOTS> at(given.first);
        #pragma unroll 1
        for (int tile = given.first; tile < given.end; tile++, at.next()) {
            wait(room.labelled[at.slot], at.turn);
            wait(room.full[at.slot], at.turn);
            const int label = ((const unsigned char*)room.labels[at.slot])[lane % TILE], mine = label - group * OWN;
            const unsigned rows = __ballot_sync(~0u, label != NONE && mine >= 0 && mine < OWN) & 0xffff;
            add_rows(room, given, at.slot, rows, mine, near);
            since += TILE;
            if (since < FLUSH) continue;
            flush(given, sums, group, near, started);
            started = true;
            since = 0;
        }
        if (since || !started) flush(given, sums, group, near, started);
    }

    // The rows of a tile whose labels are the warp's own, quarter by quarter.
    static __device__ __forceinline__ void add_rows(Room& room, const Given& given, int slot, unsigned rows, int mine,
                                                    float (&near)[OWN * COLUMNS])
    {
        const int lane = tensor::thread() % 32;
        #pragma unroll 1
        for (int quarter = 0; quarter < QUARTERS; quarter++) {
            #pragma unroll 1
            for (unsigned some = rows & (15u << quarter * QUARTER); some; some &= some - 1) {
                const int number = __ffs(some) - 1;
                const float* const from = room.rows[slot][number];
                float row[COLUMNS];
                #pragma unroll
                for (int c = 0; c < COLUMNS; c++)
                    row[c] = from[c < COLUMNS - 2 ? lane + c * 32 : min(lane + c * 32, given.columns - 1)];
                Jump<OWN, COLUMNS>::add(near, __shfl_sync(~0u, mine, number), row);
            }
            arrive(room.empty[slot][quarter]);
        }
    }

    // What was added up in float goes to the sums, or starts them.
    static __device__ __forceinline__ void flush(const Given& given, double* sums, int group,
                                                 float (&near)[OWN * COLUMNS], bool started)
    {
        const int q = tensor::thread() % 32;
        double* const out = sums + (long long)group * OWN * D + given.first_step * 16 + q;
        #pragma unroll
        for (int k = 0; k < OWN; k++) {
            double before[COLUMNS];
            #pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                const bool there = group * OWN + k < K && q + c * 32 < given.columns;
                before[c] = started && there ? out[k * D + c * 32] : 0.0;
            }
            #pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                if (group * OWN + k < K && q + c * 32 < given.columns)
                    out[k * D + c * 32] = before[c] + near[k * COLUMNS + c];
                near[k * COLUMNS + c] = 0;
            }
        }
    }
};

}  // namespace nearest
