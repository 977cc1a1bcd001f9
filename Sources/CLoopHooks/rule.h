#pragma once

// Which waits are a thread's loop's.

#include "slots.h"

#include <poll.h>
#include <sys/select.h>

#pragma clang assume_nonnull begin

/// What a thread waits in, as far as one wait is told from another by it.
typedef struct loop_wait {
    uintptr_t place;  ///< Where the call returns to.
    uintptr_t frame;  ///< The call's frame on the stack: the higher, the further out.
    int set;          ///< The epoll set; -1 for a poll.
} loop_wait;

/// What a poll waits for: an array, or descriptors below a number in two sets.
typedef struct loop_polled {
    const struct pollfd *_Nullable descriptors;
    const fd_set *_Nullable readable, *_Nullable writable;
    unsigned long count;
} loop_polled;

typedef struct loop_thread {
    /// Null while no loop is known.
    loop_slot *_Nullable slot;
    loop_wait loop;
    /// Another wait, which the thread has been seen in and may come back to.
    loop_wait candidate;
    /// When it was, and how many waits of the loop there had been.
    uint64_t candidate_since_ns;
    uint64_t waits_before;
    uint64_t waits;
    /// A poll that was looked at and is of no loop so far, and how often the thread has been in it since.
    loop_wait asked;
    uint32_t times_asked;
    /// No slot was left, or the thread's end would not be noticed.
    bool is_refused;
    uint32_t waits_refused;
} loop_thread;

/// The calling thread's. Initial-exec: at a fixed distance from the thread pointer, so that no first use has to allocate.
extern _Thread_local __attribute__((tls_model("initial-exec"))) loop_thread loop_thread_own;

/// Whether a wait that may last, and is not in the thread's known loop, is of one now. `polled` for a poll. Leaves errno alone; async-signal-safe.
bool loop_rule_learn(loop_thread *thread, loop_wait wait, const loop_polled *_Nullable polled, bool is_unbounded);

static inline bool loop_wait_is_same(loop_wait a, loop_wait b) {
    // A loop may wait for its set at several places of its code; what it polls is made anew each time.
    if (a.set != b.set) return false;
    return a.set >= 0 || (a.place == b.place && a.frame == b.frame);
}

#pragma clang assume_nonnull end
