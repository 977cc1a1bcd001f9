#pragma once

#include "CCoexistence.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#pragma clang assume_nonnull begin

struct coexist_thread {
    coexist_body body;
    pthread_t handle;
    pid_t number;
    uint64_t low, high;
    atomic_bool ready, released, returned;
    _Atomic uint64_t rounds;
    atomic_size_t mark_count;
    uint64_t marks[COEXIST_MAX_MARKS];
    int pipe[2];
};

static inline void require(bool met) {
    if (!met)
        abort();
}

/// From now on the caller's return address must be in every capture.
/// Use it in a function that is not inlined and makes no tail call.
#define MARK(thread) ((thread)->marks[(thread)->mark_count++] = (uintptr_t)__builtin_return_address(0))

static inline void ready(coexist_thread *thread) {
    atomic_store(&thread->ready, true);
}

/// Prevents the preceding call from being a tail call.
#define STAY(thread) atomic_fetch_add_explicit(&(thread)->rounds, 1, memory_order_relaxed)

#define BODY __attribute__((noinline))

// The bodies, named after their enum constants.
void coexist_spin(coexist_thread *thread);
void coexist_spin_pinned(coexist_thread *thread);
void coexist_wait(coexist_thread *thread);
void coexist_sleep(coexist_thread *thread);
void coexist_spin_masked(coexist_thread *thread);
void coexist_spin_cancelled(coexist_thread *thread);
void coexist_toggle_mask(coexist_thread *thread);
void coexist_exit_soon(coexist_thread *thread);
void coexist_poll_signal(coexist_thread *thread);
void coexist_spin_on_alternate_stack(coexist_thread *thread);
void coexist_wait_on_alternate_stack(coexist_thread *thread);
void coexist_spin_nested(coexist_thread *thread);
void coexist_spin_deep_below_alternate(coexist_thread *thread);
void coexist_spin_on_coroutine(coexist_thread *thread);
void coexist_wait_on_coroutine(coexist_thread *thread);
void coexist_switch_coroutines(coexist_thread *thread);
void coexist_vfork(coexist_thread *thread);
void coexist_posix_spawn(coexist_thread *thread);
void coexist_uring_wait(coexist_thread *thread);
void coexist_spin_sandboxed(coexist_thread *thread);
void coexist_spin_strict(coexist_thread *thread);

/// Lets the child of coexist_posix_spawn continue.
void coexist_release_spawned(void);

#pragma clang assume_nonnull end
