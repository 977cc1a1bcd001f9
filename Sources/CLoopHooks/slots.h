#pragma once

// Threads with a loop, whose turns are published.

#include "CLoopHooks.h"

#include <pthread.h>
#include <stdatomic.h>

#pragma clang assume_nonnull begin

/// One thread's turns. Published by that thread alone.
typedef struct loop_slot {
    _Atomic int state;  ///< See slots.c.
    int32_t thread;
    pthread_t pthread;
    _Atomic(void *_Nullable) heartbeat;  ///< Null until the thread is known; then until it ends.
    const loop_hooks_publisher *_Nullable publisher;
    _Atomic int set;  ///< The epoll set of its loop; -1 for a poll's, and while it is not known.
    /// Where the thread keeps this slot, in its own memory, until it is given back.
    struct loop_slot *_Nullable *_Nullable holder;
} loop_slot;

/// Puts a slot for the calling thread into `*holder`, a variable of its own, and has the registrar find it there, with the epoll set that it
/// waits for, or -1; leaves null there if none is left. Once a thread. The thread's end takes it away again, and so does a fork in the
/// child. Async-signal-safe.
void loop_slot_claim(loop_slot *_Nullable *_Nonnull holder, int set);

/// The heartbeat, once the thread is known. Acquiring, with the store in `loop_hooks_bind`: whoever sees it sees its publisher.
static inline void *_Nullable loop_slot_heartbeat(loop_slot *slot) {
    return atomic_load_explicit(&slot->heartbeat, memory_order_acquire);
}

#pragma clang assume_nonnull end
