// Sums of outer products of parts of rows by warps with roles, where barriers in shared memory can couple these: loaders
// bring tiles of rows into a ring and split the columns of one factor into their parts, in the order in which tensor
// cores read them; multipliers, two groups of four warps, have half of a block's rows each, and split the other factor as
// they read it. Nobody waits for all others but between blocks of the matrix (outer_blocks.h). A matrix of at most 64
// rows and columns is a block of that size, of which the groups have every other tile.
//
// Where both factors are the same columns, x = high + low of which low's square is left out as ever, the sums of
// high * high + 2 * high * low are enough: the matrix is the mean of them and of what they are turned round. These are
// two products in place of three, of which both factors lie in shared memory as tensor cores read them.
#pragma once

#include "vispark/barriers.h"
#include "vispark/outer_blocks.h"

#if VISPARK_ONE_PASS

namespace rows {

// A block of a matrix: the columns from LEFT on with those from RIGHT on, of rows of WIDTH floats. STAGES tiles of ROWS
// rows lie in shared memory, of which AHEAD are on their way, and the parts of SPLIT tiles.
template <class Matrix, int WIDTH, int LEFT, int RIGHT, int ROWS, int STAGES, int SPLIT, int AHEAD, int LOADING>
struct BlockRoles {
    static constexpr int SIDE = Matrix::SIDE, MULTIPLIERS = 8, LOADERS = LOADING;
    // Whether groups of multipliers have every other tile, and the warps that read a tile.
    static constexpr bool BY_TILES = SIDE == 64;
    static constexpr int READERS = BY_TILES ? MULTIPLIERS / 2 : MULTIPLIERS;
    // Whether the matrix is one block of columns with themselves, so that tiles have these alone.
    static constexpr bool ONE = Matrix::SYMMETRIC && Matrix::COUNT == 1;
    // Whether tiles are as in memory, so that one bulk copy brings in a whole one.
    static constexpr bool FLAT = ONE && WIDTH == SIDE;
    static constexpr int STRIDE = FLAT ? SIDE : (ONE ? 1 : 2) * SIDE + 4;
    static constexpr int STEPS = ROWS / 8, STEP = 8 * SIDE, PART = STEPS * STEP;
    // A multiplier's numbers of the block; and of rows whose products tensor cores add up before doubles take the sums,
    // the tiles of a group.
    static constexpr int COUNT = SIDE / 2, NEAR = 128, TURNS = NEAR / ROWS;
    // Of a block that is turned round, in doubles.
    static constexpr int PITCH = SIDE + 1;
    static_assert(AHEAD < STAGES, "a tile is on its way to where another one lies");
    // A barrier's turn is known by its parity: a group that has every other tile knows of those between by these.
    static_assert(!BY_TILES || SPLIT > 1, "a place of the ring takes a tile of each group, one after the other");

    struct SharedStorage {
        float tiles[STAGES][ROWS][STRIDE];
        // Of a tile's columns the leading parts and the next, or twice these.
        alignas(128) unsigned parts[SPLIT][2][PART];
        // Of tiles: loaders have what they brought in; all have read it. Of parts: they are there; they were read.
        Bar loaded[STAGES], taken[STAGES], full[SPLIT], empty[SPLIT];
        // Where loaders meet.
        Bar met;
    };
    static_assert(sizeof(SharedStorage) >= SIDE * PITCH * sizeof(double),
                  "a block is turned round in the tiles' place");

    // What all roles have to know of a work and a block of the matrix.
    struct Task {
        const float* rows;
        long long count;
        int row, column;
        // Whether both factors are the same columns; and whether rows begin at 16 bytes.
        bool alike, whole;
        __device__ __forceinline__ Task(const float* rows, long long count, int number) : rows(rows), count(count)
        {
            Matrix::find(number, row, column);
            alike = ONE || (Matrix::SYMMETRIC && row == column);
            whole = (unsigned long long)rows % 16 == 0;
        }
        __device__ __forceinline__ int turns() const { return (int)((count + ROWS - 1) / ROWS); }
        __device__ __forceinline__ bool comes_at_once(int turn) const { return whole && (turn + 1ll) * ROWS <= count; }
    };

