#pragma once
// What the workers of a task pool publish of the jobs they run, and what a watcher reads off it. Times are CLOCK_MONOTONIC nanoseconds.
//
// A job in progress has a place of its own in the pool: its worker takes a free one as the job begins, and gives it back as the job ends.
// So threads may come and go as they like, and nothing is left behind by one that ends. One word counts the jobs in progress (bits 0 to 15)
// and all beginnings and ends so far (bits 16 to 63): two equal words read some time apart mean that no job has begun or ended between.
//
// A beginning or an end takes one atomic addition to that word, one change of the worker's own place, and one look at the clock. No lock, no allocation.

#include <stdbool.h>
#include <stdint.h>

#pragma clang assume_nonnull begin

/// Lengths of jobs are counted in so many classes: those of `TurnHistogram.Buckets`.
enum { TASK_POOL_CLASSES = 224 };

/// Of a job so many functions are kept at most.
enum { TASK_POOL_FUNCTIONS = 4 };

typedef struct task_pool task_pool;

/// A job in progress.
typedef struct task_pool_job {
    int32_t thread;      ///< The kernel's number of the worker's thread.
    uint64_t since;      ///< When it began.
    uintptr_t function;  ///< Where it began; 0 if nobody said.
} task_pool_job;

/// Allocates. Null when memory is short.
///
/// \param width  how many jobs run at once: 1 to 4,096; another number is brought to the nearer end.
task_pool *_Nullable task_pool_create(uint32_t width);
/// What a watcher can wish to be woken by: a job that leaves no worker free, one that begins while no other is in progress.
typedef enum task_pool_wish { TASK_POOL_FULL = 0, TASK_POOL_BUSY = 1 } task_pool_wish;

/// Sets what is called on the thread of a worker whose job was wished for. It must not block. Before the first wish.
void task_pool_call(task_pool *pool, void (*wake)(void *_Nullable context, task_pool_wish wish), void *_Nullable context);
/// Frees it. No job may be in progress, and none begin.
void task_pool_destroy(task_pool *pool);
uint32_t task_pool_width(const task_pool *pool);

// The workers' side. Any thread; not async-signal-safe.

/// A job begins on the calling thread. Returns its place for `task_pool_end`; negative: there was no place left, and it is not counted.
///
/// \param functions  where it begins, then those that await that one, TASK_POOL_FUNCTIONS of them; 0 for one that is not known, null for none.
int32_t task_pool_begin(task_pool *pool, const uintptr_t *_Nullable functions);
/// It has ended. On the same thread.
void task_pool_end(task_pool *pool, int32_t place);
/// A job waits for a worker from now on.
void task_pool_enqueue(task_pool *pool);

// The watcher's side. Any thread; wait-free.

uint64_t task_pool_word(const task_pool *pool);
/// Jobs that wait for a worker, among those that were told of as waiting. Never negative.
uint64_t task_pool_waiting(const task_pool *pool);
/// How many jobs were told of as waiting, all in all.
uint64_t task_pool_enqueued(const task_pool *pool);
uint32_t task_pool_places(const task_pool *pool);
/// The job at a place; false: it is free, or its job is just beginning or ending.
bool task_pool_job_at(const task_pool *pool, uint32_t place, task_pool_job *job);
/// Adds the lengths of the jobs that have ended to `counts`, and tells the longest with its functions.
void task_pool_add_lengths(const task_pool *pool, uint64_t counts[_Nonnull TASK_POOL_CLASSES], uint64_t *longest,
                           uintptr_t functions[_Nonnull TASK_POOL_FUNCTIONS]);

/// The job that has been in progress for longest; false: there is none, or it was just ending.
bool task_pool_oldest_job(const task_pool *pool, task_pool_job *job);

/// Wishes, or no longer wishes, that the next such job call `wake`. Returns whether that was wished before. Sequentially consistent with the
/// word: either that job sees the wish, or the wisher, who looks at the word afterwards, sees the job.
bool task_pool_wish_wake(task_pool *pool, task_pool_wish wish, bool wished);
/// Wishes that the next beginning or end note its time.
void task_pool_wish_stamp(task_pool *pool);
/// That time, and takes the wish back. 0: there was none since.
uint64_t task_pool_take_stamp(task_pool *pool);

#pragma clang assume_nonnull end
