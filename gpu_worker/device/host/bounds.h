// Checks of memory accesses against the buffers that a kernel was launched with; for units compiled with VISPARK_BOUNDS.
//
// The compiler calls one of the functions at the end before each access (-fsanitize=kernel-address). Around every buffer
// of the device there is a gap of GAP bytes in which nothing lies, so an address that is in none of the launch's buffers
// and less than a gap away from one has missed that one.
#pragma once

#define VISPARK_UNCHECKED __attribute__((no_sanitize("kernel-address")))

namespace vispark {

static thread_local const Launch* checked_launch;

VISPARK_UNCHECKED __attribute__((noinline)) static void check_access(Word address, Word size, unsigned write) {
    Bounds* bounds = checked_launch ? checked_launch->bounds : nullptr;
    if (!bounds) return;
    Word missed = bounds->count;
    for (Word i = 0; i < bounds->count; i++) {
        const Range range = bounds->ranges[i];
        if (address >= range.start && address + size <= range.end) return;
        if (address + size + bounds->gap > range.start && address < range.end + bounds->gap) missed = i;
    }
    if (missed == bounds->count || __atomic_exchange_n(&bounds->taken, 1u, __ATOMIC_SEQ_CST)) return;
    bounds->buffer = missed;
    bounds->address = address;
    bounds->size = size;
    bounds->write = write;
    const uint3 places[] = {blockIdx, threadIdx};
    for (unsigned i = 0; i < 2; i++) {
        bounds->place[3 * i] = places[i].x;
        bounds->place[3 * i + 1] = places[i].y;
        bounds->place[3 * i + 2] = places[i].z;
    }
}

}  // namespace vispark

#define VISPARK_CALLED extern "C" VISPARK_UNCHECKED __attribute__((used)) void
#define VISPARK_ACCESS(name, write)                                                                                 \
    VISPARK_CALLED __asan_##name##N_noabort(void* address, long size) {                                             \
        vispark::check_access(reinterpret_cast<vispark::Word>(address), static_cast<vispark::Word>(size), write);   \
    }                                                                                                               \
    VISPARK_ACCESS_OF(name, write, 1) VISPARK_ACCESS_OF(name, write, 2) VISPARK_ACCESS_OF(name, write, 4)           \
    VISPARK_ACCESS_OF(name, write, 8) VISPARK_ACCESS_OF(name, write, 16)
#define VISPARK_ACCESS_OF(name, write, size)                                                                        \
    VISPARK_CALLED __asan_##name##size##_noabort(void* address) {                                                   \
        vispark::check_access(reinterpret_cast<vispark::Word>(address), size, write);                               \
    }
VISPARK_ACCESS(load, 0)
VISPARK_ACCESS(store, 1)
VISPARK_CALLED __asan_handle_no_return() {}
#undef VISPARK_ACCESS
#undef VISPARK_ACCESS_OF
#undef VISPARK_CALLED
