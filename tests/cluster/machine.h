// A cluster of thread blocks on one thread of a CPU: each of its threads is a fiber. Fibers go on in random order, copies
// and messages to other blocks arrive at random times, and a copy in a hundred very late.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "fibers.h"

#define __device__
#define __forceinline__ inline
#define __shared__ static
using std::max;
using std::min;

struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __ffsll(long long v) { return __builtin_ffsll(v); }

namespace machine {

inline void fail(const char* why)
{
    puts(why);
    exit(1);
}

// A barrier in shared memory: what each phase expects, what this one lacks, its number, and bytes that are to come.
struct Barrier {
    unsigned char expected, lacking;
    unsigned short phase;
    int bytes;
    void settle()
    {
        if (lacking || bytes) return;
        phase ^= 1;
        lacking = expected;
    }
    void arrive()
    {
        if (!lacking) fail("more arrivals than a phase has");
        lacking--;
        settle();
    }
};
static_assert(sizeof(Barrier) == 8, "as large as one of a GPU");

struct Meeting { int arrived = 0, turn = 0; };
struct Warp { Meeting meeting; unsigned long long value[32]; };
struct Block { unsigned char* shared; Meeting meeting; Warp warps[32]; };
struct Fiber { void* stack; unsigned thread, block; bool is_done; };
// Something on its way: bytes, or without any an arrival. It takes so long at least.
struct Message { void* to; const void* from; unsigned bytes; Barrier* barrier; unsigned char value[16]; long after; };

inline std::vector<Fiber> fibers;
inline std::vector<Block> blocks;
inline size_t shared_bytes;
inline std::vector<Message> messages;
inline Meeting of_cluster;
inline void* scheduler;
inline unsigned running, threads;
inline long turns;
inline std::function<void()> body;
inline unsigned long long state = 1;

inline unsigned dice()
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state >> 16);
}
inline void yield() { vispark_switch(&fibers[running].stack, scheduler); }
inline Block& block() { return blocks[fibers[running].block]; }
inline Warp& warp() { return block().warps[fibers[running].thread / 32]; }
inline void meet(Meeting& meeting, int all)
{
    const int turn = meeting.turn;
    if (++meeting.arrived == all) {
        meeting.arrived = 0;
        meeting.turn++;
    }
    while (meeting.turn == turn) yield();
}
inline void send(Message message)
{
    message.after = turns + (message.from && dice() % 100 == 0 ? 60'000 : 0);
    messages.push_back(message);
}
template <class T> T* there(T* local, unsigned rank)
{
    const size_t at = (unsigned char*)local - block().shared;
    if (at >= shared_bytes) fail("an address outside of shared memory");
    return (T*)(blocks[rank].shared + at);
}
inline void enter()
{
    body();
    fibers[running].is_done = true;
    for (;;) yield();
}
inline void deliver()
{
    for (unsigned i = dice() % 200; i && !messages.empty(); i--) {
        const size_t at = dice() % messages.size();
        const Message one = messages[at];
        if (one.after > turns) continue;
        messages[at] = messages.back();
        messages.pop_back();
        if (!one.to) {
            one.barrier->arrive();
            continue;
        }
        memcpy(one.to, one.from ? one.from : one.value, one.bytes);
        one.barrier->bytes -= (int)one.bytes;
        one.barrier->settle();
    }
}

// What all threads of a cluster do, with so many bytes of shared memory each block.
inline void launch(unsigned ranks, unsigned count, size_t shared, std::function<void()> kernel)
{
    constexpr size_t STACK = 65536, LINE = 128;
    threads = count;
    body = kernel;
    shared_bytes = (shared + LINE - 1) / LINE * LINE;
    std::vector<unsigned char> memory(shared_bytes * ranks + LINE, 0xff);
    std::vector<char> stacks(STACK * count * ranks + 64);
    blocks.assign(ranks, Block());
    for (unsigned i = 0; i < ranks; i++)
        blocks[i].shared = memory.data() + (LINE - (size_t)memory.data() % LINE) + i * shared_bytes;
    fibers.assign(count * ranks, Fiber());
    for (unsigned i = 0; i < fibers.size(); i++) {
        char* const bottom = stacks.data() + (64 - (size_t)stacks.data() % 64) + i * STACK;
        fibers[i] = {prepare_stack(bottom, bottom + STACK, enter), i % count, i / count, false};
    }
    for (size_t left = fibers.size(); left; turns++) {
        if (turns > 40'000'000) fail("all wait for each other");
        const unsigned first = dice() % fibers.size();      // neighbours, a warp's worth of them
        for (unsigned i = 0; i < 32 && left; i++) {
            running = (first / 32 * 32 + (first + i) % 32) % fibers.size();
            if (fibers[running].is_done) continue;
            vispark_switch(&scheduler, fibers[running].stack);
            left -= fibers[running].is_done;
        }
        if (dice() % 8 == 0) deliver();
    }
    if (!messages.empty()) fail("messages to blocks that have ended");
}

// Numbers as CUDA has them, of the fiber that runs.
template <unsigned (*now)()> struct Number {
    struct { operator unsigned() const { return now(); } } x;
};
inline unsigned thread() { return fibers[running].thread; }
inline unsigned number() { return fibers[running].block; }
inline unsigned size() { return threads; }

}  // namespace machine

inline machine::Number<machine::thread> threadIdx;
inline machine::Number<machine::number> blockIdx;
inline machine::Number<machine::size> blockDim;
inline void __syncthreads() { machine::meet(machine::block().meeting, machine::threads); }
inline void __syncwarp() { machine::meet(machine::warp().meeting, 32); }
template <class T> T __shfl_sync(unsigned, T value, int lane)
{
    unsigned long long& slot = machine::warp().value[threadIdx.x % 32];
    slot = 0;
    memcpy(&slot, &value, sizeof value);
    __syncwarp();
    memcpy(&value, &machine::warp().value[lane & 31], sizeof value);
    __syncwarp();
    return value;
}
template <class T> T __shfl_xor_sync(unsigned all, T value, int by)
{
    return __shfl_sync(all, value, (threadIdx.x % 32) ^ by);
}
template <class T> T __shfl_down_sync(unsigned all, T value, int by)
{
    return __shfl_sync(all, value, min(threadIdx.x % 32 + by, 31u));
}
template <class T> T __shfl_up_sync(unsigned all, T value, int by)
{
    return __shfl_sync(all, value, max((int)(threadIdx.x % 32) - by, 0));
}
inline unsigned __ballot_sync(unsigned all, bool holds)
{
    unsigned votes = 0;
    for (int lane = 0; lane < 32; lane++) votes |= (unsigned)__shfl_sync(all, holds, lane) << lane;
    return votes;
}
inline unsigned __match_any_sync(unsigned all, int value)
{
    unsigned votes = 0;
    for (int lane = 0; lane < 32; lane++) votes |= (unsigned)(__shfl_sync(all, value, lane) == value) << lane;
    return votes;
}
template <class T> T atomicAdd(T* at, T by)
{
    const T before = *at;
    *at += by;
    return before;
}
