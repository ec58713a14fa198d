// The sums of rows by their nearest centre in one pass over the rows, by warps with roles, which barriers in shared
// memory couple: a loader copies rows into a ring of tiles of 16, multipliers share the columns and leave parts of the
// scores, deciders make labels of these, and adders add each row to sums in registers and give its place back. Tile
// t + 1 is multiplied while tile t gets labels and tile t - 1 is added up. A row that products leave to two or three
// centres comes again in a late tile, as nearest_late.h has it, where multipliers share the rows; of a row with more
// candidates, a decider computes the label at once.
//
// Registers have no index, so a row's centre chooses among pieces of code by a jump, as all lanes of a warp have the
// same row. What was added up in float goes to sums in double after FLUSH rows.
#pragma once

#include "vispark/nearest_late.h"

namespace nearest {

// N is K rounded up to a multiple of 8, D a multiple of 4. SLOTS tiles in the ring; the centres are dealt to GROUPS of
// the adders, whose lanes share the columns. Work is for a thread block of THREADS.
template <int N, int K, int D, int SLOTS, int GROUPS, Nan nan, class C> struct Roles {
    static constexpr int ADDERS = 8, MULTIPLIERS = 4, DECIDERS = 2, THREADS = 512;
    static constexpr int FIRST_MULTIPLIER = ADDERS, FIRST_DECIDER = FIRST_MULTIPLIER + MULTIPLIERS;
    static constexpr int LOADER = FIRST_DECIDER + DECIDERS;
    static constexpr int TILE = 16, QUARTER = 4, QUARTERS = TILE / QUARTER, FLUSH = K < 32 ? 128 * K : 4096;
    // Tiles of an epoch, and the rows of these that wait for each decider, at most.
    static constexpr int EPOCH = 64, WAITING = 128;
    // Steps of 16 columns: each multiplier has SHORT neighbouring ones, and the first LONGER of them one more.
    static constexpr int STEPS = (D + 15) / 16, SHORT = STEPS / MULTIPLIERS, LONGER = STEPS % MULTIPLIERS;
    static constexpr int NT = N / 8, AT_ONCE = NT % 5 == 0 ? 5 : NT % 4 == 0 ? 4 : NT < 8 ? NT : 1;
    // An adder's centres, and the columns of a lane of it.
    static constexpr int OWN = (K + GROUPS - 1) / GROUPS, LANES = ADDERS * 32 / GROUPS, COLUMNS = (D + LANES - 1) / LANES;
    // Where sums take more registers than the 128 that all threads can have, others leave some to them.
    static constexpr bool DEALT = OWN * COLUMNS > 88;
    static constexpr unsigned char NONE = 255;

    typedef Shape<N, K, D, THREADS, 0, TILE, 1, 1, nan, float, C, 2> FactorShape;

    typedef nearest::Late<EPOCH, TILE, SLOTS, DECIDERS, 1, WAITING> Late;
    typedef typename Late::Tile Tile;
    typedef typename Late::Rows LateRows;

    struct SharedStorage {
        float rows[SLOTS][TILE][D];
        unsigned char image[STEPS * N * 32];
        // Of the multipliers: scores of both halves of a tile, or of a late one distances of a quarter.
        union alignas(16) {
            float2 scores[2][NT][32];
            Distances<C> distances[QUARTER];
        } parts[MULTIPLIERS];
        float means[STEPS * 16], numbers[NUMBERS * N], greatest[NUMBERS], norms[MULTIPLIERS][TILE];
        Bar full[SLOTS], empty[SLOTS][QUARTERS], labelled[SLOTS], scored, taken, decided;
        typename Late::Notes notes;
        int counts[K];
        unsigned char labels[SLOTS][TILE];
    };

    // A work's rows, as the roles have them.
    struct Task {
        const float* x;
        int rows;
    };

    // The sums of a work's rows by label, and in storage.counts how many there are. Whether the thread is one of those
    // that know these; the others have nothing left to do.
    static __device__ bool fold(const float* x, long long rows, SharedStorage& storage, const C* centres, double* sums)
    {
        // Parts of scores are added up in chains, and these to each other.
        const Factors factors = FactorShape::template factors<SHORT + 2>(storage, nullptr, centres);
        prepare(storage);
        __syncthreads();
        const Task task = {x, (int)rows};
        const int warp = tensor::thread() / 32;
        if (warp < FIRST_MULTIPLIER) {
            if (DEALT) tensor::take_registers<168>();
            add(storage, task, sums);
            return true;
        }
        if (warp < FIRST_DECIDER) {
            if (DEALT) tensor::leave_registers<112>();
            multiply(storage, factors, task, centres, warp - FIRST_MULTIPLIER);
        } else {
            if (DEALT) tensor::leave_registers<64>();
            if (warp < LOADER) decide(storage, factors, task, centres, warp - FIRST_DECIDER);
            else if (warp == LOADER && tensor::thread() % 32 == 0) load(storage, task);
        }
        return false;
    }

    static __device__ __forceinline__ void prepare(SharedStorage& storage)
    {
        for (int k = threadIdx.x; k < K; k += THREADS) storage.counts[k] = 0;
        if (threadIdx.x) return;
        for (int slot = 0; slot < SLOTS; slot++) {
            tensor::prepare(tensor::shared_of(&storage.full[slot]), QUARTERS);
            for (int i = 0; i < QUARTERS; i++) tensor::prepare(tensor::shared_of(&storage.empty[slot][i]), ADDERS);
            tensor::prepare(tensor::shared_of(&storage.labelled[slot]), DECIDERS);
        }
        tensor::prepare(tensor::shared_of(&storage.scored), MULTIPLIERS);
        tensor::prepare(tensor::shared_of(&storage.taken), DECIDERS);
        tensor::prepare(tensor::shared_of(&storage.decided), DECIDERS);
        Late::prepare(storage.notes);
        tensor::prepared();
    }

    // -- the loader, one thread ---------------------------------------------------------------------------------------

    static __device__ __forceinline__ void load(SharedStorage& storage, const Task& task)
    {
        auto bring = [&](const Tile& tile) {
            #pragma unroll 1
            for (int quarter = 0; quarter < QUARTERS; quarter++) {
                const int first = tile.first + quarter * QUARTER, rows = max(0, min(QUARTER, task.rows - first));
                const tensor::Shared full = tensor::shared_of(&storage.full[tile.slot]);
                wait(storage.empty[tile.slot][quarter], tile.turn + 1);
                if (rows)
                    tensor::bring_once(tensor::shared_of(storage.rows[tile.slot][quarter * QUARTER]),
                                       task.x + (long long)first * D, rows * D * 4, full);
                else
                    tensor::arrive(full);
            }
        };
        Late::over_tiles(storage.notes, task.rows, bring, [](int) {}, [&](const Tile& tile, const LateRows& late) {
            #pragma unroll 1
            for (int quarter = 0; quarter < QUARTERS; quarter++) {
                const int first = tile.first + quarter * QUARTER, rows = max(0, min(QUARTER, late.count - first));
                const tensor::Shared full = tensor::shared_of(&storage.full[tile.slot]);
                wait(storage.empty[tile.slot][quarter], tile.turn + 1);
                tensor::expect(full, rows * D * 4);
                #pragma unroll 1
                for (int i = 0; i < rows; i++)
                    tensor::add_once(tensor::shared_of(storage.rows[tile.slot][quarter * QUARTER + i]),
                                     task.x + (late.first() + late[first + i].row()) * D, D * 4, full);
            }
        });
    }

    // -- multipliers --------------------------------------------------------------------------------------------------

    static __device__ __forceinline__ void multiply(SharedStorage& storage, const Factors& factors, const Task& task,
                                                    const C* centres, int number)
    {
        const int lane = tensor::thread() % 32, t = lane % 4, g = lane / 4;
        const int step = number * SHORT + min(number, LONGER), last = step + SHORT;
        const unsigned* const image = (const unsigned*)storage.image + step * N * 8 + lane;
        const float* const means = storage.means + step * 16 + t * 4;
        const float scale = factors.scale;
        auto take = [&](const Tile& tile) {
            float acc[NT][4], norms[2] = {0, 0};
            #pragma unroll
            for (int j = 0; j < NT; j++) acc[j][0] = acc[j][1] = acc[j][2] = acc[j][3] = 0;
            const float* const x = storage.rows[tile.slot][g] + step * 16 + t * 4;
            wait(storage.full[tile.slot], tile.turn);
            // Written out, the steps take more room than a warp's instructions have nearby.
            #pragma unroll 2
            for (int s = 0; s < SHORT; s++)
                multiply_step(acc, norms, x + s * 16, means + s * 16, image + s * N * 8, scale,
                              has_columns<D>(step + s, t));
            if (number < LONGER)
                multiply_step(acc, norms, x + SHORT * 16, means + SHORT * 16, image + SHORT * N * 8, scale,
                              has_columns<D>(last, t));
            wait(storage.taken, tile.number + 1);
            leave(storage, number, acc, norms);
            arrive(storage.scored);
        };
        Late::over_tiles(storage.notes, task.rows, take, [](int) {}, [&](const Tile& tile, const LateRows& late) {
            const int row = tile.first + number * QUARTER + lane;
            const unsigned bits = lane < QUARTER && row < late.count ? late[row].bits : 0;
            wait(storage.full[tile.slot], tile.turn);
            const Distances<C> distances = measure<QUARTER, (D + 31) / 32, D, D>(
                bits, storage.rows[tile.slot][number * QUARTER], centres, D);
            wait(storage.taken, tile.number + 1);
            if (lane % 8 == 0) storage.parts[number].distances[lane / 8] = distances;
            arrive(storage.scored);
        });
    }

    // 16 columns of 16 rows. Neighbouring products have different accumulators, as each waits for the last of its own.
    static __device__ __forceinline__ void multiply_step(float (&acc)[NT][4], float (&norms)[2], const float* x,
                                                         const float* means, const unsigned* image, float scale,
                                                         bool there)
    {
        const float4 none = make_float4(0, 0, 0, 0), mean = *(const float4*)means;
        const float4 a = from(mean, scale, there ? *(const float4*)x : none);
        const float4 b = from(mean, scale, there ? *(const float4*)(x + 8 * D) : none);
        norms[0] = squares(a, norms[0]);
        norms[1] = squares(b, norms[1]);
        tensor::Rows<2> rows;
        rows.set(a, b);
        #pragma unroll
        for (int first = 0; first < NT; first += AT_ONCE) {
            unsigned factor[AT_ONCE][2];
            #pragma unroll
            for (int j = 0; j < AT_ONCE; j++) {
                factor[j][0] = image[(first + j) * 64];
                factor[j][1] = image[(first + j) * 64 + 32];
            }
            #pragma unroll
            for (int j = 0; j < AT_ONCE; j++) tensor::mma(acc[first + j], rows.high, factor[j]);
            #pragma unroll
            for (int j = 0; j < AT_ONCE; j++) tensor::mma(acc[first + j], rows.low, factor[j]);
        }
    }

    static __device__ __forceinline__ void leave(SharedStorage& storage, int number, const float (&acc)[NT][4],
                                                 float (&norms)[2])
    {
        const int lane = tensor::thread() % 32;
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            for (int offset = 1; offset < 4; offset *= 2) norms[h] += __shfl_xor_sync(~0u, norms[h], offset);
            #pragma unroll
            for (int j = 0; j < NT; j++)
                storage.parts[number].scores[h][j][lane] = make_float2(acc[j][2 * h], acc[j][2 * h + 1]);
            if (lane % 4 == 0) storage.norms[number][lane / 4 + 8 * h] = norms[h];
        }
    }

