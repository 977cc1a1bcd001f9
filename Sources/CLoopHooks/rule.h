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

/// A wait that a thread has been seen in and may come back to.
typedef struct loop_candidate {
    loop_wait wait;
    uint64_t since_ns;      ///< When it was seen first, after the loop's last wait.
    uint64_t waits_before;  ///< How many waits of the loop there had been by then.
    uint32_t times;         ///< Of a poll: how often the thread has come back to it.
    bool is_taken;
} loop_candidate;

/// A loop whose every turn waits elsewhere, too, needs two. A program's start may leave others behind, further out on the stack.
enum { LOOP_CANDIDATES = 4 };

typedef struct loop_thread {
    /// Null while no loop is known.
    loop_slot *_Nullable slot;
    loop_wait loop;
    uint64_t waits;
    loop_candidate candidates[LOOP_CANDIDATES];
    /// No slot was left, or the thread's end would not be noticed.
    bool is_refused;
    uint32_t waits_refused;
} loop_thread;

/// The calling thread's. Initial-exec: at a fixed distance from the thread pointer, so that no first use has to allocate.
extern _Thread_local __attribute__((tls_model("initial-exec"))) loop_thread loop_thread_own;

/// Whether a wait that may last, and is not in the thread's known loop, is of one now. `polled` for a poll. Leaves errno alone; async-signal-safe.
bool loop_rule_learn(loop_thread *thread, loop_wait wait, const loop_polled *_Nullable polled, bool is_unbounded);

/// Whether memory can be read that a caller may have wrong: the kernel refuses such a wait by EFAULT, and it must not be read here either.
/// A system call a page. Changes errno; async-signal-safe.
bool loop_rule_can_read(const void *start, size_t length);

static inline bool loop_wait_is_same(loop_wait a, loop_wait b) {
    // A loop may wait for its set at several places of its code; what it polls is made anew each time.
    if (a.set != b.set) return false;
    return a.set >= 0 || (a.place == b.place && a.frame == b.frame);
}

#pragma clang assume_nonnull end
