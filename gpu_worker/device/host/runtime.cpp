// The runtime under kernel units: a team of OS threads runs a grid's blocks, each block on one thread.
//
// The threads of a block run one after the other in a plain loop, on the OS thread's own stack. Only when one of them
// has to wait (a barrier, a warp operation) is its stack set aside, and another fiber goes on with that loop. So a
// kernel without barriers never comes here, and one with barriers has as many fibers as threads wait at once.
//
// A thread is "live" from its first wait to its end; the others have ended or not started. The runtime is called only
// by the running fiber, at its waits and its end, so everything it decides on is exact at that moment.

#include <atomic>
#include <new>
#include <vector>

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fibers.h"
#include "interface.h"
#include "interrupts.h"
#include "team.h"

using namespace vispark;

namespace {

constexpr unsigned MOST_THREADS = 1024;
constexpr unsigned WARPS = MOST_THREADS / 32;
constexpr size_t STACK = 128 << 10;
constexpr size_t STACKS_AT_ONCE = 32;
constexpr int MOST_GUARDS = 16384;  // each takes two mappings of the 65530 that Linux gives a process
constexpr size_t ALTERNATE_STACK = 64 << 10;

enum Status { DONE = 0, DIVERGENT = 1, NO_STACKS = 2, UNWANTED = 3 };

std::atomic<int> guards{0};

struct Fiber {
    void* stack = nullptr;  // where its registers are saved
    Fiber* link = nullptr;
    unsigned thread = 0;
    bool live = false;
    Operation operation = BARRIER;
    unsigned mask = 0;
    unsigned lane = 0;
    Word value = 0;
    Word result = 0;
};

struct Queue {
    Fiber* first = nullptr;
    Fiber* last = nullptr;

    void push(Fiber* fiber) {
        fiber->link = nullptr;
        if (last) last->link = fiber; else first = fiber;
        last = fiber;
    }

    Fiber* pop() {
        Fiber* fiber = first;
        if (fiber && !(first = fiber->link)) last = nullptr;
        return fiber;
    }
};

// The state of one OS thread that runs blocks.
struct Worker {
    Fiber main;
    Fiber* current = &main;
    Queue ready;
    Queue idle;
    std::vector<Fiber*> fibers;
    std::vector<void*> mappings;
    const Unit* unit = nullptr;
    const Launch* launch = nullptr;
    unsigned total = 0;
    unsigned next = 0;
    unsigned live = 0;                // live threads of the block
    unsigned at_barrier = 0;          // those that wait at a barrier of the block
    unsigned live_lanes[WARPS] = {};
    unsigned waiting_lanes[WARPS] = {};  // those that wait at a warp operation
    Fiber* of_thread[MOST_THREADS] = {};
    jmp_buf escape;
    int status = DONE;
    char message[256] = "";
    int* slot = nullptr;
    bool in_kernel = false;
    Interruptible interruptible;
    void* signal_stack = nullptr;

