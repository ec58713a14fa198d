// Rows whose labels wait: where products leave two or three centres, a row goes without a label, and comes through the
// ring again in a tile of such rows, for which multipliers take distances from these centres in place of products.
//
// Tiles are taken in epochs. All roles go over them in one order: an epoch's tiles, then the late tiles of the epoch
// before it, whose rows have long been noted by then. So nobody waits for an epoch's end but for the last.
#pragma once

#include "vispark/nearest_ring.h"

namespace nearest {

// A row's number in its epoch and its candidates in ascending order, the last one twice where there are two.
struct LateRow {
    static constexpr int NUMBER = 10, CENTRE = 7;
    unsigned bits;
    static __device__ __forceinline__ unsigned of(int row, int low, int mid, int high)
    {
        return row | low << NUMBER | mid << (NUMBER + CENTRE) | (unsigned)high << (NUMBER + 2 * CENTRE);
    }
    __device__ __forceinline__ int row() const { return bits & ((1 << NUMBER) - 1); }
    __device__ __forceinline__ int candidate(int i) const
    {
        return bits >> (NUMBER + i * CENTRE) & ((1 << CENTRE) - 1);
    }
    __device__ __forceinline__ bool has_three() const { return candidate(1) != candidate(2); }
};

// Squared distances from a late row's candidates, or a part of each.
template <class T> struct alignas(16) Distances {
    T of[4];
};

// Epochs of EPOCH tiles; each of DECIDERS warps in each of RANKS thread blocks notes at most MOST rows of an epoch.
template <int EPOCH, int TILE, int SLOTS, int DECIDERS, int RANKS, int MOST> struct Late {
    static constexpr int ROWS = EPOCH * TILE;
    static_assert(ROWS <= 1 << LateRow::NUMBER, "a row's number in its epoch");
    static_assert(EPOCH > SLOTS, "warps are fewer tiles apart than an epoch has");
    // An epoch's notes are read when the next one's tiles are through: not before the third epoch are they written anew.
    static constexpr int KEPT = 3, LISTS = DECIDERS * RANKS;

    struct Notes {
        int rows[KEPT][DECIDERS][MOST], counts[KEPT][DECIDERS];
        Bar ended[KEPT];
    };

    static __device__ __forceinline__ void prepare(Notes& notes)
    {
        for (int i = 0; i < KEPT; i++) tensor::prepare(tensor::shared_of(&notes.ended[i]), LISTS);
    }

    // What all deciders noted of an epoch.
    struct Rows {
        const Notes& notes;
        int epoch, count, ends[LISTS];
        __device__ __forceinline__ Rows(Notes& notes, int epoch) : notes(notes), epoch(epoch), count(0)
        {
            tensor::wait_for_cluster(tensor::shared_of(&notes.ended[epoch % KEPT]), epoch / KEPT & 1);
            #pragma unroll
            for (int i = 0; i < LISTS; i++) {
                const int* const at = &notes.counts[epoch % KEPT][i % DECIDERS];
                ends[i] = count += RANKS > 1 ? tensor::there(at, i / DECIDERS) : *at;
            }
        }
        __device__ __forceinline__ LateRow operator[](int number) const
        {
            int list = 0, before = 0;
            #pragma unroll
            for (int i = 0; i < LISTS - 1; i++)
                if (number >= ends[i]) {
                    list = i + 1;
                    before = ends[i];
                }
            const int* const at = &notes.rows[epoch % KEPT][list % DECIDERS][number - before];
            return {(unsigned)(RANKS > 1 ? tensor::there(at, list / DECIDERS) : *at)};
        }
        // The first of the epoch's rows.
        __device__ __forceinline__ long long first() const { return (long long)epoch * ROWS; }
    };

    // A tile's place in the ring and which turn around it this is, its place in the order of all, and its first row: of
    // all, or of those that are late.
    struct Tile {
        int slot = 0, turn = 0, number = 0, first = 0;
        __device__ __forceinline__ void next()
        {
            if (++slot == SLOTS) {
                slot = 0;
                turn++;
            }
            number++;
            first += TILE;
        }
    };

    // Does `take(tile)` for an epoch's tiles, `end(epoch)` after its last, and `take_late(tile, rows)` for late ones.
    template <class Take, class End, class TakeLate>
    static __device__ __forceinline__ void over_tiles(Notes& notes, int rows, Take take, End end, TakeLate take_late)
    {
        Tile tile;
        #pragma unroll 1
        for (int epoch = 0; epoch == 0 || (epoch - 1) * ROWS < rows; epoch++) {
            const int before = min((epoch + 1) * ROWS, rows);
            #pragma unroll 1
            for (tile.first = epoch * ROWS; tile.first < before; tile.next()) take(tile);
            if (epoch * ROWS < rows) end(epoch);
            if (epoch == 0) continue;
            const Rows late(notes, epoch - 1);
            #pragma unroll 1
            for (tile.first = 0; tile.first < late.count; tile.next()) take_late(tile, late);
        }
    }
    // Does `take(tile)` for all.
    template <class Take>
    static __device__ __forceinline__ void over_tiles(Notes& notes, int rows, Take take)
    {
        Tile tile;
        #pragma unroll 1
        for (int turn = 0; turn < 2 || (turn / 2 - 1) * ROWS < rows; turn++) {
            if (turn == 1) continue;
            const int before = turn % 2 ? Rows(notes, turn / 2 - 1).count : min((turn / 2 + 1) * ROWS, rows);
            #pragma unroll 1
            for (tile.first = turn % 2 ? 0 : turn / 2 * ROWS; tile.first < before; tile.next()) take(tile);
        }
    }

    // Notes those of the rows, whose first lanes are in `open`, that have two or three candidates, of which four
    // neighbouring lanes know their own each. The others are left.
    template <int N>
    static __device__ __forceinline__ unsigned note(Notes& notes, int list, int& noted, int row, unsigned open,
                                                    unsigned long long candidates, bool all)
    {
        static_assert(N <= 1 << LateRow::CENTRE, "a centre's number");
        const int lane = tensor::thread() % 32;
        int count = 0, sum = 0, low = N, high = 0;
        for (unsigned long long rest = candidates; rest; rest &= rest - 1) {
            const int bit = __ffsll(rest) - 1, n = bit / 2 * 8 + 2 * (lane % 4) + bit % 2;
            count++;
            sum += n;
            low = min(low, n);
            high = max(high, n);
        }
        for (int offset = 1; offset < 4; offset *= 2) {
            count += __shfl_xor_sync(~0u, count, offset);
            sum += __shfl_xor_sync(~0u, sum, offset);
            low = min(low, __shfl_xor_sync(~0u, low, offset));
            high = max(high, __shfl_xor_sync(~0u, high, offset));
        }
        const bool few = open >> lane & 1 && (count == 2 || count == 3) && !all;
        const unsigned later = __ballot_sync(~0u, few);
        const int place = noted + __popc(later & ((1u << lane) - 1));
        const bool fits = few && place < MOST;
        if (fits)
            notes.rows[row / ROWS % KEPT][list][place] =
                (int)LateRow::of(row % ROWS, low, count == 2 ? high : sum - low - high, high);
        noted = min(MOST, noted + __popc(later));
        return open & ~__ballot_sync(~0u, fits);
    }

    // A decider's notes of an epoch are complete.
    static __device__ __forceinline__ void end_notes(Notes& notes, int epoch, int list, int& noted)
    {
        Bar* const ended = &notes.ended[epoch % KEPT];
        if (tensor::thread() % 32 == 0) notes.counts[epoch % KEPT][list] = noted;
        noted = 0;
        __syncwarp();
        if (tensor::thread() % 32 == 0)
            for (unsigned rank = 0; rank < RANKS; rank++) tensor::arrive_in_cluster(ended, rank);
    }
};

// Rounded once, so that equal centres are equally far whatever a compiler makes of it.
__device__ __forceinline__ float plus_square(float sum, float x) { return fmaf(x, x, sum); }
__device__ __forceinline__ double plus_square(double sum, double x) { return fma(x, x, sum); }

// A lane's columns of a centre, and what they add to a row's squared distance from it: every 32nd, of which at most the
// last two of COLUMNS are not `there`.
template <int COLUMNS, class C> struct CentreColumns {
    C centre[COLUMNS];

    // The lane's place among its numbers.
    static __device__ __forceinline__ int at(int c, const bool (&there)[2])
    {
        return c < COLUMNS - 2 || there[c - COLUMNS + 2] ? c * 32 : 0;
    }
    __device__ __forceinline__ CentreColumns(const C* from, const bool (&there)[2])
    {
        #pragma unroll
        for (int c = 0; c < COLUMNS; c++) centre[c] = from[at(c, there)];
    }
    __device__ __forceinline__ void add_to(C& sum, const float* x, int c, const bool (&there)[2]) const
    {
        const C difference = (C)x[at(c, there)] - centre[c];
        if (c < COLUMNS - 2 || there[c - COLUMNS + 2]) sum = plus_square(sum, difference);
    }
};

// Some numbers of each lane, a power of two, added up over a warp: the i-th sum goes to the i-th group of lanes.
template <int COUNT, class T> __device__ __forceinline__ T each_over_warp(T (&some)[COUNT])
{
    const int lane = tensor::thread() % 32;
    int offset = 16;
    #pragma unroll
    for (int left = COUNT / 2, step = 0; step < 5; step++, left /= 2, offset /= 2) {
        if (left == 0) {
            some[0] += __shfl_xor_sync(~0u, some[0], offset);
            continue;
        }
        const bool upper = lane & offset;
        #pragma unroll
        for (int i = 0; i < COUNT / 2; i++) {
            if (i >= left) break;
            const T kept = upper ? some[i + left] : some[i], sent = upper ? some[i] : some[i + left];
            some[i] = kept + __shfl_xor_sync(~0u, sent, offset);
        }
    }
    return some[0];
}

// The squared distances of rows, PITCH apart, from their candidates, or what these columns add to them: a group of lanes
// for each row, whose first has them. Lane i has the i-th row's `bits`.
template <int ROWS, int COLUMNS, int D, int PITCH, class C>
__device__ __forceinline__ Distances<C> measure(unsigned bits, const float* x, const C* centres, int columns)
{
    static_assert(COLUMNS > 2, "lanes have two columns or more");
    const int lane = tensor::thread() % 32;
    const bool there[2] = {lane + (COLUMNS - 2) * 32 < columns, lane + (COLUMNS - 1) * 32 < columns};
    C sums[2 * ROWS], third = 0;
    x += lane;
    centres += lane;
    #pragma unroll
    for (int i = 0; i < ROWS; i++, x += PITCH) {
        const LateRow row = {__shfl_sync(~0u, bits, i)};
        const CentreColumns<COLUMNS, C> one(centres + row.candidate(0) * D, there);
        const CentreColumns<COLUMNS, C> two(centres + row.candidate(1) * D, there);
        sums[2 * i] = sums[2 * i + 1] = 0;
        #pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            one.add_to(sums[2 * i], x, c, there);
            two.add_to(sums[2 * i + 1], x, c, there);
        }
        if (!row.has_three()) continue;
        const CentreColumns<COLUMNS, C> three(centres + row.candidate(2) * D, there);
        C sum = 0;
        #pragma unroll
        for (int c = 0; c < COLUMNS; c++) three.add_to(sum, x, c, there);
        sum = over_warp(sum);
        if (lane / (32 / ROWS) == i) third = sum;
    }
    Distances<C> distances = {{each_over_warp(sums), 0, third, 0}};
    distances.of[1] = __shfl_down_sync(~0u, distances.of[0], 16 / ROWS);
    return distances;
}

