#include "task_pool_parts.h"

#include <pthread.h>

// The pools of the process, and what a fork does to them. After fork(2) the child has none of the parent's workers: their jobs never end
// there.

static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
static task_pool *pools;
static int32_t forking_thread;

static void before_fork(void) {
    pthread_mutex_lock(&pools_lock);
    forking_thread = run_loop_own_tid();
}

static void after_fork(void) { pthread_mutex_unlock(&pools_lock); }

/// Ends all jobs but those of the thread that has called fork, and forgets what the parent's watchers have requested.
static void end_jobs_of_others(task_pool *pool) {
    uint64_t word = atomic_load_explicit(&pool->word, memory_order_relaxed), kept = 0;
    for (uint32_t number = 0; number < pool->places; number++) {
        struct place *place = &pool->place[number];
        int32_t thread = atomic_load_explicit(&place->thread, memory_order_relaxed);
        if (thread == 0) { continue; }  // not written, so that the child does not need memory of its own for it
        bool stays = thread == forking_thread;
        kept += stays;
        atomic_store_explicit(&place->thread, stays ? run_loop_current_tid() : 0, memory_order_relaxed);
        if (!stays) { atomic_store_explicit(&place->since, 0, memory_order_relaxed); }
    }
    word += (task_pool_jobs_of(word) - kept) * (ONE_CHANGE - ONE_JOB);
    atomic_store_explicit(&pool->word, word, memory_order_relaxed);
    uint64_t begun = task_pool_begun_by(pool, word);
    if (task_pool_enqueued(pool) > begun) { atomic_store_explicit(&pool->enqueued, begun, memory_order_relaxed); }
    atomic_store_explicit(&pool->stamp, NO_STAMP, memory_order_relaxed);
    for (int event = 0; event < 2; event++) { atomic_store_explicit(&pool->requests[event], false, memory_order_relaxed); }
}

static void in_child(void) {
    for (task_pool *pool = pools; pool; pool = pool->next) { end_jobs_of_others(pool); }
    after_fork();
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(before_fork, after_fork, in_child); }

void task_pool_enter(task_pool *pool) {
    pthread_mutex_lock(&pools_lock);
    pool->next = pools;
    if (pools) { pools->previous = pool; }
    pools = pool;
    pthread_mutex_unlock(&pools_lock);
}

void task_pool_leave(task_pool *pool) {
    pthread_mutex_lock(&pools_lock);
    *(pool->previous ? &pool->previous->next : &pools) = pool->next;
    if (pool->next) { pool->next->previous = pool->previous; }
    pthread_mutex_unlock(&pools_lock);
}
