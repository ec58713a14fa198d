// Folds with associative operators. No identity is needed: every thread and block folds at least one record.
struct Add { template <typename A> static __device__ A of(A a, A b) { return a + b; } };
struct Multiply { template <typename A> static __device__ A of(A a, A b) { return a * b; } };
struct Minimum { template <typename A> static __device__ A of(A a, A b) { return b < a || b != b ? b : a; } };
struct Maximum { template <typename A> static __device__ A of(A a, A b) { return a < b || b != b ? b : a; } };
struct And { template <typename A> static __device__ A of(A a, A b) { return a & b; } };
struct Or { template <typename A> static __device__ A of(A a, A b) { return a | b; } };
struct Xor { template <typename A> static __device__ A of(A a, A b) { return a ^ b; } };

// What is folded: the value itself; its size, which bounds sums; its size or 1, which bounds products; whether it is NaN.
struct Value { template <typename A, typename T> static __device__ A of(T v) { return (A)v; } };
struct Size { template <typename A, typename T> static __device__ A of(T v) { return v < 0 ? -(A)v : (A)v; } };
struct SizeOrOne {
    template <typename A, typename T> static __device__ A of(T v) { A a = v < 0 ? -(A)v : (A)v; return a < 1 ? 1 : a; }
};
struct IsNan { template <typename A, typename T> static __device__ A of(T v) { return v != v ? (A)1 : (A)0; } };

// Fold rows [blockIdx.y * chunk, ...) of a (rows, columns) array into row blockIdx.y of out. A block's X threads side by
// side take neighbouring columns, its 256 / X threads above each other take rows in turn, and a tree joins them.
template <typename Op, typename Of, typename T, typename A, int X>
__global__ void fold_rows(const T* in, A* out, long long rows, long long columns, long long chunk)
{
    constexpr int Y = 256 / X;
    __shared__ A tile[Y][X];
    const int x = threadIdx.x, y = threadIdx.y;
    const long long column = (long long)blockIdx.x * X + x;
    const long long first = (long long)blockIdx.y * chunk;
    const long long count = rows - first < chunk ? rows - first : chunk;
    if (column < columns && y < count) {
        A folded = Of::template of<A>(in[(first + y) * columns + column]);
        for (long long row = y + Y; row < count; row += Y)
            folded = Op::of(folded, Of::template of<A>(in[(first + row) * columns + column]));
        tile[y][x] = folded;
    }
    __syncthreads();
    for (int half = Y / 2; half > 0; half /= 2) {
        if (column < columns && y < half && y + half < count)
            tile[y][x] = Op::of(tile[y][x], tile[y + half][x]);
        __syncthreads();
    }
    if (column < columns && y == 0)
        out[(long long)blockIdx.y * columns + column] = tile[0][x];
}

// Fold an array into another, element by element; the first one starts it.
template <typename Op, typename Of, typename T, typename A>
__global__ void fold_into(const T* in, A* out, long long n, int first)
{
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x) {
        A value = Of::template of<A>(in[i]);
        out[i] = first ? value : Op::of(out[i], value);
    }
}
