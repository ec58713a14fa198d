// A team of OS threads that run one job together: those of the thread that starts it, kept for the next job.
//
// A system that refuses a thread makes a team smaller, and nothing else: OpenMP's would end the process. Members wait in
// the kernel, without spinning, as the cores are Spark's too.
#pragma once

#include <atomic>
#include <limits.h>
#include <new>
#include <vector>

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace vispark {

inline void futex_wait(std::atomic<int>& word, int value) {
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

inline void futex_wake(std::atomic<int>& word, int count) {
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

// The threads that a job may have: OMP_NUM_THREADS where it is set, else the processors of this process.
inline int most_threads() {
    static const int most = [] {
        const char* setting = getenv("OMP_NUM_THREADS");
        int count = setting ? atoi(setting) : 0;
        cpu_set_t allowed;
        if (count < 1 && sched_getaffinity(0, sizeof allowed, &allowed) == 0) count = CPU_COUNT(&allowed);
        return count < 1 ? static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)) : count;
    }();
    return most;
}

class Team {
    using Job = void (*)(void*);

    std::vector<pthread_t> members;
    Job job = nullptr;
    void* argument = nullptr;
    std::atomic<int> round{0};    // changes with each job; members wait for it
    std::atomic<int> unclaimed{0};  // how many members may still begin with the job
    std::atomic<int> busy{0};     // how many have not ended it; the starter waits for 0
    std::atomic<bool> ends{false};

    bool claim() {
        int left = unclaimed.load();
        while (left > 0)
            if (unclaimed.compare_exchange_weak(left, left - 1)) return true;
        return false;
    }

    static void* member(void* team) {
        Team& self = *static_cast<Team*>(team);
        for (;;) {
            int seen = self.round.load();
            if (self.ends.load()) return nullptr;
            if (!self.claim()) {
                futex_wait(self.round, seen);
                continue;
            }
            self.job(self.argument);
            if (self.busy.fetch_sub(1) == 1) futex_wake(self.busy, 1);
        }
    }

    // Start members until there are so many, or the system refuses one; how many there are, of those wanted.
    int started(int wanted) {
        while (static_cast<int>(members.size()) < wanted) {
            pthread_t thread;
            try {
                members.reserve(members.size() + 1);
            } catch (const std::bad_alloc&) {
                break;
            }
            if (pthread_create(&thread, nullptr, member, this) != 0) break;
            members.push_back(thread);
        }
        return static_cast<int>(members.size()) < wanted ? static_cast<int>(members.size()) : wanted;
    }

public:
    // Run `work()` on this thread and on at most `size - 1` others, until all of them have returned.
    template <class Work> void run(int size, Work& work) {
        const int others = size > 1 ? started(size - 1) : 0;
        if (others > 0) {
            job = [](void* it) { (*static_cast<Work*>(it))(); };
            argument = &work;
            busy.store(others);
            unclaimed.store(others);
            round.fetch_add(1);
            futex_wake(round, others);
        }
        work();
        if (others == 0) return;
        const int unused = unclaimed.exchange(0);   // whoever has not begun need not: nothing is left
        int left = busy.fetch_sub(unused) - unused;
        for (; left > 0; left = busy.load()) futex_wait(busy, left);
    }

    ~Team() {
        ends.store(true);
        round.fetch_add(1);
        futex_wake(round, INT_MAX);
        for (pthread_t thread : members) pthread_join(thread, nullptr);
    }
};

}  // namespace vispark
