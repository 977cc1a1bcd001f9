#pragma once
// What the workers of a task pool publish about the jobs they run, and how a watcher reads it. Times are CLOCK_MONOTONIC
// nanoseconds.
//
// A job in progress has its own place in the pool: its worker takes a free one as the job begins, and frees it as the job ends.
// So threads may start and end at any time, and a thread that ends leaves nothing behind. One word counts the jobs in progress
// and all beginnings and ends so far: two equal words read at different times mean that no job has begun or ended in between.
//
// A beginning or an end takes one atomic addition to that word, one change of the worker's own place, and one clock read. No
// lock, no allocation.

#include <stdbool.h>
#include <stdint.h>

#pragma clang assume_nonnull begin

/// The number of classes by which lengths of jobs, and of turns, are counted.
enum { TASK_POOL_CLASSES = 224 };

/// The class of a length in nanoseconds. The classes are 64 ns wide up to 511 ns, and an eighth of an octave above that; the last one
/// has no end. `TurnHistogram.Buckets` has their bounds.
static inline uint32_t task_pool_class_of(uint64_t length) {
    uint64_t units = length >> 6;
    if (units < 8) { return (uint32_t)units; }
    // The octave: 3 for 8 to 15, and so on. The three bits below the highest one are the step in the octave.
    uint32_t octave = 63 - (uint32_t)__builtin_clzll(units);
    uint32_t number = (octave - 2) << 3 | (uint32_t)((units >> (octave - 3)) & 7);
    return number < TASK_POOL_CLASSES - 1 ? number : TASK_POOL_CLASSES - 1;
}

/// The greatest number of functions kept for one job.
enum { TASK_POOL_FUNCTIONS = 8 };

/// A pool. Only the functions below know what it contains.
typedef struct task_pool task_pool;

/// A job in progress.
typedef struct task_pool_job {
    int32_t thread;      ///< The kernel's id of the worker's thread.
    uint64_t since;      ///< When the job began.
    uintptr_t function;  ///< The function in which it began; 0 if it is not known.
} task_pool_job;

/// Allocates. Null when memory is short.
///
/// \param width  the number of jobs that run at once: 1 to 4,096; other numbers are clamped to that range.
task_pool *_Nullable task_pool_create(uint32_t width);
/// The events by which a watcher can request to be woken: a job that leaves no worker free, and one that begins while no other
/// is in progress.
typedef enum task_pool_event { TASK_POOL_FULL = 0, TASK_POOL_BUSY = 1 } task_pool_event;

/// Sets the callback, which is called on the thread of a worker whose job was requested. It must not block. Call this before
/// the first request.
void task_pool_call(task_pool *pool, void (*wake)(void *_Nullable context, task_pool_event event), void *_Nullable context);
/// Frees the pool. No job may be in progress, and none may begin.
void task_pool_destroy(task_pool *pool);
/// The width given to `task_pool_create`, clamped. Any thread.
uint32_t task_pool_width(const task_pool *pool);

// The workers' side. Any thread; not async-signal-safe.

/// Begins a job on the calling thread. Returns its place for `task_pool_end`; negative if there was no place left: the job is
/// not counted.
///
/// \param functions  where it begins, then the functions that await it, TASK_POOL_FUNCTIONS in all, or fewer before a 0; null for none.
int32_t task_pool_begin(task_pool *pool, const uintptr_t *_Nullable functions);
/// Ends the job. On the same thread.
void task_pool_end(task_pool *pool, int32_t place);
/// Counts a job that waits for a worker from now on.
void task_pool_enqueue(task_pool *pool);

// The watcher's side. Any thread; wait-free.

/// What the pool counts, at one moment: see the functions below.
uint64_t task_pool_word(const task_pool *pool);
/// The jobs in progress: bits 0 to 15.
static inline uint64_t task_pool_jobs_of(uint64_t word) { return word & 0xffff; }
/// All beginnings and ends so far: bits 16 to 63.
static inline uint64_t task_pool_changes_of(uint64_t word) { return word >> 16; }
/// The jobs that have begun so far. Each has one beginning, and an end unless it is in progress.
static inline uint64_t task_pool_begun_of(uint64_t word) { return (task_pool_changes_of(word) + task_pool_jobs_of(word)) / 2; }

/// The number of jobs that wait for a worker, as counted by `task_pool_enqueue`. Never negative.
uint64_t task_pool_waiting(const task_pool *pool);
/// The number of calls of `task_pool_enqueue` so far.
uint64_t task_pool_enqueued(const task_pool *pool);
/// The number of places: `task_pool_job_at` takes 0 to one less.
uint32_t task_pool_places(const task_pool *pool);
/// The job at a place; false if the place is free, or its job is just beginning or ending.
bool task_pool_job_at(const task_pool *pool, uint32_t place, task_pool_job *job);
/// Adds the lengths of the jobs that have ended to `counts`, and writes the longest with its functions.
void task_pool_add_lengths(const task_pool *pool, uint64_t counts[_Nonnull TASK_POOL_CLASSES], uint64_t *longest,
                           uintptr_t functions[_Nonnull TASK_POOL_FUNCTIONS]);

/// The job that has been in progress for the longest time; false if there is none, or it was just ending.
bool task_pool_oldest_job(const task_pool *pool, task_pool_job *job);

/// Sets or clears the request that the next such job call `wake`. Returns whether it was set before. Sequentially consistent
/// with the word: either that job sees the request, or the requester, which reads the word afterwards, sees the job.
bool task_pool_request_wake(task_pool *pool, task_pool_event event, bool wanted);
/// Requests that the next beginning or end record its time.
void task_pool_request_stamp(task_pool *pool);
/// Returns that time, and clears the request. 0 if none was recorded.
uint64_t task_pool_take_stamp(task_pool *pool);

#pragma clang assume_nonnull end