// The candidate that is nearest by distances of which a lane added up at most COLUMNS squares; -1 where floats do not
// tell: a square is off by three times 2^-24 of it, and each number that is added, by lane, warp and block, by one more.
template <int COLUMNS> __device__ __forceinline__ int nearest_of(LateRow row, const Distances<float>& distances)
{
    const bool second = distances.of[1] < distances.of[0];
    float least = fminf(distances.of[0], distances.of[1]), next = fmaxf(distances.of[0], distances.of[1]);
    int where = row.candidate(second);
    if (row.has_three()) {
        if (distances.of[2] < least) where = row.candidate(2);
        next = fminf(next, fmaxf(least, distances.of[2]));
        least = fminf(least, distances.of[2]);
    }
    const float doubt = (3 + COLUMNS + 5 + 1) * 0x1p-24f;
    return next > least * (1 + 2 * doubt) && next > 1e-30f && next < 1e30f ? where : -1;
}
template <int COLUMNS> __device__ __forceinline__ int nearest_of(LateRow row, const Distances<double>& distances)
{
    const bool second = distances.of[1] < distances.of[0];
    const bool third = row.has_three() && distances.of[2] < (second ? distances.of[1] : distances.of[0]);
    return row.candidate(third ? 2 : second);
}

// The labels of eight rows, one in the first of each four lanes, by their distances; where these do not tell in double,
// from `row_of(lane, row)`.
template <int COLUMNS, int D, class C, class RowOf>
__device__ __forceinline__ int nearest_of_late(LateRow row, const Distances<C>& distances, bool is_row, const C* centres,
                                               RowOf row_of)
{
    const int lane = tensor::thread() % 32;
    int label = nearest_of<COLUMNS>(row, distances);
    unsigned open = __ballot_sync(~0u, lane % 4 == 0 && is_row && label < 0);
    #pragma unroll 1
    for (; open; open &= open - 1) {
        const int from = __ffs(open) - 1;
        const LateRow one = {__shfl_sync(~0u, row.bits, from)};
        const float* const x = row_of(from, one);
        double least = far_away();
        #pragma unroll 1
        for (int i = 0; i < 2 + one.has_three(); i++) {
            const double distance = exactly<D>(x, centres + (long long)one.candidate(i) * D);
            if (!(distance < least)) continue;
            least = distance;
            if (lane == from) label = one.candidate(i);
        }
    }
    return label;
}

}  // namespace nearest
