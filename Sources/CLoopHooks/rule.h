#pragma once

// Which waits belong to a thread's loop.

#include "slots.h"

#include <poll.h>
#include <sys/select.h>

#pragma clang assume_nonnull begin

/// A wait, by the values that distinguish it from other waits.
typedef struct loop_wait {
    uintptr_t place;  ///< The call's return address.
    uintptr_t frame;  ///< The address of the call's frame. Higher for outer calls.
    int set;          ///< The epoll set; -1 for a poll.
    int only;         ///< For a poll of one descriptor, that one; otherwise -1. Of a thread's loop, only if none but loops poll its kind.
} loop_wait;

/// What a poll waits for: an array of descriptors, or two sets with descriptors below `count`.
typedef struct loop_polled {
    const struct pollfd *_Nullable descriptors;
    const fd_set *_Nullable readable, *_Nullable writable;
    unsigned long count;
} loop_polled;

/// A wait in which a thread was seen, and to which it may return.
typedef struct loop_candidate {
    loop_wait wait;
    uint64_t since_ns;      ///< When it was first seen since the loop's last wait.
    uint64_t waits_before;  ///< How many waits of the loop there were until then.
    uint32_t times[2];      ///< For a poll: how often the thread has returned to it, with a timeout and without one.
    bool is_taken;
} loop_candidate;

/// Two are needed for a loop that also waits elsewhere in each turn. The start of a program may leave more, further out on the stack.
enum { LOOP_CANDIDATES = 4 };

typedef struct loop_thread {
    /// Null while the thread has no known loop.
    loop_slot *_Nullable slot;
    loop_wait loop;
    /// How many runs of Foundation's loop the thread is within, and whether its loop was found within one.
    uint32_t runs;
    bool is_in_run;
    uint64_t waits;
    loop_candidate candidates[LOOP_CANDIDATES];
    /// No slot was free, or the thread's end would not free it.
    bool is_refused;
    uint32_t waits_refused;
} loop_thread;

/// The calling thread's data. Initial-exec: at a fixed distance from the thread pointer, so that the first use does not allocate.
extern _Thread_local __attribute__((tls_model("initial-exec"))) loop_thread loop_thread_own;

/// For a wait that may sleep and does not belong to the thread's known loop: whether it belongs to a loop now. Does not change errno;
/// async-signal-safe, except at a wait of this package's run loops.
///
/// \param polled  null unless it is a poll.
bool loop_rule_learn(loop_thread *thread, loop_wait wait, const loop_polled *_Nullable polled, bool is_unbounded);

/// Stores what the thread's loop polls, for `loop_hooks_polled`. Leaves errno unchanged; async-signal-safe.
void loop_rule_note_polled(loop_slot *slot, const loop_polled *polled);

/// Whether that has to be done again before this wait, the loop's `waits`th. Reading the whole array each time would cost more.
static inline bool loop_rule_has_news(const loop_slot *slot, const loop_polled *polled, uint64_t waits) {
    const void *array = polled->descriptors ? (const void *)polled->descriptors : polled->readable;
    return waits % 64 == 0 || slot->polled_array != array || slot->polled_length != polled->count;
}

/// Whether memory can be read. A caller may pass a wrong address: the kernel then refuses the wait with EFAULT, and it must not be read here. One
/// system call per page. Changes errno; async-signal-safe.
bool loop_rule_can_read(const void *start, size_t length);

static inline bool loop_wait_is_same(loop_wait a, loop_wait b) {
    // A loop may wait for its epoll set at several places in the code. It may also poll the set, as Foundation's does: a run loop is run
    // again and again, at any height of the stack. For other polls there is no such object, so the place must be the same.
    if (a.set != b.set) return false;
    return a.set >= 0 || (a.only >= 0 && a.only == b.only) || (a.place == b.place && a.frame == b.frame);
}

#pragma clang assume_nonnull end
