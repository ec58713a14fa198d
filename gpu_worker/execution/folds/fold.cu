// kernels: fold_rows<Add, Value, float, double, 32>, fold_rows<Add, Value, double, Twofold, 1>,
// fold_rows<Add, Value, Twofold, Twofold, 32>, fold_rows<Add, IsNan, float, double, 8>,
// fold_rows<Multiply, SizeOrOne, long long, double, 4>, fold_into<Maximum, Value, short, short>,
// fold_into<Add, Value, double, Twofold>, fold_axis<Add, float, double, 1>, fold_axis<Minimum, double, double, 32>,
// fold_axis<Add, double, Twofold, 32>, fold_axis<And, unsigned char, unsigned char, 1>,
// fold_by_key<Add, Value, float, double, int>, fold_by_key<Add, Value, double, Twofold, long long>,
// fold_by_key<Add, One, long long, long long, long long>, fold_by_key<Add, Size, long long, double, unsigned char>,
// fold_by_key<Minimum, Value, signed char, signed char, unsigned long long>,
// fold_by_key<Maximum, Value, float, double, int>, settle<Twofold, double>, settle<double, float>,
// join_works<Add, double, double, 8>, join_works<Add, Twofold, Twofold, 1>, join_works<Maximum, int, int, 32>,
// join_works<Add, Twofold, double, 4>, join_works<Multiply, double, float, 2>
#include "vispark/fold.h"
#include "vispark/target.h"

// Fold values of `count` rows, in the order of a block of Y threads above each other and the tree that joins them, by one
// thread: a CPU has none that run beside each other, and a barrier would cost it more than the values do.
template <typename Op, typename A, int Y, typename Rows>
__device__ A fold_alone(long long count, Rows rows)
{
    A lanes[Y];
    for (int y = 0; y < Y && y < count; ++y) {
        lanes[y] = rows(y);
        for (long long row = y + Y; row < count; row += Y)
            lanes[y] = Op::of(lanes[y], rows(row));
    }
    for (int half = Y / 2; half > 0; half /= 2)
        for (int y = 0; y < half && y + half < count; ++y)
            lanes[y] = Op::of(lanes[y], lanes[y + half]);
    return lanes[0];
}

// Join the first `count` rows of a block's accumulators into row 0 by a tree; a thread outside only waits with it.
template <typename Op, typename A, int Y, int X>
__device__ void join_rows(A (&tile)[Y][X], bool inside, long long count)
{
    const int x = threadIdx.x, y = threadIdx.y;
    __syncthreads();
    for (int half = Y / 2; half > 0; half /= 2) {
        if (inside && y < half && y + half < count)
            tile[y][x] = Op::of(tile[y][x], tile[y + half][x]);
        __syncthreads();
    }
}

// Fold rows [blockIdx.y * chunk, ...) of a (rows, columns) array into row blockIdx.y of out. A block's X threads side
// by side take neighbouring columns, its 256 / X threads above each other take rows in turn, and a tree joins them.
template <typename Op, typename Of, typename T, typename A, int X>
__global__ void fold_rows(const T* in, A* out, long long rows, long long columns, long long chunk)
{
    constexpr int Y = 256 / X;
    const int x = threadIdx.x, y = threadIdx.y;
    const long long column = (long long)blockIdx.x * X + x;
    const long long first = (long long)blockIdx.y * chunk;
    const long long count = rows - first < chunk ? rows - first : chunk;
    if constexpr (VISPARK_ALONE) {
        if (y == 0 && column < columns && count > 0)
            out[(long long)blockIdx.y * columns + column] = fold_alone<Op, A, Y>(count, [&](long long row) {
                return Of::template of<A>(in[(first + row) * columns + column]);
            });
    } else {
        __shared__ A tile[Y][X];
        if (column < columns && y < count) {
            A folded = Of::template of<A>(in[(first + y) * columns + column]);
            for (long long row = y + Y; row < count; row += Y)
                folded = Op::of(folded, Of::template of<A>(in[(first + row) * columns + column]));
            tile[y][x] = folded;
        }
        join_rows<Op>(tile, column < columns, count);
        if (column < columns && y == 0)
            out[(long long)blockIdx.y * columns + column] = tile[0][x];
    }
}

// Fold an array into another, element by element; the first one starts it.
template <typename Op, typename Of, typename T, typename A>
__global__ void fold_into(const T* in, A* out, long long n, int first)
{
    const long long all = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += all) {
        A value = Of::template of<A>(in[i]);
        out[i] = first ? value : Op::of(out[i], value);
    }
}

