// The entry through which a kernel is launched: it is generated from the kernel's C++ type.
#pragma once

namespace vispark {

template <unsigned... I> struct Indices {};
template <unsigned N, unsigned... I> struct Count : Count<N - 1, N - 1, I...> {};
template <unsigned... I> struct Count<0, I...> { typedef Indices<I...> type; };

template <unsigned I, class T> struct Argument { T value; };
template <class Is, class... A> struct Arguments;
template <unsigned... I, class... A> struct Arguments<Indices<I...>, A...> : Argument<I, A>... {};

static constexpr unsigned MOST_THREADS = 1024, MOST_SMALL = 0x7fffffffu - MOST_THREADS;

template <class Kernel, Kernel kernel> struct Entry;

template <class... A, void (*kernel)(A...)>
struct Entry<void (*)(A...), kernel> {
    typedef typename Count<sizeof...(A)>::type Is;
    static constexpr unsigned count = sizeof...(A);
    static constexpr unsigned sizes[sizeof...(A) + 1] = {sizeof(A)..., 0};

    template <class T> static void read(const char*& from, T& value) {
        __builtin_memcpy(&value, from, sizeof(T));
        from += sizeof(T);
    }

    // The arguments are taken by value, and their address nowhere, so that they stay in registers across a user's stores.
#ifdef VISPARK_NO_WAITS
    // `small` says that the linear index of a thread along x fits an int. Kernels compute it unsigned and use it as an
    // int; the compiler sees consecutive addresses in that only where it knows that nothing wraps around.
    template <bool small, unsigned... I>
    __attribute__((flatten, noinline)) static void run_rows(Indices<I...>, Arguments<Indices<I...>, A...> values) {
        const unsigned width = blockDim.x, height = blockDim.y, depth = blockDim.z;
        if (width == 0 || width > MOST_THREADS) __builtin_unreachable();
        if (small && blockIdx.x * blockDim.x > MOST_SMALL) __builtin_unreachable();
        for (unsigned z = 0; z < depth; z++) {
            threadIdx.z = z;
            for (unsigned y = 0; y < height; y++) {
                threadIdx.y = y;
                // Threads that wait for each other nowhere may run in any order, so in vectors too.
                #pragma GCC ivdep
                for (unsigned x = 0; x < width; x++) {
                    threadIdx.x = x;
                    VISPARK_PLACE_IS_READ();
                    kernel(static_cast<Argument<I, A>&>(values).value...);
                }
            }
        }
    }

    template <unsigned... I> static void run(Indices<I...> indices, const Arguments<Indices<I...>, A...>& values) {
        if (static_cast<Word>(blockIdx.x) * blockDim.x <= MOST_SMALL) run_rows<true>(indices, values);
        else run_rows<false>(indices, values);
    }
#else
    template <unsigned... I>
    __attribute__((noinline)) static void run(Indices<I...>, Arguments<Indices<I...>, A...> values) {
        const unsigned width = blockDim.x, height = blockDim.y, total = width * height * blockDim.z;
        while (next_thread < total) {  // where a thread waits, others advance it meanwhile
            const unsigned row = next_thread / width;
            threadIdx.x = next_thread - row * width;
            threadIdx.y = row % height;
            threadIdx.z = row / height;
            ++next_thread;
            VISPARK_PLACE_IS_READ();
            kernel(static_cast<Argument<I, A>&>(values).value...);
        }
    }
#endif

    template <unsigned... I> static void unpack(Indices<I...> indices, const char* from) {
        Arguments<Indices<I...>, A...> values;
        const int in_order[] = {0, (read(from, static_cast<Argument<I, A>&>(values).value), 0)...};
        (void)in_order;
        run(indices, values);
    }

    static void threads(const char* arguments) { unpack(Is(), arguments); }

    static void blocks(const Launch* launch, Word first, Word last) {
#ifdef VISPARK_BOUNDS
        checked_launch = launch;
#endif
        gridDim.x = launch->grid[0];
        gridDim.y = launch->grid[1];
        gridDim.z = launch->grid[2];
        blockDim.x = launch->block[0];
        blockDim.y = launch->block[1];
        blockDim.z = launch->block[2];
        for (Word block = first; block < last; block++) {
            const Word row = block / launch->grid[0];
            blockIdx.x = static_cast<unsigned>(block % launch->grid[0]);
            blockIdx.y = static_cast<unsigned>(row % launch->grid[1]);
            blockIdx.z = static_cast<unsigned>(row / launch->grid[1]);
#ifdef VISPARK_NO_WAITS
            threads(launch->arguments);
#else
            next_thread = 0;
            threads(launch->arguments);
            if (has_waited) {
                has_waited = false;
                runtime->finish();
            }
#endif
        }
    }

    static constexpr Unit unit = {blocks, threads};
};

template <class... A, void (*kernel)(A...)>
constexpr unsigned Entry<void (*)(A...), kernel>::sizes[];
template <class... A, void (*kernel)(A...)>
constexpr Unit Entry<void (*)(A...), kernel>::unit;

struct Symbol { void* address; Word size; };

}  // namespace vispark

#ifdef __clang__
#define VISPARK_EXPORT extern "C" __attribute__((visibility("default"), used))
#else
#define VISPARK_EXPORT extern "C" __attribute__((visibility("default"), used, externally_visible))
#endif

// From here on a user's macros are in force, so every name must be one that nobody else uses.
template <class Kernel, Kernel kernel> struct vispark_entry_of : vispark::Entry<Kernel, kernel> {
    static const vispark::Unit* vispark_bind(const vispark::Runtime* runtime) {
#ifndef VISPARK_NO_WAITS
        vispark::runtime = runtime;
#endif
        (void)runtime;
        return &vispark_entry_of::unit;
    }
    static unsigned vispark_count() { return vispark_entry_of::count; }
    static unsigned vispark_size(unsigned i) { return vispark_entry_of::sizes[i]; }
};
typedef vispark::Unit vispark_unit_type;
typedef vispark::Runtime vispark_runtime_type;
typedef vispark::Symbol vispark_symbol_type;
template <class T> static vispark_symbol_type vispark_symbol_of(T& variable) { return {&variable, sizeof(T)}; }
template <class T> static vispark_symbol_type vispark_symbol_of(const T& variable) = delete;  // it cannot be set

// What the device asks a unit for.
#define VISPARK_ENTRY(vispark_e)                                                                          \
    VISPARK_EXPORT const vispark_unit_type* vispark_unit(const vispark_runtime_type* vispark_runtime) {   \
        return vispark_e::vispark_bind(vispark_runtime);                                                  \
    }                                                                                                     \
    VISPARK_EXPORT unsigned vispark_count() { return vispark_e::vispark_count(); }                        \
    VISPARK_EXPORT unsigned vispark_size(unsigned vispark_i) { return vispark_e::vispark_size(vispark_i); }
