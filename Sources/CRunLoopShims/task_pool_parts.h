#pragma once

// What a task pool consists of, for the files that implement it.

#include "CRunLoopShims.h"

enum { LINE = 64 };

static const uint64_t ONE_JOB = 1, ONE_CHANGE = 1 << 16;
/// Values in place of a time: no stamp is requested; a stamp is requested.
static const uint64_t NO_STAMP = 0, WANTED_STAMP = 1;

/// Written only by the worker that owns it, so everything in it except taking it needs only a load and a store.
struct place {
    _Alignas(LINE) _Atomic(int32_t) thread;  ///< 0: free.
    _Atomic(uint64_t) since;                 ///< 0: no job, or one that is just beginning or ending.
    _Atomic(uintptr_t) functions[TASK_POOL_FUNCTIONS];  ///< The first 0 ends them: what follows is of earlier jobs.
    _Atomic(uint64_t) longest;
    _Atomic(uintptr_t) longest_functions[TASK_POOL_FUNCTIONS];
    _Alignas(LINE) _Atomic(uint64_t) lengths[TASK_POOL_CLASSES];
};

struct task_pool {
    _Alignas(LINE) _Atomic(uint64_t) word;
    _Atomic(uint64_t) stamp;
    _Atomic(bool) requests[2];  ///< Indexed by `task_pool_event`.
    uint32_t width, places;
    void (*wake)(void *, task_pool_event);
    void *context;
    void *memory;  ///< As it was allocated.
    task_pool *previous, *next;  ///< In `pools`.
    _Alignas(LINE) _Atomic(uint64_t) enqueued;  ///< Beside what the workers write: others write it.
    _Atomic(uint64_t) uncounted;  ///< Jobs that have begun without a place. They do not wait any more either.
    struct place place[];
};

/// How many jobs have begun so far, counted by the word or not.
static inline uint64_t task_pool_begun_by(const task_pool *pool, uint64_t word) {
    return task_pool_begun_of(word) + atomic_load_explicit(&pool->uncounted, memory_order_relaxed);
}

// In task_pool_fork.c.

/// Records a new pool: a fork changes the pools that are recorded. Locks.
void task_pool_enter(task_pool *pool);
/// Undoes that. Locks.
void task_pool_leave(task_pool *pool);
