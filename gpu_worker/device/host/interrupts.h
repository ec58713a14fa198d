// Launches that are left off: those whose client is gone, also in the middle of a block.
//
// A thread of this file looks after the launches that run for a client. Threads of a launch that nobody waits for any
// more get a signal, whose handler leaves the block where the thread is in the kernel's own code: there it holds no lock
// of a library, and nothing but memory of the launch that is left off is half done. Where it is in a library, or in the
// runtime, it is asked again.
#pragma once

#include <atomic>

#include <errno.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <time.h>
#include <ucontext.h>

namespace vispark {

constexpr int LEAVE = SIGURG;  // its default is to be ignored, so that a late one harms nobody

inline long long milliseconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

// The client that waits for launches: the descriptor of its connection, what `poll` says beside POLLHUP where it is gone,
// when to look next, and since when it is gone, or 0. Python has it; see gpu_worker/system/caller.py.
struct Client {
    int descriptor;
    short events;
    std::atomic<long long> next, gone;

    // Whether it is gone for so long that launches are left off. One that is soon done is not, so that what an
    // interrupted action has kept is there.
    bool is_given_up() {
        constexpr long long GRACE = 200, LOOK = 50;
        const long long moment = milliseconds();
        if (const long long since = gone.load()) return moment - since >= GRACE;
        long long then = next.load();
        if (moment < then || !next.compare_exchange_strong(then, moment + LOOK)) return false;
        pollfd look = {descriptor, events, 0};
        if (poll(&look, 1, 0) == 1 && look.revents & (POLLHUP | POLLERR | events)) gone.store(moment);
        return false;
    }
};

// One OS thread of a launch.
struct Interruptible {
    pthread_t thread = 0;
    std::atomic<uintptr_t> low{0}, high{0};  // the code in which a signal makes it leave
    Interruptible* next = nullptr;
};

// A launch that runs for a client.
struct Running {
    Client* client;
    uintptr_t code;  // an address of the kernel's code
    std::atomic<int>* status;
    Interruptible* threads = nullptr;
    Running *next = nullptr, *before = nullptr;
};

// The launches that run for clients, and the thread that looks after them, which ends when there were none for a while.
class Launches {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    Running* first = nullptr;
    bool is_looked_after = false;

    struct Held {
        pthread_mutex_t& lock;
        explicit Held(pthread_mutex_t& lock) : lock(lock) { pthread_mutex_lock(&lock); }
        ~Held() { pthread_mutex_unlock(&lock); }
    };

    struct Segment {
        uintptr_t within, low, high;
    };

    static int find_segment(dl_phdr_info* library, size_t, void* argument) {
        Segment& wanted = *static_cast<Segment*>(argument);
        for (int i = 0; i < library->dlpi_phnum; i++) {
            const auto& header = library->dlpi_phdr[i];
            const uintptr_t low = library->dlpi_addr + header.p_vaddr, high = low + header.p_memsz;
            if (header.p_type == PT_LOAD && header.p_flags & PF_X && low <= wanted.within && wanted.within < high) {
                wanted.low = low;
                wanted.high = high;
                return 1;
            }
        }
        return 0;
    }

    // Ask the threads of a launch to leave it.
    static void leave(Running& launch, int unwanted) {
        int none = 0;
        if (!launch.status->compare_exchange_strong(none, unwanted) && none != unwanted) return;
        Segment code = {launch.code, 0, 0};
        if (!dl_iterate_phdr(find_segment, &code)) return;
        for (Interruptible* thread = launch.threads; thread; thread = thread->next) {
            thread->low.store(code.low);
            thread->high.store(code.high);
            pthread_kill(thread->thread, LEAVE);
        }
    }

    // Whether there are launches; those whose client is gone are asked to end.
    bool look(int unwanted, bool& are_left) {
        Held held(lock);
        for (Running* running = first; running; running = running->next) {
            if (!running->client->is_given_up()) continue;
            leave(*running, unwanted);
            are_left = true;
        }
        return first;
    }

    struct Started {
        Launches* launches;
        int unwanted;
    };

    static void* look_after(void* argument) {
        constexpr int ROUNDS = 40;
        constexpr long ROUND = 50'000'000, ROUND_LEFT = 5'000'000;  // nanoseconds
        Started* started = static_cast<Started*>(argument);
        Launches& all = *started->launches;
        const int unwanted = started->unwanted;
        delete started;
        for (int idle = 0;; idle++) {
            bool are_left = false;
            if (all.look(unwanted, are_left)) idle = 0;
            if (idle >= ROUNDS) {
                Held held(all.lock);
                if (!all.first) {
                    all.is_looked_after = false;
                    return nullptr;
                }
            }
            timespec pause = {0, are_left ? ROUND_LEFT : ROUND};
            nanosleep(&pause, nullptr);
        }
    }

    // Where the system refuses a thread, launches go on to the ends of their blocks.
    void start_looking(int unwanted) {
        pthread_attr_t attributes;
        pthread_t thread;
        Started* started = new (std::nothrow) Started{this, unwanted};
        if (!started) return;
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        is_looked_after = pthread_create(&thread, &attributes, look_after, started) == 0;
        pthread_attr_destroy(&attributes);
        if (!is_looked_after) delete started;
    }

public:
    void begin(Running& launch, int unwanted) {
        Held held(lock);
        launch.next = first;
        if (first) first->before = &launch;
        first = &launch;
        if (!is_looked_after) start_looking(unwanted);
    }

    void end(Running& launch) {
        Held held(lock);
        (launch.before ? launch.before->next : first) = launch.next;
        if (launch.next) launch.next->before = launch.before;
    }

    void enter(Running& launch, Interruptible& thread) {
        Held held(lock);
        thread.thread = pthread_self();
        thread.next = launch.threads;
        launch.threads = &thread;
    }

    // From here on no signal makes the thread leave.
    void exit(Running& launch, Interruptible& thread) {
        Held held(lock);
        Interruptible** place = &launch.threads;
        while (*place != &thread) place = &(*place)->next;
        *place = thread.next;
        thread.low.store(0);
        thread.high.store(0);
    }
};

// Whether a signal found the thread in code that it is to leave.
inline bool is_in_code(const Interruptible& thread, const void* context) {
    const mcontext_t& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
    const uintptr_t at = machine.gregs[REG_RIP];
#elif defined(__aarch64__)
    const uintptr_t at = machine.pc;
#else
    const uintptr_t at = 0;
#endif
    return thread.low.load() <= at && at < thread.high.load();
}

}  // namespace vispark
