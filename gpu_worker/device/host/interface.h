// What a compiled kernel unit and the runtime say to each other. Both include this file; neither shares anything else.
#pragma once

namespace vispark {

typedef unsigned long long Word;

// The bytes of a buffer, without the last address.
struct Range {
    Word start, end;
};

// The buffers that a launch was given, what lies around each of them unused, and the first access that missed them:
// which buffer it is near, where, how many bytes, and x, y, z of its block and of its thread.
struct Bounds {
    Word count;
    const Range* ranges;
    Word gap;
    Word buffer, address, size;
    unsigned taken, write;
    unsigned place[6];
};

// One launch. `arguments` holds the arguments' bytes one after the other, without padding.
struct Launch {
    unsigned grid[3];
    unsigned block[3];
    const char* arguments;
    Bounds* bounds;  // null where accesses are not checked
};

// A kernel unit: `blocks` runs the blocks first..last-1 (linear numbers) on the calling OS thread, `threads` those
// threads of the current block that have not started yet.
struct Unit {
    void (*blocks)(const Launch* launch, Word first, Word last);
    void (*threads)(const char* arguments);
};

// What a thread may wait for; to yield is to wait for its turn. The operations from `WARP` on are those of a warp, and
// carry a mask of lanes.
enum Operation : unsigned {
    BARRIER, BARRIER_COUNT, BARRIER_AND, BARRIER_OR, YIELD,
    WARP, SHUFFLE = WARP, BALLOT, ACTIVE, MATCH_ANY, MATCH_ALL,
    REDUCE_ADD, REDUCE_MIN, REDUCE_MAX, REDUCE_UMIN, REDUCE_UMAX, REDUCE_AND, REDUCE_OR, REDUCE_XOR
};

struct Runtime {
    // Wait until all threads concerned have arrived. `thread` is the caller's linear number in its block, `next` that of
    // the first thread not started yet; `lane` is the lane that a shuffle reads.
    Word (*wait)(unsigned thread, unsigned next, Operation operation, unsigned mask, Word value, unsigned lane);
    // The end of a block in which a thread has waited: run the others to their ends.
    void (*finish)();
};

}  // namespace vispark
