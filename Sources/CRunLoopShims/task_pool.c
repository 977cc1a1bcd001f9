#include "CRunLoopShims.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { MOST_WORKERS = 4096, FEWEST_PLACES = 64, LINE = 64 };

static const uint64_t ONE_JOB = 1, JOBS = 0xffff, ONE_CHANGE = 1 << 16;
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

// After fork(2) the child has none of the parent's workers: their jobs never end there.

static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
static task_pool *pools;
static int32_t forking_thread;

static void before_fork(void) {
    pthread_mutex_lock(&pools_lock);
    forking_thread = run_loop_own_tid();
}

static void after_fork(void) { pthread_mutex_unlock(&pools_lock); }

/// How many jobs have begun so far, counted by the word or not.
static uint64_t begun_by(const task_pool *pool, uint64_t word) {
    return (word / ONE_CHANGE + (word & JOBS)) / 2 + atomic_load_explicit(&pool->uncounted, memory_order_relaxed);
}

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
    word += ((word & JOBS) - kept) * (ONE_CHANGE - ONE_JOB);
    atomic_store_explicit(&pool->word, word, memory_order_relaxed);
    uint64_t begun = begun_by(pool, word);
    if (task_pool_enqueued(pool) > begun) { atomic_store_explicit(&pool->enqueued, begun, memory_order_relaxed); }
    atomic_store_explicit(&pool->stamp, NO_STAMP, memory_order_relaxed);
    for (int event = 0; event < 2; event++) { atomic_store_explicit(&pool->requests[event], false, memory_order_relaxed); }
}

static void in_child(void) {
    for (task_pool *pool = pools; pool; pool = pool->next) { end_jobs_of_others(pool); }
    after_fork();
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(before_fork, after_fork, in_child); }

static void add(task_pool *pool) {
    pthread_mutex_lock(&pools_lock);
    pool->next = pools;
    if (pools) { pools->previous = pool; }
    pools = pool;
    pthread_mutex_unlock(&pools_lock);
}

static void drop(task_pool *pool) {
    pthread_mutex_lock(&pools_lock);
    *(pool->previous ? &pool->previous->next : &pools) = pool->next;
    if (pool->next) { pool->next->previous = pool->previous; }
    pthread_mutex_unlock(&pools_lock);
}

task_pool *task_pool_create(uint32_t width) {
    width = width < 1 ? 1 : width > MOST_WORKERS ? MOST_WORKERS : width;
    // A pool may for a while have more workers than its width.
    uint32_t places = width * 2 < FEWEST_PLACES ? FEWEST_PLACES : width * 2;
    // calloc mostly returns fresh zero pages, which use no memory until a place is used; aligned_alloc with a loop would touch
    // all of it.
    void *memory = calloc(1, sizeof(task_pool) + places * sizeof(struct place) + LINE);
    if (!memory) { return NULL; }
    task_pool *pool = (task_pool *)(((uintptr_t)memory + LINE - 1) / LINE * LINE);
    pool->memory = memory;
    pool->width = width;
    pool->places = places;
    add(pool);
    return pool;
}

void task_pool_call(task_pool *pool, void (*wake)(void *, task_pool_event), void *context) {
    pool->wake = wake;
    pool->context = context;
}

void task_pool_destroy(task_pool *pool) {
    drop(pool);
    free(pool->memory);
}

uint32_t task_pool_width(const task_pool *pool) { return pool->width; }

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/// The place that a thread tries first.
static _Thread_local struct {
    uint32_t place;
    bool has_place;
} own;

/// Threads begin at different places, so that each usually finds its own place free and in its own cache.
static uint32_t own_place(const task_pool *pool) {
    static _Atomic(uint32_t) threads;
    if (!own.has_place) {
        own.place = atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed);
        own.has_place = true;
    }
    return own.place % pool->places;
}

