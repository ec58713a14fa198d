// The sums of rows by their nearest centre in one pass, by pairs of thread blocks that deal the columns of a row: for
// sums that fit the registers of two multiprocessors, and not those of one. Roles are as in nearest_roles.h, but:
//
// Of each tile of 16 rows block 0 labels the first eight and block 1 the others, the two deciders of a block every
// second tile. Scores of the other block's rows go over, and labels come back, by stores that count at a barrier of the
// receiver, so that nobody waits for a pair. Products are taken of rows as one float16, which leaves more rows open
// than two do and takes half the time. A row with two or three candidates comes again in a late tile, as nearest_late.h
// has it: each block has parts of the distances, by its columns. Of a row with more candidates, a decider computes the
// label at once.
#pragma once

#include "vispark/nearest_late.h"

namespace nearest {

// N is K rounded up to a multiple of 8, D a multiple of 4. SLOTS tiles in the ring. Work is for two neighbouring thread
// blocks of THREADS, a cluster.
template <int N, int K, int D, int SLOTS, Nan nan, class C> struct Pair {
    static constexpr int ADDERS = 8, TEAMS = 2, MEMBERS = 2, MULTIPLIERS = TEAMS * MEMBERS, THREADS = 512;
    static constexpr int DECIDERS = TEAMS;
    static constexpr int FIRST_MULTIPLIER = ADDERS, FIRST_DECIDER = FIRST_MULTIPLIER + MULTIPLIERS;
    static constexpr int LOADER = FIRST_DECIDER + DECIDERS;
    static constexpr int TILE = 16, QUARTER = 4, QUARTERS = TILE / QUARTER, HALF = TILE / 2, FLUSH = 4096;
    // Tiles of an epoch, and the rows of these that a decider has.
    static constexpr int EPOCH = 48, DECIDED = EPOCH / DECIDERS * HALF;
    // Steps of 16 columns: block 0 has OWN_STEPS, block 1 the others, and each of a team SHORT of them or one more.
    static constexpr int STEPS = (D + 15) / 16, OWN_STEPS = (STEPS + 1) / 2, SHORT = STEPS / 2 / MEMBERS;
    // Rows lie so far apart that those of neighbouring lanes are in different banks.
    static constexpr int PITCH = (OWN_STEPS | 1) * 16;
    // An adder's centres, and the columns of a lane of it.
    static constexpr int OWN = (K + ADDERS - 1) / ADDERS, COLUMNS = (OWN_STEPS * 16 + 31) / 32;
    // Two tiles of 8 centres side by side are one read, and those of a lane one store, where they are even.
    static constexpr int NT = N / 8, WIDE = NT % 2 ? 2 : 4, PACKS = NT * 2 / WIDE;
    static constexpr int SENDERS = 2 * MEMBERS, SENT = 32 * (NT * 8 + 4);
    static constexpr unsigned NONE = 255;

    typedef Shape<N, K, D, THREADS, 0, TILE, 1, 1, nan, float, C, 1> FactorShape;

    typedef nearest::Late<EPOCH, TILE, SLOTS, DECIDERS, 2, DECIDED> Late;
    typedef typename Late::Tile Tile;
    typedef typename Late::Rows LateRows;

    struct SharedStorage {
        float rows[SLOTS][TILE][PITCH];
        unsigned char image[OWN_STEPS * N * 32];
        // Of both blocks' multipliers of a team: scores, or of a late tile distances of half the rows.
        union alignas(16) {
            float scores[PACKS][32][WIDE];
            Distances<C> distances[HALF];
        } parts[DECIDERS][SENDERS];
        float norms[DECIDERS][SENDERS][32];
        float means[STEPS * 16], numbers[NUMBERS * N], greatest[NUMBERS];
        unsigned long long labels[SLOTS][2];                    // a byte a row
        typename Late::Notes notes;
        Bar full[SLOTS], empty[SLOTS][QUARTERS], labelled[SLOTS], scored[DECIDERS], taken[DECIDERS];
        int counts[K];
    };

    // A block's share of a work: all rows, some columns.
    struct Task {
        const float* x;
        int rows, first_step, steps, columns;
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

    // The sums of a work's rows by label, and in storage.counts of block 0 how many there are. Whether the thread is
    // one of those that know these; the others have nothing left to do.
    static __device__ bool fold(const float* x, long long rows, SharedStorage& storage, const C* centres, double* sums)
    {
        const unsigned rank = tensor::rank();
        Task task = {x, (int)rows, 0, OWN_STEPS, OWN_STEPS * 16, rank};
        if (rank) {
            task.first_step = OWN_STEPS;
            task.steps = STEPS - OWN_STEPS;
            task.columns = D - OWN_STEPS * 16;
        }
        const Factors factors = FactorShape::template factors<SHORT + 2, Place>(storage, nullptr, centres,
                                                                             task.first_step, task.steps);
        prepare(storage);
        __syncthreads();
        tensor::join_cluster();
        const int warp = tensor::thread() / 32;
        if (warp < FIRST_MULTIPLIER) {
            tensor::take_registers<168>();
            add(storage, task, sums);
        } else if (warp < FIRST_DECIDER) {
            tensor::leave_registers<112>();
            multiply(storage, factors, task, centres, warp - FIRST_MULTIPLIER);
        } else {
            tensor::leave_registers<64>();
            if (warp < LOADER) decide(storage, factors, task, centres, warp - FIRST_DECIDER);
            else if (warp == LOADER) load(storage, task);
        }
        tensor::join_cluster();
        if (warp >= FIRST_MULTIPLIER || rank) {
            tensor::join_cluster();
            return false;
        }
        for (int k = tensor::thread(); k < K; k += FIRST_MULTIPLIER * 32)
            storage.counts[k] += tensor::there(&storage.counts[k], 1);
        tensor::join_cluster();
        return true;
    }

    static __device__ __forceinline__ void prepare(SharedStorage& storage)
    {
        for (int k = threadIdx.x; k < K; k += THREADS) storage.counts[k] = 0;
        if (threadIdx.x) return;
        for (int slot = 0; slot < SLOTS; slot++) {
            tensor::prepare(tensor::shared_of(&storage.full[slot]), 1);
            for (int i = 0; i < QUARTERS; i++) tensor::prepare(tensor::shared_of(&storage.empty[slot][i]), ADDERS);
            tensor::prepare(tensor::shared_of(&storage.labelled[slot]), 1);
        }
        for (int i = 0; i < DECIDERS; i++) {
            tensor::prepare(tensor::shared_of(&storage.scored[i]), MEMBERS);
            tensor::prepare(tensor::shared_of(&storage.taken[i]), 2);
        }
        Late::prepare(storage.notes);
        tensor::prepared();
    }

    // -- the loader, one warp, a lane for each row of a tile ----------------------------------------------------------

    static __device__ __forceinline__ void load(SharedStorage& storage, const Task& task)
    {
        const int lane = tensor::thread() % 32;
        const float* const x = task.x + task.first_step * 16;
        auto bring = [&](const Tile& tile, int rows, long long row) {
            const float* const from = x + row * D;
            const tensor::Shared full = tensor::shared_of(&storage.full[tile.slot]);
            const tensor::Shared to = tensor::shared_of(storage.rows[tile.slot][lane % TILE]);
            // A tile of few rows is full before the other quarters of its place are task back, which nobody waits for.
            wait(storage.empty[tile.slot][0], tile.turn + 1);
            if (lane == 0) tensor::expect(full, rows * task.columns * 4);
            __syncwarp();
            #pragma unroll 1
            for (int quarter = 0; quarter < QUARTERS; quarter++) {
                if (quarter) wait(storage.empty[tile.slot][quarter], tile.turn + 1);
                if (lane / QUARTER == quarter && lane < rows) tensor::add_once(to, from, task.columns * 4, full);
            }
        };
        Late::over_tiles(
            storage.notes, task.rows,
            [&](const Tile& tile) { bring(tile, min(TILE, task.rows - tile.first), tile.first + lane); },
            [](int) {},
            [&](const Tile& tile, const LateRows& late) {
                const int rows = min(TILE, late.count - tile.first);
                bring(tile, rows, late.first() + late[tile.first + min(lane, rows - 1)].row());
            });
    }

    // -- multipliers --------------------------------------------------------------------------------------------------

    static __device__ __forceinline__ void multiply(SharedStorage& storage, const Factors& factors, const Task& task,
                                                    const C* centres, int number)
    {
        const int lane = tensor::thread() % 32, t = lane % 4, g = lane / 4;
        const int team = number / MEMBERS, member = number % MEMBERS, longer = task.steps - SHORT * MEMBERS;
        const int step = member * SHORT + min(member, longer);
        const uint2* const image = (const uint2*)storage.image + step * NT * 32 + (NT % 2 ? lane : 2 * lane);
        const float* const means = storage.means + (task.first_step + step) * 16 + t * 4;
        auto take = [&](const Tile& tile) {
            if (tile.number % TEAMS != team) return;
            await_rows(storage, tile);
            float acc[NT][4], norms[2] = {0, 0};
            #pragma unroll
            for (int j = 0; j < NT; j++) acc[j][0] = acc[j][1] = acc[j][2] = acc[j][3] = 0;
            const float* const x = storage.rows[tile.slot][g] + step * 16 + t * 4;
            // Written out, the steps take more room than a warp's instructions have nearby.
            #pragma unroll 2
            for (int s = 0; s < SHORT; s++)
                multiply_step(acc, norms, x + s * 16, means + s * 16, image + s * NT * 32, factors.scale,
                              has_columns<D>(task.first_step + step + s, t));
            if (member < longer)
                multiply_step(acc, norms, x + SHORT * 16, means + SHORT * 16, image + SHORT * NT * 32, factors.scale,
                              has_columns<D>(task.first_step + step + SHORT, t));
            wait(storage.taken[team], tile.number / TEAMS + 1);
            leave(storage, task.rank, team, member, acc, norms);
        };
        Late::over_tiles(storage.notes, task.rows, take, [](int) {}, [&](const Tile& tile, const LateRows& late) {
            if (tile.number % TEAMS == team) measure(storage, task, centres, team, member, tile, late);
        });
    }

    // Of an odd number of places a team has every second turn, so it has not waited for the one before: that is over
    // when the place is task back. Else what it waits for would be taken for the turn before that.
    static __device__ __forceinline__ void await_rows(SharedStorage& storage, const Tile& tile)
    {
        if (SLOTS % TEAMS) wait(storage.empty[tile.slot][0], tile.turn + 1);
        wait(storage.full[tile.slot], tile.turn);
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

    // The parts of the distances of half a late tile's rows go to the block that labels these.
    static __device__ __forceinline__ void measure(SharedStorage& storage, const Task& task, const C* centres,
                                                   int team, unsigned half, const Tile& tile, const LateRows& late)
    {
        const int lane = tensor::thread() % 32, row = tile.first + half * HALF + lane;
        const unsigned bits = lane < HALF && row < late.count ? late[row].bits : 0;
        const C* const own = centres + task.first_step * 16;
        await_rows(storage, tile);
        const Distances<C> parts = nearest::measure<HALF, COLUMNS, D, PITCH>(bits, storage.rows[tile.slot][half * HALF],
                                                                            own, task.columns);
        wait(storage.taken[team], tile.number / TEAMS + 1);
        Bar* const scored = &storage.scored[team];
        Distances<C>* const place = &storage.parts[team][task.rank * MEMBERS + half].distances[lane / 4];
        if (lane % 4 == 0) {
            if (half == task.rank) *place = parts;
            else
                #pragma unroll
                for (int i = 0; i < (int)sizeof parts / 16; i++)
                    tensor::send((float*)place + 4 * i, half, ((const float4*)&parts)[i], scored);
        }
        __syncwarp();
        // The warp of the same number of the other block sends what goes to this one.
        if (lane == 0) tensor::expect(tensor::shared_of(scored), half == task.rank ? HALF * sizeof parts : 0);
    }

    // Scores of the eight rows that the own block labels stay, those of the others go over.
    static __device__ __forceinline__ void leave(SharedStorage& storage, unsigned rank, int buffer, int member,
                                                 const float (&acc)[NT][4], const float (&norms)[2])
    {
        const int lane = tensor::thread() % 32, from = rank * MEMBERS + member;
        Bar* const scored = &storage.scored[buffer];
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            const bool over = h != (int)rank;
            #pragma unroll
            for (int p = 0; p < PACKS; p++) {
                float* const to = storage.parts[buffer][from].scores[p][lane];
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
            float* const to = &storage.norms[buffer][from][lane];
            if (over) tensor::send(to, rank ^ 1, norms[h], scored);
            else *to = norms[h];
        }
        __syncwarp();
        // The warp of the same number of the other block sends as much.
        if (lane == 0) tensor::expect(tensor::shared_of(scored), SENT);
    }

    // -- deciders -----------------------------------------------------------------------------------------------------

    // The labels of the block's half of every second tile, by four lanes a row.
    static __device__ __forceinline__ void decide(SharedStorage& storage, const Factors& factors, const Task& task,
                                                  const C* centres, int decider)
    {
        const int lane = tensor::thread() % 32, row = task.rank * HALF + lane / 4;
        int noted = 0;
        auto take = [&](const Tile& tile) {
            if (tile.number % DECIDERS != decider) return;
            float score[N / 4];
            unsigned long long candidates;
            wait(storage.scored[decider], tile.number / DECIDERS);
            const float norm = add_parts(storage, decider, score);
            give_back(storage, task.rank, decider);
            const bool is_row = tile.first + row < task.rows, all = !(norm < factors.limit);
            int label = nearest_by<N>(factors, score, norm, candidates);
            unsigned open = __ballot_sync(~0u, lane % 4 == 0 && is_row && (all || label < 0));
            if (open)
                open = Late::template note<N>(storage.notes, decider, noted, tile.first + row, open, candidates, all);
            if (open) {
                const float* const rows = task.x + (long long)(tile.first + task.rank * HALF) * D;
                label = labels_of_open<N, K, D, nan>([&](int i) { return rows + (long long)i * D; }, centres, open,
                                                     candidates, all, label);
            }
            tell(storage, task.rank, tile.slot, is_row && label >= 0 ? (unsigned)label : NONE);
        };
        Late::over_tiles(
            storage.notes, task.rows, take, [&](int epoch) { Late::end_notes(storage.notes, epoch, decider, noted); },
            [&](const Tile& tile, const LateRows& late) {
                if (tile.number % DECIDERS == decider) decide_late(storage, task, centres, decider, tile, late);
            });
    }

    static __device__ __forceinline__ void decide_late(SharedStorage& storage, const Task& task, const C* centres,
                                                       int decider, const Tile& tile, const LateRows& late)
    {
        const int lane = tensor::thread() % 32, row = task.rank * HALF + lane / 4;
        const bool is_row = tile.first + row < late.count;
        const LateRow one = {is_row ? late[tile.first + row].bits : 0};
        wait(storage.scored[decider], tile.number / DECIDERS);
        Distances<C> distances = storage.parts[decider][task.rank].distances[lane / 4];
        const Distances<C>& others = storage.parts[decider][MEMBERS + task.rank].distances[lane / 4];
        #pragma unroll
        for (int i = 0; i < 3; i++) distances.of[i] += others.of[i];
        give_back(storage, task.rank, decider);
        const int label = nearest_of_late<COLUMNS, D>(one, distances, is_row, centres, [&](int, LateRow late_row) {
            return task.x + (late.first() + late_row.row()) * D;
        });
        tell(storage, task.rank, tile.slot, is_row ? (unsigned)label : NONE);
    }

    // Parts are added up: there is room for others, from both blocks.
    static __device__ __forceinline__ void give_back(SharedStorage& storage, unsigned rank, int buffer)
    {
        arrive(storage.taken[buffer]);
        if (tensor::thread() % 32 == 0) tensor::arrive_there(&storage.taken[buffer], rank ^ 1);
    }

    // A lane's scores by all multipliers, and |x - m|^2.
    static __device__ __forceinline__ float add_parts(const SharedStorage& storage, int buffer, float (&score)[N / 4])
    {
        const int lane = tensor::thread() % 32;
        float norm = 0;
        #pragma unroll
        for (int i = 0; i < N / 4; i++) score[i] = 0;
        #pragma unroll
        for (int from = 0; from < SENDERS; from++) {
            #pragma unroll
            for (int p = 0; p < PACKS; p++) {
                const float* const at = storage.parts[buffer][from].scores[p][lane];
                float task[WIDE];
                if (WIDE == 4) *(float4*)task = *(const float4*)at;
                else *(float2*)task = *(const float2*)at;
                #pragma unroll
                for (int i = 0; i < WIDE; i++) score[p * WIDE + i] += task[i];
            }
            norm += storage.norms[buffer][from][lane];
        }
        for (int offset = 1; offset < 4; offset *= 2) norm += __shfl_xor_sync(~0u, norm, offset);
        return norm;
    }

    // Eight labels, one in the first of each four lanes, are counted and go to the adders of both blocks.
    static __device__ __forceinline__ void tell(SharedStorage& storage, unsigned rank, int slot, unsigned label)
    {
        const int lane = tensor::thread() % 32;
        if (lane % 4 == 0 && label != NONE) atomicAdd(&storage.counts[label], 1);
        unsigned word = __shfl_sync(~0u, label, lane & ~3) << lane / 4 % 4 * 8;
        for (int offset = 4; offset < 16; offset *= 2) word |= __shfl_xor_sync(~0u, word, offset);
        const unsigned high = __shfl_sync(~0u, word, 16);
        if (lane) return;
        const unsigned long long labels = (unsigned long long)high << 32 | word;
        storage.labels[slot][rank] = labels;
        tensor::expect(tensor::shared_of(&storage.labelled[slot]), 8);
        tensor::send(&storage.labels[slot][rank], rank ^ 1, labels, &storage.labelled[slot]);
    }

    // -- adders -------------------------------------------------------------------------------------------------------

    static __device__ __forceinline__ void add(SharedStorage& storage, const Task& task, double* sums)
    {
        const int lane = tensor::thread() % 32, group = tensor::thread() / 32;
        float near[OWN * COLUMNS];
        #pragma unroll
        for (int i = 0; i < OWN * COLUMNS; i++) near[i] = 0;
        int since = 0;
        bool started = false;
        auto take = [&](const Tile& tile) {
            wait(storage.labelled[tile.slot], tile.turn);
            wait(storage.full[tile.slot], tile.turn);
            const int label = ((const unsigned char*)storage.labels[tile.slot])[lane % TILE];
            const int place = label - group * OWN;
            const unsigned rows = __ballot_sync(~0u, label != NONE && place >= 0 && place < OWN) & 0xffff;
            add_rows(storage, task, tile.slot, rows, place, near);
            since += TILE;
            if (since < FLUSH) return;
            flush(task, sums, group, near, started);
            started = true;
            since = 0;
        };
        Late::over_tiles(storage.notes, task.rows, take);
        if (since || !started) flush(task, sums, group, near, started);
    }

    // The rows of a tile whose labels are the warp's own, quarter by quarter.
    static __device__ __forceinline__ void add_rows(SharedStorage& storage, const Task& task, int slot, unsigned rows,
                                                    int place, float (&near)[OWN * COLUMNS])
    {
        const int lane = tensor::thread() % 32;
        #pragma unroll 1
        for (int quarter = 0; quarter < QUARTERS; quarter++) {
            #pragma unroll 1
            for (unsigned some = rows & (15u << quarter * QUARTER); some; some &= some - 1) {
                const int number = __ffs(some) - 1;
                const float* const from = storage.rows[slot][number];
                float row[COLUMNS];
                #pragma unroll
                for (int c = 0; c < COLUMNS; c++)
                    row[c] = from[c < COLUMNS - 2 ? lane + c * 32 : min(lane + c * 32, task.columns - 1)];
                Jump<OWN, COLUMNS>::add(near, __shfl_sync(~0u, place, number), row);
            }
            arrive(storage.empty[slot][quarter]);
        }
    }

    // What was added up in float goes to the sums, or starts them.
    static __device__ __forceinline__ void flush(const Task& task, double* sums, int group,
                                                 float (&near)[OWN * COLUMNS], bool started)
    {
        const int q = tensor::thread() % 32;
        double* const out = sums + (long long)group * OWN * D + task.first_step * 16 + q;
        #pragma unroll
        for (int k = 0; k < OWN; k++) {
            double before[COLUMNS];
            #pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                const bool there = group * OWN + k < K && q + c * 32 < task.columns;
                before[c] = started && there ? out[k * D + c * 32] : 0.0;
            }
            #pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                if (group * OWN + k < K && q + c * 32 < task.columns)
                    out[k * D + c * 32] = before[c] + near[k * COLUMNS + c];
                near[k * COLUMNS + c] = 0;
            }
        }
    }
};

}  // namespace nearest
