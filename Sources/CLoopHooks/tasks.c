#define _GNU_SOURCE
#include "task_hooks.h"
#include "CRunLoopShims.h"
#include "code.h"
#include "queue_hooks.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#ifndef __has_feature
#define __has_feature(name) 0
#endif

typedef void (*work)(void *context);
typedef void (*async)(void *queue, void *context, work work);

/// libdispatch's own. Written by the constructor, or by a first call that comes before it.
static _Atomic(async) next;
static const char *(*_Atomic label_of)(void *queue);
static uint32_t processors;
static _Atomic(bool) is_armed;
static void (*_Atomic tell_of_use)(uint8_t priority);
/// The runtime's function that runs a job: always the same one.
static _Atomic(work) run_job;

/// The jobs of one priority.
static struct lane {
    _Atomic(void *) queue;  ///< The runtime's for this priority, once it is known. It is never released.
    _Atomic(task_pool *) pool;
} lanes[TASK_HOOKS_LANES];

/// Of a job, as the compiler lays it out too, so they stay: swift/ABI/Task.h, Job and AsyncTask.
enum { KIND_OFFSET = 32, PRIORITY_OFFSET = 33, FUNCTION_OFFSET = 56, CONTEXT_OFFSET = 64 };
/// A job of that kind is a task, and has a context.
enum { KIND_TASK = 0 };

/// What an asynchronous function has of the one that awaits it: swift/ABI/Task.h, AsyncContext.
struct context {
    struct context *parent;
    uintptr_t resume_parent;
};

/// The runtime's own.
static code_range runtime;

static void find_next(void) {
    async found = (async)dlsym(RTLD_NEXT, "dispatch_async_f");
    const char *(*label)(void *) = (const char *(*)(void *))dlsym(RTLD_DEFAULT, "dispatch_queue_get_label");
    atomic_store_explicit(&label_of, label, memory_order_relaxed);
    if (found) { atomic_store_explicit(&next, found, memory_order_release); }
}

__attribute__((constructor(101))) static void begin(void) {
    find_next();
    code_around(dlsym(RTLD_DEFAULT, "swift_task_create"), &runtime);
    // libdispatch, too, asks at the start of the process, and never again.
    cpu_set_t allowed;
    long configured = sysconf(_SC_NPROCESSORS_CONF);
    int permitted = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 0;
    processors = configured > 0 ? (uint32_t)configured : 1;
    if (permitted > 0 && (uint32_t)permitted < processors) { processors = (uint32_t)permitted; }
}

uint32_t task_hooks_width(void) { return processors; }

static struct lane *lane_of(uint8_t priority) {
    switch (priority) {
    case 9: return &lanes[0];
    case 17: return &lanes[1];
    case 21: return &lanes[2];
    case 25: return &lanes[3];
    case 33: return &lanes[4];
    default: return NULL;
    }
}

void task_hooks_set_pool(uint8_t priority, void *pool) {
    struct lane *lane = lane_of(priority);
    if (lane) { atomic_store_explicit(&lane->pool, pool, memory_order_release); }
}

void task_hooks_call_at_use(void (*used)(uint8_t priority)) { atomic_store_explicit(&tell_of_use, used, memory_order_release); }

void task_hooks_arm(bool armed) { atomic_store_explicit(&is_armed, armed, memory_order_release); }

// A job is run by the function of its lane: where it was handed over is not known when it runs. What the stack of a worker shows above its
// job is one of these.

/// Where a job begins. One that goes on in a function of the runtime's (a sleep, a continuation) soon returns to who awaits that, who may be
/// a library's, too: of these the first that are not the runtime's. A task that has just been made has none.
static inline __attribute__((always_inline)) void find_functions(const char *job, uintptr_t functions[TASK_POOL_FUNCTIONS]) {
    enum { FARTHEST = 6 };
    functions[0] = *(const uintptr_t *)(job + FUNCTION_OFFSET);
    if (!code_has(&runtime, functions[0]) || *(const uint8_t *)(job + KIND_OFFSET) != KIND_TASK) { return; }
    // Those that await a task that is about to go on are there as long as it has not.
    const struct context *context = *(struct context *const *)(job + CONTEXT_OFFSET);
    int count = 1;
    for (int step = 0; step < FARTHEST && count < TASK_POOL_FUNCTIONS && context; step++, context = context->parent) {
        uintptr_t next = context->resume_parent;
        if (next && !code_has(&runtime, next)) { functions[count++] = next; }
    }
}

static inline __attribute__((always_inline)) void run(struct lane *lane, void *job) {
    task_pool *pool = atomic_load_explicit(&lane->pool, memory_order_acquire);
    // Before it runs: a task that has ended is freed.
    uintptr_t functions[TASK_POOL_FUNCTIONS] = {0};
    find_functions(job, functions);
    int32_t place = task_pool_begin(pool, functions);
    atomic_load_explicit(&run_job, memory_order_acquire)(job);
    task_pool_end(pool, place);
}

#define LANE(number) \
    static void run_job_of_lane_##number(void *job) { run(&lanes[number], job); }
LANE(0) LANE(1) LANE(2) LANE(3) LANE(4)