static int32_t take_place(task_pool *pool) {
    uint32_t first = own_place(pool);
    for (uint32_t distance = 0; distance < pool->places; distance++) {
        uint32_t place = (first + distance) % pool->places;
        int32_t free = 0;
        if (atomic_load_explicit(&pool->place[place].thread, memory_order_relaxed) == 0 &&
            atomic_compare_exchange_strong_explicit(&pool->place[place].thread, &free, run_loop_own_tid(), memory_order_acquire,
                                                    memory_order_relaxed)) {
            own.place = place;
            return (int32_t)place;
        }
    }
    return -1;
}

static void stamp(task_pool *pool, uint64_t time) {
    uint64_t wanted = WANTED_STAMP;
    if (atomic_load_explicit(&pool->stamp, memory_order_relaxed) == WANTED_STAMP) {
        atomic_compare_exchange_strong_explicit(&pool->stamp, &wanted, time, memory_order_release, memory_order_relaxed);
    }
}

static void notify(task_pool *pool, task_pool_event event) {
    if (atomic_load_explicit(&pool->requests[event], memory_order_seq_cst)) { pool->wake(pool->context, event); }
}

int32_t task_pool_begin(task_pool *pool, const uintptr_t *functions) {
    int32_t number = take_place(pool);
    if (number < 0) {
        atomic_fetch_add_explicit(&pool->uncounted, 1, memory_order_relaxed);
        return number;
    }
    struct place *place = &pool->place[number];
    uint64_t time = now();
    for (int index = 0; index < TASK_POOL_FUNCTIONS; index++) {
        uintptr_t function = functions ? functions[index] : 0;
        atomic_store_explicit(&place->functions[index], function, memory_order_relaxed);
        if (!function) { break; }
    }
    stamp(pool, time);
    // Dekker's pattern with `task_pool_request_wake`. Here: change the word, read the request. There: set the request, read the
    // word.
    uint64_t before = atomic_fetch_add_explicit(&pool->word, ONE_JOB + ONE_CHANGE, memory_order_seq_cst);
    // Set after the word and cleared before it: a reader that finds as many jobs with a time as the word counts has found all
    // of them.
    atomic_store_explicit(&place->since, time, memory_order_release);
    if ((before & JOBS) + 1 == pool->width) { notify(pool, TASK_POOL_FULL); }
    if ((before & JOBS) == 0) { notify(pool, TASK_POOL_BUSY); }
    return number;
}

static uint32_t class_of(uint64_t length) {
    uint64_t units = length >> 6;
    if (units < 8) { return (uint32_t)units; }
    uint32_t octave = 63 - (uint32_t)__builtin_clzll(units);
    uint32_t class = (octave - 2) << 3 | (uint32_t)((units >> (octave - 3)) & 7);
    return class < TASK_POOL_CLASSES - 1 ? class : TASK_POOL_CLASSES - 1;
}

static void count(struct place *place, uint64_t length) {
    _Atomic(uint64_t) *number = &place->lengths[class_of(length)];
    atomic_store_explicit(number, atomic_load_explicit(number, memory_order_relaxed) + 1, memory_order_relaxed);
    if (length > atomic_load_explicit(&place->longest, memory_order_relaxed)) {
        for (int index = 0; index < TASK_POOL_FUNCTIONS; index++) {
            uintptr_t function = atomic_load_explicit(&place->functions[index], memory_order_relaxed);
            atomic_store_explicit(&place->longest_functions[index], function, memory_order_relaxed);
        }
        // Releasing: a reader that sees the length sees its functions, or some of those of a longer job.
        atomic_store_explicit(&place->longest, length, memory_order_release);
    }
}

