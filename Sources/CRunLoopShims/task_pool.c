// A task pool: its places and counts, the workers' side and the watcher's side.

#include "task_pool_parts.h"

#include <stdlib.h>
#include <time.h>

enum { MOST_WORKERS = 4096, FEWEST_PLACES = 64 };

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
    task_pool_enter(pool);
    return pool;
}

void task_pool_call(task_pool *pool, void (*wake)(void *, task_pool_event), void *context) {
    pool->wake = wake;
    pool->context = context;
}

void task_pool_destroy(task_pool *pool) {
    task_pool_leave(pool);
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
    if (task_pool_jobs_of(before) + 1 == pool->width) { notify(pool, TASK_POOL_FULL); }
    if (task_pool_jobs_of(before) == 0) { notify(pool, TASK_POOL_BUSY); }
    return number;
}

static void count(struct place *place, uint64_t length) {
    _Atomic(uint64_t) *number = &place->lengths[task_pool_class_of(length)];
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
    uint64_t begun = task_pool_begun_by(pool, task_pool_word(pool));
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