    static __device__ __forceinline__ void prepare(SharedStorage& storage)
    {
        if (threadIdx.x == 0) {
            for (int i = 0; i < STAGES; ++i) {
                tensor::prepare(tensor::shared_of(&storage.loaded[i]), FLAT ? 1 : LOADERS);
                tensor::prepare(tensor::shared_of(&storage.taken[i]), READERS + LOADERS);
            }
            for (int i = 0; i < SPLIT; ++i) {
                tensor::prepare(tensor::shared_of(&storage.full[i]), LOADERS);
                tensor::prepare(tensor::shared_of(&storage.empty[i]), READERS);
            }
            if (FLAT) tensor::prepare(tensor::shared_of(&storage.met), LOADERS);
            tensor::prepared();
        }
        barrier();
    }

    // -- loaders ------------------------------------------------------------------------------------------------------

    struct Loader {
        Turning<STAGES> ahead, tile;
        Turning<SPLIT> parts;
        unsigned met = 0;
    };

    static __device__ __forceinline__ void bring(float* tile, const float* from, int column, int some, bool whole)
    {
        const int loader = threadIdx.x - 32 * MULTIPLIERS;
        bring_columns<SIDE, WIDTH, ROWS, STRIDE, 32 * LOADERS>(tile, from, column, some, whole, loader);
    }
    static __device__ __forceinline__ void fetch(SharedStorage& storage, Loader& at, const Task& task, int turn)
    {
        if (FLAT && turn < task.turns()) {
            if (threadIdx.x == 32 * MULTIPLIERS) {
                wait(storage.taken[at.ahead.slot], at.ahead.turn + 1);
                const tensor::Shared bar = tensor::shared_of(&storage.loaded[at.ahead.slot]);
                if (task.comes_at_once(turn))
                    tensor::bring_once(tensor::shared_of(storage.tiles[at.ahead.slot]),
                                       task.rows + (long long)turn * ROWS * WIDTH, ROWS * WIDTH * 4, bar);
                else
                    tensor::arrive(bar);
            }
            at.ahead.next();
        } else if (turn < task.turns()) {
            wait(storage.taken[at.ahead.slot], at.ahead.turn + 1);
            const long long first = (long long)turn * ROWS;
            const int some = least(task.count - first, ROWS);
            float* const tile = storage.tiles[at.ahead.slot][0];
            bring(tile, task.rows + first * WIDTH, LEFT + task.row, some, task.whole);
            if (!task.alike) bring(tile + SIDE, task.rows + first * WIDTH, RIGHT + task.column, some, task.whole);
            at.ahead.next();
        }
        end_group();
    }
    // Waits for a tile.
    static __device__ __forceinline__ void await(SharedStorage& storage, Loader& at, const Task& task, int turn)
    {
        if (!FLAT) {
            wait_for_groups<AHEAD>();
            arrive(storage.loaded[at.tile.slot]);
        }
        wait(storage.loaded[at.tile.slot], at.tile.turn);
        if (!FLAT || task.comes_at_once(turn)) return;
        float* const tile = storage.tiles[at.tile.slot][0];
        const long long first = (long long)turn * ROWS * WIDTH, all = task.count * WIDTH;
        VISPARK_PRAGMA(unroll 1)
        for (int i = threadIdx.x - 32 * MULTIPLIERS; i < ROWS * WIDTH; i += 32 * LOADERS)
            tile[i] = first + i < all ? task.rows[first + i] : 0.0f;
        tensor::meet<32 * LOADERS>(tensor::shared_of(&storage.met), 0, at.met++);
    }
    // A column of a tile as its parts: of 8 rows, those of even numbers before the others.
    template <bool HALVED> static __device__ __forceinline__ void split(const float* from, unsigned* high)
    {
        constexpr int WAYS = 32 * LOADERS / SIDE;
        const int column = threadIdx.x % SIDE, way = WAYS == 1 ? 0 : threadIdx.x / SIDE % WAYS;
        from += column + way * 8 * STRIDE;
        high += way * STEP;
        VISPARK_UNROLL
        for (int step = 0; step < STEPS; step += WAYS)
            VISPARK_UNROLL
            for (int half = 0; half < 2; ++half) {
                Pack<unsigned, 4> leading, next;
                VISPARK_UNROLL
                for (int i = 0; i < 4; ++i) {
                    tensor::Halves one;
                    one.set<HALVED>(from[(step * 8 + 2 * i + half) * STRIDE]);
                    leading.item[i] = one.high, next.item[i] = one.low;
                }
                unsigned* const to = high + step * STEP + (column / 8 * 2 + half) * 32 + column % 8 * 4;
                *(Pack<unsigned, 4>*)to = leading;
                *(Pack<unsigned, 4>*)(to + PART) = next;
            }
    }
    static __device__ __forceinline__ void load(SharedStorage& storage, Loader& at, const Task& task)
    {
        for (int turn = 0; turn < AHEAD; ++turn) fetch(storage, at, task, turn);
        VISPARK_PRAGMA(unroll 1)
        for (int turn = 0; turn < task.turns(); ++turn) {
            fetch(storage, at, task, turn + AHEAD);
            await(storage, at, task, turn);
            wait(storage.empty[at.parts.slot], at.parts.turn + 1);
            if (task.alike) split<true>(storage.tiles[at.tile.slot][0], storage.parts[at.parts.slot][0]);
            else split<false>(storage.tiles[at.tile.slot][0] + SIDE, storage.parts[at.parts.slot][0]);
            tensor::publish();
            arrive(storage.full[at.parts.slot]);
            arrive(storage.taken[at.tile.slot]);
            at.tile.next();
            at.parts.next();
        }
    }