void task_pool_end(task_pool *pool, int32_t number) {
    // A caller may end a job of another pool, or end a job twice.
    if (number < 0 || (uint32_t)number >= pool->places) { return; }
    struct place *place = &pool->place[number];
    uint64_t time = now(), since = atomic_load_explicit(&place->since, memory_order_relaxed);
    if (since == 0) { return; }
    count(place, time > since ? time - since : 0);
    atomic_store_explicit(&place->since, 0, memory_order_release);
    stamp(pool, time);
    atomic_fetch_add_explicit(&pool->word, ONE_CHANGE - ONE_JOB, memory_order_seq_cst);
    // Releasing: the next owner of the place continues its counts.
    atomic_store_explicit(&place->thread, 0, memory_order_release);
}

void task_pool_enqueue(task_pool *pool) { atomic_fetch_add_explicit(&pool->enqueued, 1, memory_order_relaxed); }

uint64_t task_pool_word(const task_pool *pool) { return atomic_load_explicit(&pool->word, memory_order_seq_cst); }

uint64_t task_pool_enqueued(const task_pool *pool) {
    return atomic_load_explicit(&pool->enqueued, memory_order_relaxed);
}

uint64_t task_pool_waiting(const task_pool *pool) {
    // In this order: jobs that are enqueued and begun in between are not counted as waiting.
    uint64_t enqueued = atomic_load_explicit(&pool->enqueued, memory_order_relaxed);
    uint64_t begun = begun_by(pool, task_pool_word(pool));
    return enqueued > begun ? enqueued - begun : 0;
}

uint32_t task_pool_places(const task_pool *pool) { return pool->places; }

bool task_pool_job_at(const task_pool *pool, uint32_t number, task_pool_job *job) {
    const struct place *place = &pool->place[number];
    uint64_t since = atomic_load_explicit(&place->since, memory_order_acquire);
    int32_t thread = atomic_load_explicit(&place->thread, memory_order_acquire);
    *job = (task_pool_job){.thread = thread, .since = since};
    job->function = atomic_load_explicit(&place->functions[0], memory_order_acquire);
    return since != 0 && thread != 0;
}

void task_pool_add_lengths(const task_pool *pool, uint64_t *counts, uint64_t *longest, uintptr_t *functions) {
    for (uint32_t number = 0; number < pool->places; number++) {
        const struct place *place = &pool->place[number];
        uint64_t length = atomic_load_explicit(&place->longest, memory_order_acquire);
        if (length == 0) { continue; }
        if (length > *longest) {
            *longest = length;
            for (int index = 0; index < TASK_POOL_FUNCTIONS; index++) {
                functions[index] = atomic_load_explicit(&place->longest_functions[index], memory_order_relaxed);
            }
        }
        for (int class = 0; class < TASK_POOL_CLASSES; class++) {
            counts[class] += atomic_load_explicit(&place->lengths[class], memory_order_relaxed);
        }
    }
}

bool task_pool_oldest_job(const task_pool *pool, task_pool_job *job) {
    uint32_t oldest = pool->places;
    uint64_t since = UINT64_MAX;
    for (uint32_t number = 0; number < pool->places; number++) {
        uint64_t time = atomic_load_explicit(&pool->place[number].since, memory_order_acquire);
        if (time != 0 && time < since) {
            since = time;
            oldest = number;
        }
    }
    if (oldest == pool->places || !task_pool_job_at(pool, oldest, job)) { return false; }
    // Otherwise the place has another job by now, which need not be the oldest.
    return job->since == since && atomic_load_explicit(&pool->place[oldest].since, memory_order_acquire) == since;
}

bool task_pool_request_wake(task_pool *pool, task_pool_event event, bool wanted) {
    return atomic_exchange_explicit(&pool->requests[event], wanted, memory_order_seq_cst);
}

void task_pool_request_stamp(task_pool *pool) {
    atomic_store_explicit(&pool->stamp, WANTED_STAMP, memory_order_seq_cst);
}

uint64_t task_pool_take_stamp(task_pool *pool) {
    uint64_t time = atomic_exchange_explicit(&pool->stamp, NO_STAMP, memory_order_acq_rel);
    return time == WANTED_STAMP ? NO_STAMP : time;
}