// Fold the middle axis of an (outer, extent, inner) array. L neighbouring threads share a result: 1 where neighbouring
// results lie side by side in memory, else 32.
template <typename Op, typename T, typename A, int L>
__global__ void fold_axis(const T* in, T* out, long long outer, long long extent, long long inner)
{
    __shared__ A tile[L == 1 ? 1 : 256];
    const int lane = threadIdx.x % L;
    const long long result = (long long)blockIdx.x * (256 / L) + threadIdx.x / L;
    const bool is_there = result < outer * inner;
    A folded = Op::template identity<A>();
    if (is_there && lane < extent) {
        const T* column = in + result / inner * extent * inner + result % inner;
        folded = Value::of<A>(column[lane * inner]);
        for (long long row = lane + L; row < extent; row += L)
            folded = Op::of(folded, Value::of<A>(column[row * inner]));
    }
    if (L > 1) {
        tile[threadIdx.x % (L == 1 ? 1 : 256)] = folded;
        for (int half = L / 2; half > 0; half /= 2) {
            __syncthreads();
            if (lane < half && lane + half < extent)
                tile[threadIdx.x] = folded = Op::of(folded, tile[threadIdx.x + half]);
        }
    }
    if (is_there && lane == 0)
        out[result] = extent ? (T)folded : (T)(folded + (A)0);     // a sum of nothing is 0.0, not -0.0
}

// Fold the rows of a (rows, columns) array that have the same key. Each thread has a column and every blockDim.y-th of
// its block's rows, and folds into groups of its own, so that nobody waits: in shared memory if `staged`, where they
// fit. `partials` is (gridDim.y * blockDim.y, groups, columns). Keys outside [0, groups) are left out.
template <typename Op, typename Of, typename T, typename A, typename K>
__global__ void fold_by_key(const K* keys, const T* in, A* partials, long long rows, long long columns,
                            long long groups, long long chunk, int staged)
{
    extern __shared__ double memory[];
    const int X = blockDim.x, Y = blockDim.y;
    const long long column = (long long)blockIdx.x * X + threadIdx.x;
    if (column >= columns)
        return;
    A* own = partials + ((long long)blockIdx.y * Y + threadIdx.y) * groups * columns + column;
    A* cells = staged ? (A*)memory + (long long)threadIdx.y * groups * X + threadIdx.x : own;
    const long long stride = staged ? X : columns;
    for (long long group = 0; group < groups; group++)
        cells[group * stride] = Op::template identity<A>();
    const long long first = (long long)blockIdx.y * chunk + threadIdx.y;
    const long long last = rows < (blockIdx.y + 1) * chunk ? rows : (blockIdx.y + 1) * chunk;
    constexpr int AHEAD = 4;    // loads on their way at once
    long long row = first;
    for (; row + (AHEAD - 1) * Y < last; row += AHEAD * Y) {
        long long key[AHEAD];
        A value[AHEAD];
        for (int i = 0; i < AHEAD; i++) {
            key[i] = (long long)keys[row + i * Y];
            value[i] = Of::template of<A>(in[(row + i * Y) * columns + column]);
        }
        for (int i = 0; i < AHEAD; i++)
            if (key[i] >= 0 && key[i] < groups)
                cells[key[i] * stride] = Op::of(cells[key[i] * stride], value[i]);
    }
    for (; row < last; row += Y) {
        const long long key = (long long)keys[row];
        if (key >= 0 && key < groups)
            cells[key * stride] = Op::of(cells[key * stride], Of::template of<A>(in[row * columns + column]));
    }
    if (staged)
        for (long long group = 0; group < groups; group++)
            own[group * columns] = cells[group * stride];
}

// Accumulators as elements.
template <typename A, typename T>
__global__ void settle(const A* in, T* out, long long n)
{
    const long long all = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += all)
        out[i] = (T)in[i];
}

// Join the accumulators that works left one behind the other, `columns` each: those of works [starts[s],
// starts[s + 1]) into out[s], as elements of type T. A block's X threads side by side take neighbouring columns, its
// 256 / X threads above each other take works in turn, and a tree joins them.
template <typename Op, typename A, typename T, int X>
__global__ void join_works(const A* partials, const long long* starts, void* const* out, long long columns)
{
    constexpr int Y = 256 / X;
    const int x = threadIdx.x, y = threadIdx.y;
    const long long first = starts[blockIdx.x], count = starts[blockIdx.x + 1] - first;
    T* target = (T*)out[blockIdx.x];
    if constexpr (VISPARK_ALONE) {
        const long long all = (long long)gridDim.y * X;
        for (long long column = (long long)blockIdx.y * X + x; y == 0 && column < columns; column += all) {
            const A* from = partials + first * columns + column;
            target[column] = count ? (T)fold_alone<Op, A, Y>(count, [&](long long row) { return from[row * columns]; })
                                   : (T)(Op::template identity<A>() + (A)0);
        }
    } else {
        __shared__ A tile[Y][X];
        for (long long left = (long long)blockIdx.y * X; left < columns; left += (long long)gridDim.y * X) {
            const long long column = left + x;
            if (column < columns && y < count) {
                const A* from = partials + first * columns + column;
                A folded = from[y * columns];
                for (long long work = y + Y; work < count; work += Y)
                    folded = Op::of(folded, from[work * columns]);
                tile[y][x] = folded;
            }
            join_rows<Op>(tile, column < columns, count);
            if (column < columns && y == 0)
                target[column] = count ? (T)tile[0][x] : (T)(Op::template identity<A>() + (A)0);
            __syncthreads();
        }
    }
}