    // -- multipliers --------------------------------------------------------------------------------------------------

    struct Multiplier {
        Turning<STAGES> tile;
        Turning<SPLIT> parts;
    };

    // The sums of a multiplier, of all of a work's tiles.
    static __device__ __forceinline__ void multiply(SharedStorage& storage, Multiplier& at, const Task& task,
                                                    double (&far)[COUNT])
    {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % READERS, group = threadIdx.x / 128;
        float near[COUNT];
        VISPARK_UNROLL
        for (int i = 0; i < COUNT; ++i) near[i] = 0.0f, far[i] = -0.0;
        // Where it is told that the parts of the tile before were read.
        Bar* before = nullptr;
        const int turns = task.turns(), shift = BY_TILES ? 0 : group * (TURNS / 2);
        VISPARK_PRAGMA(unroll 1)
        for (int turn = 0; turn < turns; ++turn) {
            if (BY_TILES && turn % 2 != group) {
                at.tile.next();
                at.parts.next();
                continue;
            }
            wait(storage.full[at.parts.slot], at.parts.turn);
            const unsigned* const high = storage.parts[at.parts.slot][0];
            if (task.alike) {
                tensor::multiply_halved<STEPS, STEP>(near, high + (BY_TILES ? 0 : group * STEP / 2), high, high + PART);
                tensor::end<1>();
                if (before) arrive(*before);
            } else {
                const float* const from = storage.tiles[at.tile.slot][0] + lane % 4 * 2 * STRIDE + warp * 16 + lane / 4;
                VISPARK_UNROLL
                for (int step = 0; step < STEPS; ++step) {
                    // The registers of the step before the last may be used again.
                    tensor::end<1>();
                    if (step == 1 && before) arrive(*before);
                    tensor::Halves down[4];
                    VISPARK_UNROLL
                    for (int i = 0; i < 4; ++i) down[i].set(from[(step * 8 + i / 2) * STRIDE + i % 2 * 8]);
                    tensor::multiply_split(near, down, high + step * STEP, high + PART + step * STEP);
                }
            }
            if (BY_TILES) {
                tensor::end<0>();
                arrive(storage.empty[at.parts.slot]);
            } else
                before = &storage.empty[at.parts.slot];
            arrive(storage.taken[at.tile.slot]);
            at.tile.next();
            at.parts.next();
            // The groups take turns, so that one's products are under way while the other adds up.
            if (((BY_TILES ? turn / 2 : turn) + shift) % TURNS == TURNS - 1) {
                tensor::end<0>();
                VISPARK_UNROLL
                for (int i = 0; i < COUNT; ++i) far[i] += near[i], near[i] = 0.0f;
            }
        }
        tensor::end<0>();
        if (before) arrive(*before);
        VISPARK_UNROLL
        for (int i = 0; i < COUNT; ++i) far[i] += near[i];
    }
    // The place of a thread's number in the block.
    static __device__ __forceinline__ int down(int i)
    {
        return threadIdx.x / 32 % READERS * 16 + threadIdx.x % 32 / 4 + i % 4 / 2 * 8;
    }
    static __device__ __forceinline__ int across(int i) { return i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2; }

