// Keys as the kernels that exchange and sort rows see them: Python's hash, and numbers in the order of keys; and sums over
// a block's threads.
#pragma once

#include "vispark/target.h"

typedef unsigned long long u64;

constexpr int THREADS = 256, WARPS = THREADS / 32;

// Python's hash of numbers: the number modulo 2^61 - 1 with its sign, where halves and their like are powers of 2's
// inverse there; -1 stands for an error in C and is replaced by -2 (CPython, Objects/longobject.c, Python/pyhash.c).
constexpr u64 MODULUS = (1ull << 61) - 1;

__device__ __forceinline__ long long signed_hash(u64 rest, bool negative)
{
    const long long hash = negative ? -(long long)rest : (long long)rest;
    return hash == -1 ? -2 : hash;
}
__device__ __forceinline__ long long hash_of(u64 size, bool negative)
{
    u64 rest = (size & MODULUS) + (size >> 61);
    return signed_hash(rest >= MODULUS ? rest - MODULUS : rest, negative);
}
template <typename K> __device__ __forceinline__ long long python_hash(K key)
{
    return key < (K)0 ? hash_of(0ull - (u64)(long long)key, true) : hash_of((u64)key, false);
}
template <> __device__ __forceinline__ long long python_hash<double>(double key)
{
    const u64 bits = (u64)__double_as_longlong(key);
    const bool negative = bits >> 63;
    int exponent = (int)(bits >> 52 & 0x7ff);
    u64 rest = bits & ((1ull << 52) - 1);
    if (exponent == 0x7ff) return negative ? -314159 : 314159;
    if (exponent) rest |= 1ull << 52; else exponent = 1;
    const int turn = (exponent - 1075 + 61 * 18) % 61;      // 2^61 is 1
    rest = turn ? (rest << turn & MODULUS) | rest >> (61 - turn) : rest;
    return signed_hash(rest, negative);
}
template <> __device__ __forceinline__ long long python_hash<float>(float key) { return python_hash((double)key); }

// Numbers without a sign that are in the order of keys; 0.0 and -0.0 are one key.
__device__ __forceinline__ u64 ordered(long long key) { return (u64)key ^ 1ull << 63; }
__device__ __forceinline__ u64 ordered(u64 key) { return key; }
__device__ __forceinline__ unsigned ordered(int key) { return (unsigned)key ^ 1u << 31; }
__device__ __forceinline__ unsigned ordered(unsigned key) { return key; }
__device__ __forceinline__ unsigned ordered(short key) { return ordered((int)key); }
__device__ __forceinline__ unsigned ordered(signed char key) { return ordered((int)key); }
__device__ __forceinline__ unsigned ordered(unsigned short key) { return key; }
__device__ __forceinline__ unsigned ordered(unsigned char key) { return key; }
__device__ __forceinline__ u64 ordered(double key)
{
    const u64 bits = key == 0.0 ? 0 : (u64)__double_as_longlong(key);
    return bits >> 63 ? ~bits : bits | 1ull << 63;
}
__device__ __forceinline__ unsigned ordered(float key)
{
    const unsigned bits = key == 0.0f ? 0 : (unsigned)__float_as_int(key);
    return bits >> 31 ? ~bits : bits | 1u << 31;
}

// Rows that are not equal to themselves are counted: there is no place for NaN.
template <typename K> __device__ __forceinline__ bool is_wrong(K key, u64* wrong)
{
    if (key == key) return false;
    atomicAdd(wrong, 1ull);
    return true;
}

// The sum of the values of a block's threads before this one, and of all; for THREADS threads.
__device__ __forceinline__ u64 sum_before(u64 value, u64* shared, u64* total)
{
    const int place = threadIdx.x;
    shared[place] = value;
    __syncthreads();
    for (int reach = 1; reach < THREADS; reach *= 2) {
        const u64 more = place >= reach ? shared[place - reach] : 0;
        __syncthreads();
        shared[place] += more;
        __syncthreads();
    }
    const u64 before = shared[place] - value;
    *total = shared[THREADS - 1];
    __syncthreads();
    return before;
}