static const work lane_work[TASK_HOOKS_LANES] = {run_job_of_lane_0, run_job_of_lane_1, run_job_of_lane_2,
                                                 run_job_of_lane_3, run_job_of_lane_4};

static bool is_of_pool(void *queue) {
    const char *(*find)(void *) = atomic_load_explicit(&label_of, memory_order_relaxed);
    const char *label = find ? find(queue) : NULL;
    return label && strcmp(label, "Swift global concurrent queue") == 0;
}

/// Whether the queue is the runtime's for the lane's priority. The main queue, and those of executors, are handed Swift's jobs, too.
static bool is_queue_of(struct lane *lane, void *queue, uint8_t priority) {
    void *known = atomic_load_explicit(&lane->queue, memory_order_relaxed);
    if (__builtin_expect(known == queue, 1)) { return true; }
    if (known || !is_of_pool(queue)) { return false; }
    if (!atomic_compare_exchange_strong_explicit(&lane->queue, &known, queue, memory_order_relaxed, memory_order_relaxed)) {
        return known == queue;
    }
    void (*tell)(uint8_t) = atomic_load_explicit(&tell_of_use, memory_order_acquire);
    if (tell) { tell(priority); }
    return true;
}

/// Whether it is the function by which the runtime has a job run. What it is handed for is then a job.
static bool runs_job(work work_, void *queue) {
    work known = atomic_load_explicit(&run_job, memory_order_relaxed);
    if (__builtin_expect(known != NULL, 1)) { return known == work_; }
    if (!is_of_pool(queue)) { return false; }
    return atomic_compare_exchange_strong_explicit(&run_job, &known, work_, memory_order_release, memory_order_relaxed) ||
           known == work_;
}

/// The lane whose job this is. Null: it is none of the pool's, or nobody wants to know.
static struct lane *lane_of_job(void *queue, void *context, work work_) {
    if (!atomic_load_explicit(&is_armed, memory_order_relaxed) || !runs_job(work_, queue)) { return NULL; }
    uint8_t priority = ((const uint8_t *)context)[PRIORITY_OFFSET];
    struct lane *lane = lane_of(priority);
    bool has_pool = lane && atomic_load_explicit(&lane->pool, memory_order_acquire);
    return has_pool && is_queue_of(lane, queue, priority) ? lane : NULL;
}

/// What is told of each job of the main actor. Null: nobody wants to know.
static void (*_Atomic main_job_begins)(void);
static void *_Atomic main_queue;

void task_hooks_call_at_main_jobs(void (*begins)(void)) {
    atomic_store_explicit(&main_queue, dlsym(RTLD_DEFAULT, "_dispatch_main_q"), memory_order_relaxed);
    atomic_store_explicit(&main_job_begins, begins, memory_order_release);
}

/// The runtime's function that runs a job on the main actor: another one than the pool's, and always the same.
static _Atomic(work) run_on_main_actor;

static void run_main_job(void *job) {
    atomic_load_explicit(&main_job_begins, memory_order_acquire)();
    atomic_load_explicit(&run_on_main_actor, memory_order_acquire)(job);
}

/// The function by which the main queue is to do a piece of work: another one if it is a job that somebody wants to know of.
static work work_of_main_queue(void *queue, work work_) {
    if (__builtin_expect(!atomic_load_explicit(&main_job_begins, memory_order_acquire), 1)) { return work_; }
    if (queue != atomic_load_explicit(&main_queue, memory_order_relaxed)) { return work_; }
    work known = atomic_load_explicit(&run_on_main_actor, memory_order_acquire);
    // The runtime hands the main queue nothing but jobs.
    bool is_job = code_has(&runtime, (uintptr_t)work_);
    if (!known && is_job && atomic_compare_exchange_strong(&run_on_main_actor, &known, work_)) { known = work_; }
    return known == work_ ? run_main_job : work_;
}

static void hook_dispatch_async_f(void *queue, void *context, work work_) {
    async hand_over = atomic_load_explicit(&next, memory_order_acquire);
    if (__builtin_expect(!hand_over, 0)) {
        // A library's constructor may hand over work before ours has run.
        find_next();
        hand_over = atomic_load_explicit(&next, memory_order_acquire);
    }
    struct lane *lane = lane_of_job(queue, context, work_);
    if (!lane) {
        hand_over(queue, context, work_of_main_queue(queue, work_));
        return queue_hooks_note(queue);
    }
    task_pool_enqueue(atomic_load_explicit(&lane->pool, memory_order_relaxed));
    hand_over(queue, context, lane_work[lane - lanes]);
}

// Weak: a program with libdispatch in it links without a conflict, and uses that one. A sanitizer has a definition of its own, which it needs.
#if !__has_feature(thread_sanitizer)
extern __typeof__(hook_dispatch_async_f) dispatch_async_f __attribute__((weak, alias("hook_dispatch_async_f")));
#endif

// What the loader has chosen for the runtime, which asks it by the name.
bool task_hooks_are_called(void) { return dlsym(RTLD_DEFAULT, "dispatch_async_f") == (void *)&hook_dispatch_async_f; }