    // -- deciders -----------------------------------------------------------------------------------------------------

    // The labels of one half of each tile, by four lanes a row.
    static __device__ __forceinline__ void decide(SharedStorage& storage, const Factors& factors, const Task& task,
                                                  const C* centres, int half)
    {
        const int lane = tensor::thread() % 32, row = half * 8 + lane / 4;
        int noted = 0;
        auto take = [&](const Tile& tile) {
            float score[N / 4];
            unsigned long long candidates;
            wait(storage.scored, tile.number);
            const float norm = add_parts(storage, half, row, score);
            arrive(storage.taken);
            const bool is_row = tile.first + row < task.rows, all = !(norm < factors.limit);
            int label = nearest_by<N>(factors, score, norm, candidates);
            unsigned open = __ballot_sync(~0u, lane % 4 == 0 && is_row && (all || label < 0));
            if (open)
                open = Late::template note<N>(storage.notes, half, noted, tile.first + row, open, candidates, all);
            if (open) {
                wait(storage.full[tile.slot], tile.turn);
                const float (*const rows)[D] = storage.rows[tile.slot] + half * 8;
                label = labels_of_open<N, K, D, nan>([&](int i) { return rows[i]; }, centres, open, candidates, all,
                                                     label);
            }
            tell(storage, tile.slot, row, is_row && label >= 0 ? (unsigned char)label : NONE);
        };
        auto take_late = [&](const Tile& tile, const LateRows& late) {
            const bool is_row = tile.first + row < late.count;
            const LateRow one = {is_row ? late[tile.first + row].bits : 0};
            wait(storage.scored, tile.number);
            const Distances<C> distances = storage.parts[row / QUARTER].distances[row % QUARTER];
            arrive(storage.taken);
            const float (*const rows)[D] = storage.rows[tile.slot];
            wait(storage.full[tile.slot], tile.turn);
            const int label = nearest_of_late<(D + 31) / 32, D>(one, distances, is_row, centres, [&](int lane, LateRow) {
                return (const float*)rows[half * 8 + lane / 4];
            });
            tell(storage, tile.slot, row, is_row ? (unsigned char)label : NONE);
        };
        Late::over_tiles(
            storage.notes, task.rows, take, [&](int epoch) { Late::end_notes(storage.notes, epoch, half, noted); },
            take_late);
        arrive(storage.decided);
    }

