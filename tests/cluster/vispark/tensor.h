// What of tensor.h the kernel of a pair of thread blocks needs, on the machine of machine.h.
#pragma once

#include "machine.h"

#include "vispark/mma.h"

namespace tensor {

using machine::Barrier;
typedef unsigned char* Shared;
inline Shared shared_of(const void* p) { return (Shared)p; }

inline void publish() {}

inline void prepare(Shared at, int arrivals)
{
    *(Barrier*)at = {(unsigned char)arrivals, (unsigned char)arrivals, 0, 0};
}
inline void prepared() {}
inline void arrive(Shared at) { ((Barrier*)at)->arrive(); }
inline void wait(Shared at, unsigned parity)
{
    while (((Barrier*)at)->phase == parity) machine::yield();
}
inline void wait_for_cluster(Shared at, unsigned parity) { wait(at, parity); }
inline void expect(Shared at, unsigned bytes)
{
    ((Barrier*)at)->bytes += (int)bytes;
    arrive(at);
}
inline void add_once(Shared to, const void* from, unsigned bytes, Shared at)
{
    if (bytes % 16 || (size_t)to % 16 || (size_t)from % 16) machine::fail("a bulk copy that is not aligned");
    memset(to, 0xff, bytes);
    machine::send({to, from, bytes, (Barrier*)at, {}, 0});
}

inline unsigned rank() { return machine::fibers[machine::running].block; }
inline void join_cluster() { machine::meet(machine::of_cluster, (int)machine::fibers.size()); }
inline int there(const int* local, unsigned rank) { return *machine::there(local, rank); }
template <class T, class V> void send(T* local, unsigned rank, V value, const void* bar)
{
    machine::Message one = {machine::there(local, rank), nullptr, sizeof value,
                            (Barrier*)machine::there((char*)bar, rank), {}, 0};
    memcpy(one.value, &value, sizeof value);
    machine::send(one);
}
inline void arrive_there(const void* bar, unsigned rank)
{
    machine::send({nullptr, nullptr, 0, (Barrier*)machine::there((char*)bar, rank), {}, 0});
}
inline void arrive_in_cluster(const void* bar, unsigned rank) { arrive_there(bar, rank); }
template <int registers> void take_registers() {}
template <int registers> void leave_registers() {}
inline int thread() { return threadIdx.x; }

// Of other ways, which no pair takes.
template <class T, int n> void stream(T (&)[n], const T*) {}
template <class T, int n> void copied(T (&)[n], Shared) {}
template <int N, int WIDE> int place_of(int, int) { return 0; }
template <int PARTS> struct Rows {
    unsigned high[4], low[4];
    void set(float4, float4) {}
};
template <int N, int PARTS> void multiply(float (&)[N / 2], const Rows<PARTS>&, const unsigned char*, bool) {}
template <int pending> void await_copies() {}
template <int pending> void end() {}
inline void copy(Shared, const void*, bool) {}
inline void end_copies() {}
inline void forget(Shared) {}
inline void bring(Shared, const void*, unsigned, Shared) {}
inline void bring_once(Shared, const void*, unsigned, Shared) {}

}  // namespace tensor