    ~Worker();
};

thread_local Worker* worker = nullptr;

struct Owner {
    Worker* owned = nullptr;
    ~Owner() { worker = nullptr; delete owned; }
};
thread_local Owner owner;
thread_local Team team;  // of a thread that launches; destroyed before what its members ran for

void release_fibers(Worker& w) {
    guards -= static_cast<int>(w.fibers.size());
    for (Fiber* fiber : w.fibers) delete fiber;
    for (void* mapping : w.mappings) munmap(mapping, STACK * STACKS_AT_ONCE);
    w.fibers.clear();
    w.mappings.clear();
}

Worker::~Worker() {
    if (signal_stack) {
        stack_t off = {};
        off.ss_flags = SS_DISABLE;
        sigaltstack(&off, nullptr);
        free(signal_stack);
    }
    release_fibers(*this);
}

[[noreturn]] void give_up(Worker& w, int status) {
    w.status = status;
    longjmp(w.escape, 1);
}

void fiber_main();

// Have room for what add_fibers notes; false where there is none.
bool reserve_fibers(Worker& w) {
    try {
        w.mappings.reserve(w.mappings.size() + 1);
        w.fibers.reserve(w.fibers.size() + STACKS_AT_ONCE);
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

void add_fibers(Worker& w) {
    void* mapping = !reserve_fibers(w) ? MAP_FAILED : mmap(nullptr, STACK * STACKS_AT_ONCE, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) {
        snprintf(w.message, sizeof w.message, "no memory for the stacks of %zu waiting threads: %s",
                 w.fibers.size() + STACKS_AT_ONCE, strerror(errno));
        give_up(w, NO_STACKS);
    }
    w.mappings.push_back(mapping);
    size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    for (size_t i = 0; i < STACKS_AT_ONCE; i++) {
        char* bottom = static_cast<char*>(mapping) + i * STACK;
        if (guards.fetch_add(1) < MOST_GUARDS) mprotect(bottom, page, PROT_NONE);
        // Without an offset of its own, the hot end of every stack would fall into the same few cache sets.
        char* top = bottom + STACK - (w.fibers.size() * 832 % 16384) / 64 * 64;
        Fiber* fiber = new (std::nothrow) Fiber;
        if (!fiber) {
            snprintf(w.message, sizeof w.message, "no memory for %zu waiting threads", STACKS_AT_ONCE);
            give_up(w, NO_STACKS);
        }
        fiber->stack = prepare_stack(bottom, top, fiber_main);
        w.fibers.push_back(fiber);
        w.idle.push(fiber);
    }
}

void switch_to(Worker& w, Fiber* fiber) {
    Fiber* from = w.current;
    if (fiber == from) return;
    w.current = fiber;
    vispark_switch(&from->stack, fiber->stack);
}

unsigned bit(unsigned thread) { return 1u << (thread % 32); }

// The thread that the fiber ran has ended.
void retire(Worker& w, Fiber* fiber) {
    if (!fiber->live) return;
    fiber->live = false;
    w.live--;
    w.live_lanes[fiber->thread / 32] &= ~bit(fiber->thread);
    w.of_thread[fiber->thread] = nullptr;
}

void enter(Worker& w, Fiber* fiber, unsigned thread) {
    if (fiber->live && fiber->thread == thread) return;
    retire(w, fiber);
    fiber->live = true;
    fiber->thread = thread;
    w.live++;
    w.live_lanes[thread / 32] |= bit(thread);
    w.of_thread[thread] = fiber;
}

// The lanes of a warp that have not started yet.
unsigned unstarted(const Worker& w, unsigned warp) {
    unsigned first = warp * 32, last = first + 32 < w.total ? first + 32 : w.total;
    unsigned lanes = 0;
    for (unsigned t = w.next > first ? w.next : first; t < last; t++) lanes |= bit(t);
    return lanes;
}

Word reduce(Operation operation, Word a, Word b) {
    switch (operation) {
        case REDUCE_ADD: return static_cast<unsigned>(a + b);
        case REDUCE_MIN: return static_cast<int>(a) < static_cast<int>(b) ? a : b;
        case REDUCE_MAX: return static_cast<int>(a) > static_cast<int>(b) ? a : b;
        case REDUCE_UMIN: return a < b ? a : b;
        case REDUCE_UMAX: return a > b ? a : b;
        case REDUCE_AND: return a & b;
        case REDUCE_OR: return a | b;
        default: return a ^ b;
    }
}

// What a warp operation gives the lane that `fiber` runs, all of `group` having arrived.
Word warp_result(Worker& w, const Fiber* fiber, unsigned group) {
    Fiber** lanes = w.of_thread + fiber->thread / 32 * 32;
    Operation operation = fiber->operation;
    if (operation == SHUFFLE) return group >> fiber->lane & 1 ? lanes[fiber->lane]->value : fiber->value;
    if (operation == ACTIVE) return group;
    unsigned same = 0;
    Word result = 0;
    bool first = true;
    for (unsigned lane = 0; lane < 32; lane++) {
        if (!(group >> lane & 1)) continue;
        Word value = lanes[lane]->value;
        if (operation == BALLOT ? value != 0 : value == fiber->value) same |= 1u << lane;
        result = first ? value : reduce(operation, result, value);
        first = false;
    }
    if (operation == BALLOT || operation == MATCH_ANY) return same;
    if (operation == MATCH_ALL) return same == group ? group : 0;
    return result;
}

// Let the lanes of `group` go on; all but the running fiber become ready.
void release_warp(Worker& w, unsigned warp, unsigned group) {
    Fiber** lanes = w.of_thread + warp * 32;
    for (unsigned lane = 0; lane < 32; lane++)
        if (group >> lane & 1) lanes[lane]->result = warp_result(w, lanes[lane], group);
    w.waiting_lanes[warp] &= ~group;
    for (unsigned lane = 0; lane < 32; lane++)
        if (group >> lane & 1 && lanes[lane] != w.current) w.ready.push(lanes[lane]);
}

// Complete the warp operation that `fiber` waits at, if all lanes concerned have arrived.
bool complete_warp(Worker& w, Fiber* fiber) {
    unsigned warp = fiber->thread / 32;
    unsigned group = fiber->mask & (w.live_lanes[warp] | unstarted(w, warp));
    group |= bit(fiber->thread);
    if (group & ~w.waiting_lanes[warp]) return false;
    for (unsigned lane = 0; lane < 32; lane++) {
        if (!(group >> lane & 1)) continue;
        const Fiber* other = w.of_thread[warp * 32 + lane];
        if (other->operation != fiber->operation || other->mask != fiber->mask) return false;
    }
    release_warp(w, warp, group);
    return true;
}

bool complete_barrier(Worker& w) {
    if (w.next < w.total || w.at_barrier == 0 || w.at_barrier < w.live) return false;
    Word count = 0;
    for (unsigned t = 0; t < w.total; t++)
        if (w.of_thread[t]) count += w.of_thread[t]->value != 0;
    for (unsigned t = 0; t < w.total; t++) {
        Fiber* fiber = w.of_thread[t];
        if (!fiber) continue;
        fiber->result = fiber->operation == BARRIER_AND ? count == w.live
                      : fiber->operation == BARRIER_OR ? count != 0 : count;
        if (fiber != w.current) w.ready.push(fiber);
    }
    w.at_barrier = 0;
    return true;
}

// Every live thread waits. Threads that ended may have been the last ones waited for; failing that, the lanes that ask
// which of their warp run together are those that ask.
bool unblock(Worker& w) {
    if (complete_barrier(w)) return true;
    for (unsigned t = 0; t < w.total; t++) {
        Fiber* fiber = w.of_thread[t];
        if (fiber && fiber->operation >= WARP && complete_warp(w, fiber)) return true;
    }
    for (unsigned warp = 0; warp * 32 < w.total; warp++) {
        unsigned asking = 0;
        for (unsigned lane = 0; lane < 32; lane++) {
            Fiber* fiber = w.of_thread[warp * 32 + lane];
            if (fiber && fiber->operation == ACTIVE) asking |= 1u << lane;
        }
        if (asking) {
            release_warp(w, warp, asking);
            return true;
        }
    }
    return false;
}

[[noreturn]] void diverged(Worker& w) {
    unsigned waiting = 0;
    for (unsigned t = 0; t < w.total; t++) waiting += w.of_thread[t] && w.of_thread[t]->operation >= WARP;
    snprintf(w.message, sizeof w.message,
             "a barrier was reached by only some of the threads of a block: %u wait at __syncthreads and %u at a warp "
             "operation (__syncwarp, a shuffle or a vote) whose mask names threads that do not come",
             w.at_barrier, waiting);
    give_up(w, DIVERGENT);
}

// Go on with another fiber; comes back when the caller may run, at once if it is the one unblocked.
void schedule(Worker& w, bool caller_waits) {
    for (;;) {
        if (Fiber* fiber = w.ready.pop()) return switch_to(w, fiber);
        if (w.next < w.total) {
            if (!w.idle.first) add_fibers(w);
            return switch_to(w, w.idle.pop());
        }
        if (w.live == 0) return switch_to(w, &w.main);
        // complete_* leave the running fiber out of the ready queue, so it must not count as waiting elsewhere.
        bool barrier = caller_waits && w.current->operation < WARP;
        if (!unblock(w)) diverged(w);
        if (!caller_waits) continue;
        if (barrier ? w.at_barrier == 0 : !(w.waiting_lanes[w.current->thread / 32] & bit(w.current->thread))) return;
    }
}

// Let the others go on first, those that have not started before those that have.
void yield(Worker& w) {
    w.ready.push(w.current);
    if (w.next < w.total) {
        if (!w.idle.first) add_fibers(w);
        switch_to(w, w.idle.pop());
    } else {
        switch_to(w, w.ready.pop());
    }
}

void fiber_main() {
    for (;;) {
        worker->unit->threads(worker->launch->arguments);
        Worker& w = *worker;
        w.next = w.total;
        retire(w, w.current);
        w.idle.push(w.current);
        schedule(w, false);
    }
}

Word wait(unsigned thread, unsigned next, Operation operation, unsigned mask, Word value, unsigned lane) {
    Worker& w = *worker;
    Fiber* fiber = w.current;
    enter(w, fiber, thread);
    w.next = next;
    fiber->operation = operation;
    fiber->mask = mask;
    fiber->value = value;
    fiber->lane = lane;
    if (operation == YIELD) {
        yield(w);
        return 0;
    }
    if (operation < WARP) {
        w.at_barrier++;
        if (complete_barrier(w)) return fiber->result;
    } else {
        w.waiting_lanes[thread / 32] |= bit(thread);
        if (complete_warp(w, fiber)) return fiber->result;
    }
    schedule(w, true);
    return fiber->result;
}

void finish() {
    Worker& w = *worker;
    w.next = w.total;
    retire(w, &w.main);
    while (w.live) schedule(w, false);
}

// Forget a block that was given up: its fibers' stacks start anew.
void reset(Worker& w) {
    release_fibers(w);
    w.ready = Queue();
    w.idle = Queue();
    w.main = Fiber();
    w.current = &w.main;
    w.live = w.at_barrier = 0;
    memset(w.live_lanes, 0, sizeof w.live_lanes);
    memset(w.waiting_lanes, 0, sizeof w.waiting_lanes);
    memset(w.of_thread, 0, sizeof w.of_thread);
}

// The state of this OS thread; null where there is no memory for one.
Worker* this_worker() {
    if (worker) return worker;
    owner.owned = worker = new (std::nothrow) Worker;
    if (!worker) return nullptr;
    stack_t present = {};
    if (sigaltstack(nullptr, &present) == 0 && present.ss_flags & SS_DISABLE) {
        stack_t stack = {};
        stack.ss_sp = worker->signal_stack = malloc(ALTERNATE_STACK);
        stack.ss_size = ALTERNATE_STACK;
        if (stack.ss_sp) sigaltstack(&stack, nullptr);
    }
    return worker;
}

int run_blocks(Worker& w, const Unit* unit, const Launch* launch, Word first, Word last) {
    w.unit = unit;
    w.launch = launch;
    w.total = launch->block[0] * launch->block[1] * launch->block[2];
    w.status = DONE;
    if (setjmp(w.escape) == 0) unit->blocks(launch, first, last);
    else reset(w);
    return w.status;
}

const int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
struct sigaction previous[sizeof SIGNALS / sizeof *SIGNALS];

// Leave the mark that this thread's kernel ends the process, and let the signal do what it did before us.
void on_fault(int number, siginfo_t*, void*) {
    Worker* w = worker;
    if (w && w->in_kernel && w->slot) {
        __atomic_store_n(w->slot + 1, number, __ATOMIC_SEQ_CST);
        __atomic_store_n(w->slot, 2, __ATOMIC_SEQ_CST);
    }
    for (size_t i = 0; i < sizeof SIGNALS / sizeof *SIGNALS; i++)
        if (SIGNALS[i] == number) sigaction(number, &previous[i], nullptr);
    raise(number);
}

// Leave the block where a launch is left off, if this thread runs the kernel's own code.
void on_leave(int, siginfo_t*, void* context) {
    Worker* w = worker;
    if (w && is_in_code(w->interruptible, context)) give_up(*w, UNWANTED);
}

Launches launches;

const Runtime RUNTIME = {wait, finish};
thread_local char fault[256];

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

const Runtime* vispark_runtime() { return &RUNTIME; }

// Handle the signals of faults, and that to leave a launch; called once in a process.
void vispark_install() {
    for (size_t i = 0; i < sizeof SIGNALS / sizeof *SIGNALS; i++) {
        struct sigaction action = {};
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigemptyset(&action.sa_mask);
        sigaction(SIGNALS[i], &action, &previous[i]);
    }
    struct sigaction action = {};
    action.sa_sigaction = on_leave;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART | SA_NODEFER;  // as its handler may not come to its end
    sigemptyset(&action.sa_mask);
    sigaction(LEAVE, &action, nullptr);
}

// What was wrong with the last launch of this OS thread.
const char* vispark_fault() { return fault; }

// Run a grid to its end; 0, or the status of the block that was given up, or UNWANTED where blocks were left off since
// the client is gone. `bounds` may be null, and `client` too.
int vispark_run(const Unit* unit, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                const char* arguments, int* slot, Bounds* bounds, Client* client) {
    const Launch launch = {{gx, gy, gz}, {bx, by, bz}, arguments, bounds};
    const Word blocks = static_cast<Word>(gx) * gy * gz;
    const Word most = static_cast<Word>(most_threads());
    Word chunk = blocks / (most * 128);
    chunk = chunk < 1 ? 1 : chunk > 4096 ? 4096 : chunk;
    const Word chunks = (blocks + chunk - 1) / chunk;
    std::atomic<Word> next{0};  // handed out in order, so that a block may wait for an earlier one
    std::atomic<int> status{DONE};
    Running running = {client, reinterpret_cast<uintptr_t>(unit->blocks), &status};
    char message[256] = "";
    if (!this_worker()) {
        snprintf(fault, sizeof fault, "no memory for the state of a thread that runs blocks");
        return NO_STACKS;
    }
    if (client && client->is_given_up()) return UNWANTED;
    auto run = [&] {
        if (!this_worker()) return;  // others run the blocks
        Worker& w = *worker;
        w.slot = slot;
        w.in_kernel = true;
        if (client) launches.enter(running, w.interruptible);
        for (Word first; status.load() == DONE && (first = next.fetch_add(chunk)) < blocks;) {
            int ended = run_blocks(w, unit, &launch, first, first + chunk < blocks ? first + chunk : blocks);
            int none = DONE;
            if (ended != DONE && status.compare_exchange_strong(none, ended)) memcpy(message, w.message, sizeof message);
        }
        if (client) launches.exit(running, w.interruptible);
        w.in_kernel = false;
        w.slot = nullptr;
    };
    if (client) launches.begin(running, UNWANTED);
    team.run(static_cast<int>(chunks < most ? chunks : most), run);
    if (client) launches.end(running);
    memcpy(fault, message, sizeof fault);
    fflush(stdout);
    return status.load();
}

}  // extern "C"
#pragma GCC visibility pop
