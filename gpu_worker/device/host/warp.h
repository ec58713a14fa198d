// Barriers, shuffles and votes: everything at which a thread waits for others. Warps have 32 lanes.
#pragma once

namespace vispark {

static const Runtime* runtime;

#ifdef VISPARK_NO_WAITS

// A unit compiled as one whose threads wait nowhere. Where it refers to this nonetheless, it is compiled once more.
extern "C" void vispark_waits();
static inline Word wait(Operation, unsigned = 0, Word = 0, unsigned = 0) { vispark_waits(); return 0; }
static inline unsigned this_thread() { return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x; }

#else

// The first thread of the block that has not started, and whether a thread of the block has waited.
static thread_local unsigned next_thread;
static thread_local bool has_waited;

static inline unsigned this_thread() { return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x; }

static inline Word wait(Operation operation, unsigned mask = 0, Word value = 0, unsigned lane = 0) {
    const uint3 own = threadIdx;  // other threads run meanwhile
    has_waited = true;
    const Word result = runtime->wait(this_thread(), next_thread, operation, mask, value, lane);
    threadIdx = own;
    return result;
}

#endif

static inline unsigned this_lane() { return this_thread() % 32; }

template <class T>
static inline T shuffle(unsigned mask, T value, unsigned lane) {
    static_assert(sizeof(T) <= sizeof(Word), "a shuffle moves at most 8 bytes");
    Word bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    bits = wait(SHUFFLE, mask, bits, lane);
    __builtin_memcpy(&value, &bits, sizeof(T));
    return value;
}

// The lane to read, or one's own where it would be outside the part of the warp that `width` cuts out.
static inline unsigned in_part(int lane, int width) {
    const int self = static_cast<int>(this_lane());
    return static_cast<unsigned>(lane / width == self / width && lane >= 0 ? lane : self);
}

}  // namespace vispark

// Others run meanwhile, so that a thread may wait for what they write.
static inline void __nanosleep(unsigned) { vispark::wait(vispark::YIELD); }
static inline void __syncthreads() { vispark::wait(vispark::BARRIER); }
static inline int __syncthreads_count(int predicate) {
    return static_cast<int>(vispark::wait(vispark::BARRIER_COUNT, 0, predicate != 0));
}
static inline int __syncthreads_and(int predicate) {
    return static_cast<int>(vispark::wait(vispark::BARRIER_AND, 0, predicate != 0));
}
static inline int __syncthreads_or(int predicate) {
    return static_cast<int>(vispark::wait(vispark::BARRIER_OR, 0, predicate != 0));
}
static inline void __syncwarp(unsigned mask = 0xffffffffu) { vispark::wait(vispark::BALLOT, mask); }

static inline unsigned __ballot_sync(unsigned mask, int predicate) {
    return static_cast<unsigned>(vispark::wait(vispark::BALLOT, mask, predicate != 0));
}
static inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
static inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }
static inline unsigned __activemask() { return static_cast<unsigned>(vispark::wait(vispark::ACTIVE, 0xffffffffu)); }

// The types that CUDA shuffles.
#define VISPARK_SHUFFLES(T)                                                                                      \
    static inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {                              \
        const int first = static_cast<int>(vispark::this_lane()) / width * width;                                \
        return vispark::shuffle(mask, value, static_cast<unsigned>(first + (lane & (width - 1))));               \
    }                                                                                                            \
    static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {                     \
        const int lane = static_cast<int>(vispark::this_lane()) - static_cast<int>(delta);                       \
        return vispark::shuffle(mask, value, vispark::in_part(lane, width));                                     \
    }                                                                                                            \
    static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {                   \
        const int lane = static_cast<int>(vispark::this_lane() + delta);                                         \
        return vispark::shuffle(mask, value, vispark::in_part(lane, width));                                     \
    }                                                                                                            \
    static inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {                         \
        /* unlike the others, it may read from an earlier part of the warp */                                    \
        const int self = static_cast<int>(vispark::this_lane()), lane = self ^ lanes;                            \
        return vispark::shuffle(mask, value,                                                                     \
                                static_cast<unsigned>(lane < 32 && lane / width <= self / width ? lane : self)); \
    }

VISPARK_SHUFFLES(int)
VISPARK_SHUFFLES(unsigned)
VISPARK_SHUFFLES(long)
VISPARK_SHUFFLES(unsigned long)
VISPARK_SHUFFLES(long long)
VISPARK_SHUFFLES(unsigned long long)
VISPARK_SHUFFLES(float)
VISPARK_SHUFFLES(double)
#undef VISPARK_SHUFFLES

#define VISPARK_REDUCE(T, name, operation)                                                                         \
    static inline T name(unsigned mask, T value) {                                                                 \
        return static_cast<T>(vispark::wait(vispark::operation, mask, static_cast<unsigned>(value)));              \
    }
VISPARK_REDUCE(int, __reduce_add_sync, REDUCE_ADD)
VISPARK_REDUCE(unsigned, __reduce_add_sync, REDUCE_ADD)
VISPARK_REDUCE(int, __reduce_min_sync, REDUCE_MIN)
VISPARK_REDUCE(unsigned, __reduce_min_sync, REDUCE_UMIN)
VISPARK_REDUCE(int, __reduce_max_sync, REDUCE_MAX)
VISPARK_REDUCE(unsigned, __reduce_max_sync, REDUCE_UMAX)
VISPARK_REDUCE(unsigned, __reduce_and_sync, REDUCE_AND)
VISPARK_REDUCE(unsigned, __reduce_or_sync, REDUCE_OR)
VISPARK_REDUCE(unsigned, __reduce_xor_sync, REDUCE_XOR)
#undef VISPARK_REDUCE

template <class T>
static inline unsigned __match_any_sync(unsigned mask, T value) {
    vispark::Word bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    return static_cast<unsigned>(vispark::wait(vispark::MATCH_ANY, mask, bits));
}
template <class T>
static inline unsigned __match_all_sync(unsigned mask, T value, int* predicate) {
    vispark::Word bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    const unsigned lanes = static_cast<unsigned>(vispark::wait(vispark::MATCH_ALL, mask, bits));
    *predicate = lanes != 0;
    return lanes;
}
