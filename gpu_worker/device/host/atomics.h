// Atomic functions, with the types that CUDA has them for. Relaxed order, as there.
#pragma once

namespace vispark {

template <class T, class Change>
static inline T change(T* address, Change next) {
    T seen, wanted;
    __atomic_load(address, &seen, __ATOMIC_RELAXED);
    do wanted = next(seen);
    while (!__atomic_compare_exchange(address, &seen, &wanted, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return seen;
}

}  // namespace vispark

#define VISPARK_ATOMIC(name, T, expression)                                                            \
    static inline T name(T* address, T value) { return expression; }                                   \
    static inline T name##_block(T* address, T value) { return name(address, value); }                 \
    static inline T name##_system(T* address, T value) { return name(address, value); }
#define VISPARK_LOOP(name, T, expression) \
    VISPARK_ATOMIC(name, T, vispark::change(address, [=](T old) -> T { return expression; }))

#define VISPARK_INTEGER(T)                                                                   \
    VISPARK_ATOMIC(atomicAdd, T, __atomic_fetch_add(address, value, __ATOMIC_RELAXED))       \
    VISPARK_ATOMIC(atomicExch, T, __atomic_exchange_n(address, value, __ATOMIC_RELAXED))
#define VISPARK_ORDERED(T)                                                                   \
    VISPARK_LOOP(atomicMin, T, old < value ? old : value)                                    \
    VISPARK_LOOP(atomicMax, T, old > value ? old : value)                                    \
    VISPARK_ATOMIC(atomicAnd, T, __atomic_fetch_and(address, value, __ATOMIC_RELAXED))       \
    VISPARK_ATOMIC(atomicOr, T, __atomic_fetch_or(address, value, __ATOMIC_RELAXED))         \
    VISPARK_ATOMIC(atomicXor, T, __atomic_fetch_xor(address, value, __ATOMIC_RELAXED))

VISPARK_INTEGER(int)
VISPARK_INTEGER(unsigned)
VISPARK_INTEGER(unsigned long)  // what the C library calls uint64_t; with NVRTC that is the next one
VISPARK_INTEGER(unsigned long long)
VISPARK_ORDERED(int)
VISPARK_ORDERED(unsigned)
VISPARK_ORDERED(long)
VISPARK_ORDERED(unsigned long)
VISPARK_ORDERED(long long)
VISPARK_ORDERED(unsigned long long)
VISPARK_ATOMIC(atomicSub, int, __atomic_fetch_sub(address, value, __ATOMIC_RELAXED))
VISPARK_ATOMIC(atomicSub, unsigned, __atomic_fetch_sub(address, value, __ATOMIC_RELAXED))
VISPARK_LOOP(atomicInc, unsigned, old >= value ? 0 : old + 1)
VISPARK_LOOP(atomicDec, unsigned, old == 0 || old > value ? value : old - 1)
VISPARK_LOOP(atomicAdd, float, old + value)
VISPARK_LOOP(atomicAdd, double, old + value)
VISPARK_LOOP(atomicExch, float, value)

#undef VISPARK_ORDERED
#undef VISPARK_INTEGER
#undef VISPARK_LOOP
#undef VISPARK_ATOMIC

// Of vectors each component is added atomically by itself, as in CUDA.
static inline float2 atomicAdd(float2* address, float2 value) {
    float2 old = {atomicAdd(&address->x, value.x), atomicAdd(&address->y, value.y)};
    return old;
}
static inline float4 atomicAdd(float4* address, float4 value) {
    float4 old = {atomicAdd(&address->x, value.x), atomicAdd(&address->y, value.y),
                  atomicAdd(&address->z, value.z), atomicAdd(&address->w, value.w)};
    return old;
}

#define VISPARK_CAS(T)                                                                                            \
    static inline T atomicCAS(T* address, T compare, T value) {                                                   \
        __atomic_compare_exchange_n(address, &compare, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);         \
        return compare;                                                                                           \
    }                                                                                                             \
    static inline T atomicCAS_block(T* address, T compare, T value) { return atomicCAS(address, compare, value); } \
    static inline T atomicCAS_system(T* address, T compare, T value) { return atomicCAS(address, compare, value); }

VISPARK_CAS(int)
VISPARK_CAS(unsigned)
VISPARK_CAS(unsigned long)
VISPARK_CAS(unsigned long long)
VISPARK_CAS(unsigned short)
#undef VISPARK_CAS

static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_block() { __atomic_signal_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