    static __device__ __forceinline__ bool is_odd(const Task& task, const double (&far)[COUNT])
    {
        bool odd = false;
        VISPARK_UNROLL
        for (int i = 0; i < COUNT; ++i)
            odd |= far[i] - far[i] != 0 && Matrix::is_inside(task.row + down(i), task.column + across(i));
        return odd;
    }
    // Leaves a block of a work's sums, and returns whether some are not finite, so that all have to be left with care. All
    // threads of groups that have every other tile, or of a block that is turned round, put theirs into shared memory.
    static __device__ __forceinline__ bool fails(SharedStorage& storage, Multiplier& at, const Task& task,
                                                 double* partial)
    {
        double* const all = (double*)&storage;
        double far[COUNT];
        multiply(storage, at, task, far);
        if (any(is_odd(task, far))) return true;
        if (!task.alike && !BY_TILES) {
            VISPARK_UNROLL
            for (int i = 0; i < COUNT; ++i)
                Matrix::put(partial, task.row + down(i), task.column + across(i), far[i]);
            return false;
        }
        VISPARK_UNROLL
        for (int i = 0; i < COUNT; ++i)
            if (!BY_TILES || threadIdx.x < 128) all[down(i) * PITCH + across(i)] = far[i];
        barrier();
        if (BY_TILES) {
            VISPARK_UNROLL
            for (int i = 0; i < COUNT; ++i)
                if (threadIdx.x >= 128) all[down(i) * PITCH + across(i)] += far[i];
            barrier();
        }
        VISPARK_PRAGMA(unroll 1)
        for (int i = threadIdx.x; i < SIDE * SIDE; i += 32 * MULTIPLIERS) {
            const int row = i / SIDE, column = i % SIDE;
            // Both halves of a matrix that is turned round come out alike.
            double sum = all[row * PITCH + column];
            if (task.alike) sum = 0.5 * (sum + all[column * PITCH + row]);
            Matrix::put(partial, task.row + row, task.column + column, sum);
        }
        return false;
    }
    // The barriers of that, for loaders.
    static __device__ __forceinline__ bool accompany(const Task& task)
    {
        if (any(false)) return true;
        if (BY_TILES || task.alike) barrier();
        if (BY_TILES) barrier();
        return false;
    }
};

// The whole fold of rows in port PORT of PORTS: what each work leaves, in `partials`. `memory` has BYTES.
template <int M, int N, bool HALF, int WIDTH, int LEFT, int RIGHT, int ROWS, int STAGES, int SPLIT, int AHEAD,
          int LOADERS, int BYTES>
__device__ __forceinline__ void fold_by_roles(const long long* works, void* const* ports, int width, int port,
                                              unsigned char* memory, double* partials)
{
    typedef Blocks<M, N, HALF, (M > N ? M : N) <= 64 ? 64 : 128> Matrix;
    typedef BlockRoles<Matrix, WIDTH, LEFT, RIGHT, ROWS, STAGES, SPLIT, AHEAD, LOADERS> Roles;
    typedef BlockSums<Blocks<M, N, HALF>, WIDTH, LEFT, RIGHT, 32, 2, 4> Careful;
    static_assert(BYTES >= sizeof(typename Roles::SharedStorage) && BYTES >= Careful::BYTES,
                  "shared memory has room for all");
    typename Roles::SharedStorage& storage = *(typename Roles::SharedStorage*)memory;
    const Dealt dealt(Matrix::COUNT);
    Roles::prepare(storage);
    if (threadIdx.x < 32 * Roles::MULTIPLIERS) {
        tensor::take_registers<LOADERS == 4 ? 232 : 216>();
        typename Roles::Multiplier at;
        VISPARK_PRAGMA(unroll 1)
        for (int item = dealt.begin(); item < dealt.end(); item += dealt.some) {
            const int number = dealt.work_of(item);
            const Work work(works, ports, width, number);
            const float* const all = work.of<const float>(port, WIDTH);
            const typename Roles::Task task(all, work.count, dealt.block_of(item));
            double* const partial = partials + number * Matrix::SIZE;
            if (Roles::fails(storage, at, task, partial))
                Careful(memory, all, work.count, dealt.block_of(item)).by_warps(partial, true);
            if (Roles::FLAT) tensor::publish();      // bulk copies write next where sums were
            barrier();
        }
    } else {
        tensor::leave_registers<40>();
        typename Roles::Loader at;
        VISPARK_PRAGMA(unroll 1)
        for (int item = dealt.begin(); item < dealt.end(); item += dealt.some) {
            const Work work(works, ports, width, dealt.work_of(item));
            const float* const all = work.of<const float>(port, WIDTH);
            const typename Roles::Task task(all, work.count, dealt.block_of(item));
            Roles::load(storage, at, task);
            if (Roles::accompany(task)) Careful(memory, all, work.count, dealt.block_of(item)).accompany();
            barrier();
        }
    }
}

}  // namespace rows

#endif