    // Labels, one in the first of each four lanes, are counted and go to the adders.
    static __device__ __forceinline__ void tell(SharedStorage& storage, int slot, int row, unsigned char label)
    {
        if (tensor::thread() % 4 == 0) {
            storage.labels[slot][row] = label;
            if (label != NONE) atomicAdd(&storage.counts[label], 1);
        }
        arrive(storage.labelled[slot]);
    }

    // A lane's scores by all multipliers, and |x - m|^2.
    static __device__ __forceinline__ float add_parts(const SharedStorage& storage, int half, int row,
                                                      float (&score)[N / 4])
    {
        const int lane = tensor::thread() % 32;
        float norm = 0;
        #pragma unroll
        for (int i = 0; i < N / 4; i++) score[i] = 0;
        #pragma unroll
        for (int from = 0; from < MULTIPLIERS; from++) {
            #pragma unroll
            for (int j = 0; j < NT; j++) {
                const float2 two = storage.parts[from].scores[half][j][lane];
                score[2 * j] += two.x;
                score[2 * j + 1] += two.y;
            }
            norm += storage.norms[from][row];
        }
        return norm;
    }

    // -- adders -------------------------------------------------------------------------------------------------------

    static __device__ __forceinline__ void add(SharedStorage& storage, const Task& task, double* sums)
    {
        const int lane = tensor::thread() % 32, group = tensor::thread() / LANES, q = tensor::thread() % LANES;
        float near[OWN * COLUMNS];
        #pragma unroll
        for (int i = 0; i < OWN * COLUMNS; i++) near[i] = 0;
        int since = 0;
        bool started = false;
        Late::over_tiles(storage.notes, task.rows, [&](const Tile& tile) {
            wait(storage.labelled[tile.slot], tile.turn);
            wait(storage.full[tile.slot], tile.turn);
            const int label = storage.labels[tile.slot][lane % TILE], place = label - group * OWN;
            const unsigned rows = __ballot_sync(~0u, label != NONE && place >= 0 && place < OWN) & 0xffff;
            add_rows(storage, tile.slot, rows, place, q, near);
            since += TILE;
            if (since < FLUSH) return;
            flush(sums, group, q, near, started);
            started = true;
            since = 0;
        });
        flush(sums, group, q, near, started);
        wait(storage.decided, 0);
    }

