#pragma once

// Threads with a loop, whose turns are published.

#include "CLoopHooks.h"

#include <pthread.h>
#include <stdatomic.h>

#pragma clang assume_nonnull begin

/// A thread with a loop. Only that thread publishes.
typedef struct loop_slot {
    _Atomic int state;  ///< See slots.c.
    /// The loop's epoll set; -1 for a poll, and while it is not known. Less than -1 while it is in doubt whether the thread still uses its set: see
    /// `loop_hooks_doubt`.
    _Atomic int set;
    _Atomic bool rests;  ///< Whether the thread is in its loop's wait now.
    int32_t thread;
    pthread_t pthread;
    _Atomic(void *_Nullable) heartbeat;  ///< Null until the registrar has bound one, and after the loop's or the thread's end.
    const loop_hooks_publisher *_Nullable publisher;
    /// For a loop that polls: the descriptors of one of its latest waits. They are read again when the array or its length changes.
    _Atomic int polled[LOOP_HOOKS_POLLED];
    _Atomic uint32_t polled_count;
    const void *_Nullable polled_array;
    unsigned long polled_length;
    /// The thread's own variable with a pointer to this slot, until the slot is freed.
    struct loop_slot *_Nullable *_Nullable holder;
} loop_slot;

/// Claims a slot for the calling thread, stores it in `*holder`, and wakes the registrar. Leaves null there if no slot is free. Once per thread, and
/// again after `loop_slot_give_up`.
/// The thread's end frees the slot; so does fork(2) in the child. Async-signal-safe.
///
/// \param holder  a variable of the calling thread.
/// \param set     the epoll set that it waits for; -1 for a poll.
void loop_slot_claim(loop_slot *_Nullable *_Nonnull holder, int set);

/// Frees the calling thread's slot, if it has one, because its loop is over: ends the heartbeat, and stores null in the holder. The thread can claim
/// a slot again. Changes errno.
void loop_slot_give_up(void);

/// Notes that the thread has arrived at its loop's wait for this set, or has returned from it. That ends a doubt, and wakes the registrar if there
/// was one. Async-signal-safe.
void loop_slot_end_doubt(loop_slot *slot, int set);
static inline void loop_slot_note_use(loop_slot *slot, int set, bool rests) {
    // Relaxed: if the registrar and the thread miss each other, the doubt ends with the thread's next wait.
    atomic_store_explicit(&slot->rests, rests, memory_order_relaxed);
    if (__builtin_expect(atomic_load_explicit(&slot->set, memory_order_relaxed) != set, 0)) loop_slot_end_doubt(slot, set);
}

/// The heartbeat; null if there is none. Acquiring, paired with the store in `loop_hooks_bind`: a thread that reads it also sees `publisher`.
static inline void *_Nullable loop_slot_heartbeat(loop_slot *slot) {
    return atomic_load_explicit(&slot->heartbeat, memory_order_acquire);
}

#pragma clang assume_nonnull end