    // The rows of a tile whose labels are the group's own, quarter by quarter.
    static __device__ __forceinline__ void add_rows(SharedStorage& storage, int slot, unsigned rows, int place, int q,
                                                    float (&near)[OWN * COLUMNS])
    {
        #pragma unroll 1
        for (int quarter = 0; quarter < QUARTERS; quarter++) {
            #pragma unroll 1
            for (unsigned some = rows & (15u << quarter * QUARTER); some; some &= some - 1) {
                const int number = __ffs(some) - 1;
                const float* const from = storage.rows[slot][number];
                float row[COLUMNS];
                #pragma unroll
                for (int c = 0; c < COLUMNS; c++)
                    row[c] = from[c < COLUMNS - 1 ? q + c * LANES : min(q + c * LANES, D - 1)];
                Jump<OWN, COLUMNS>::add(near, __shfl_sync(~0u, place, number), row);
            }
            arrive(storage.empty[slot][quarter]);
        }
    }

    // What was added up in float goes to the sums, or starts them.
    static __device__ __forceinline__ void flush(double* sums, int group, int q, float (&near)[OWN * COLUMNS],
                                                 bool started)
    {
        double* const out = sums + (long long)group * OWN * D + q;
        #pragma unroll
        for (int k = 0; k < OWN; k++) {
            double before[COLUMNS];
            #pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                const bool there = group * OWN + k < K && q + c * LANES < D;
                before[c] = started && there ? out[k * D + c * LANES] : 0.0;
            }
            #pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                if (group * OWN + k < K && q + c * LANES < D)
                    out[k * D + c * LANES] = before[c] + near[k * COLUMNS + c];
                near[k * COLUMNS + c] = 0;
            }
        }
    }
};

}  // namespace nearest
