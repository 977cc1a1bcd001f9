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

/// libdispatch's function. Written by the constructor, or by an earlier call.
static _Atomic(async) next;
static uint32_t processors;
static _Atomic(bool) is_armed;
static void (*_Atomic note_use)(uint8_t priority);
/// The runtime's function that runs a job. It is always the same.
static _Atomic(work) run_job;

/// The jobs of one priority.
static struct priority_jobs {
    _Atomic(void *) queue;  ///< The runtime's queue for this priority. Null until it is known; never released.
    _Atomic(task_pool *) pool;
} priorities[TASK_HOOKS_PRIORITIES];

/// The layout of a job: Job and AsyncTask in swift/ABI/Task.h. Compiled code depends on it, so it does not change.
enum { KIND_OFFSET = 32, PRIORITY_OFFSET = 33, FUNCTION_OFFSET = 56, CONTEXT_OFFSET = 64 };
/// The kind of a job that is a task, which has a context.
enum { KIND_TASK = 0 };

/// The data that an asynchronous function has about the function that awaits it: AsyncContext in swift/ABI/Task.h.
struct context {
    struct context *parent;
    uintptr_t resume_parent;
};

/// The runtime's code. Empty if it is part of the program's.
static code_range runtime;

// A program that contains the runtime and libdispatch (-static-stdlib) is linked with the option --wrap=dispatch_async_f, because no dynamic loader
// chooses between definitions there. All calls then go to __wrap_dispatch_async_f, and libdispatch's function is __real_dispatch_async_f. Without
// the option, that name is null.
extern void __real_dispatch_async_f(void *queue, void *context, work work_) __attribute__((weak));
extern const char *dispatch_queue_get_label(void *queue) __attribute__((weak));
static void hook_dispatch_async_f(void *queue, void *context, work work_);

void __wrap_dispatch_async_f(void *queue, void *context, work work_) { hook_dispatch_async_f(queue, context, work_); }

/// Whether the program contains libdispatch, and is linked with the option. In other programs with the option, the name leads to the definition
/// below.
static bool is_wrapped(void) { return __real_dispatch_async_f && __real_dispatch_async_f != hook_dispatch_async_f; }

static void find_next(void) {
    async found = is_wrapped() ? __real_dispatch_async_f : (async)dlsym(RTLD_NEXT, "dispatch_async_f");
    if (found) { atomic_store_explicit(&next, found, memory_order_release); }
}

__attribute__((constructor(101))) static void begin(void) {
    find_next();
    if (!is_wrapped()) { code_around(dlsym(RTLD_DEFAULT, "swift_task_create"), &runtime); }
    // libdispatch also determines this only once, at the start of the process.
    cpu_set_t allowed;
    long configured = sysconf(_SC_NPROCESSORS_CONF);
    int permitted = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 0;
    processors = configured > 0 ? (uint32_t)configured : 1;
    if (permitted > 0 && (uint32_t)permitted < processors) { processors = (uint32_t)permitted; }
}

uint32_t task_hooks_width(void) { return processors; }

static struct priority_jobs *jobs_of_priority(uint8_t priority) {
    switch (priority) {
    case 9: return &priorities[0];
    case 17: return &priorities[1];
    case 21: return &priorities[2];
    case 25: return &priorities[3];
    case 33: return &priorities[4];
    default: return NULL;
    }
}

void task_hooks_set_pool(uint8_t priority, void *pool) {
    struct priority_jobs *jobs = jobs_of_priority(priority);
    if (jobs) { atomic_store_explicit(&jobs->pool, pool, memory_order_release); }
}

void task_hooks_call_at_use(void (*used)(uint8_t priority)) { atomic_store_explicit(&note_use, used, memory_order_release); }

void task_hooks_arm(bool armed) { atomic_store_explicit(&is_armed, armed, memory_order_release); }

// There is one function for each priority that runs its jobs: when a job runs, its queue is not known. In a worker's stack, one of these functions
// called the job.

/// The functions in which a job begins. A job that continues in a function of the runtime (a sleep, a continuation) soon returns to the function
/// that awaits that, which may belong to a library. So these are the first functions outside the runtime. A new task has none. If the runtime's
/// code is not known, its functions are among them, and a sleep has several.
static inline __attribute__((always_inline)) void find_functions(const char *job, uintptr_t functions[TASK_POOL_FUNCTIONS]) {
    enum { FARTHEST = 6 };
    functions[0] = *(const uintptr_t *)(job + FUNCTION_OFFSET);
    bool is_outside = !is_wrapped() && !code_has(&runtime, functions[0]);
    if (is_outside || *(const uint8_t *)(job + KIND_OFFSET) != KIND_TASK) { return; }
    // The contexts of the awaiting functions exist until the task continues.
    const struct context *context = *(struct context *const *)(job + CONTEXT_OFFSET);
    int count = 1;
    for (int step = 0; step < FARTHEST && count < TASK_POOL_FUNCTIONS && context; step++, context = context->parent) {
        uintptr_t function = context->resume_parent;
        if (function && !code_has(&runtime, function)) { functions[count++] = function; }
    }
}

static inline __attribute__((always_inline)) void run(struct priority_jobs *jobs, void *job) {
    task_pool *pool = atomic_load_explicit(&jobs->pool, memory_order_acquire);
    // Before it runs, because a task is freed when it has ended.
    uintptr_t functions[TASK_POOL_FUNCTIONS] = {0};
    find_functions(job, functions);
    int32_t place = task_pool_begin(pool, functions);
    atomic_load_explicit(&run_job, memory_order_acquire)(job);
    task_pool_end(pool, place);
}

#define PRIORITY(number) \
    static void run_job_of_priority_##number(void *job) { run(&priorities[number], job); }
PRIORITY(0) PRIORITY(1) PRIORITY(2) PRIORITY(3) PRIORITY(4)

static const work run_functions[TASK_HOOKS_PRIORITIES] = {
    run_job_of_priority_0, run_job_of_priority_1, run_job_of_priority_2, run_job_of_priority_3, run_job_of_priority_4,
};

static bool is_of_pool(void *queue) {
    const char *label = dispatch_queue_get_label ? dispatch_queue_get_label(queue) : NULL;
    return label && strcmp(label, "Swift global concurrent queue") == 0;
}

/// Whether the queue is the runtime's queue for this priority. Swift's jobs are also submitted to the main queue, and to executors' queues.
static bool is_queue_of(struct priority_jobs *jobs, void *queue, uint8_t priority) {
    void *known = atomic_load_explicit(&jobs->queue, memory_order_relaxed);
    if (__builtin_expect(known == queue, 1)) { return true; }
    if (known || !is_of_pool(queue)) { return false; }
    if (!atomic_compare_exchange_strong_explicit(&jobs->queue, &known, queue, memory_order_relaxed, memory_order_relaxed)) {
        return known == queue;
    }
    void (*note)(uint8_t) = atomic_load_explicit(&note_use, memory_order_acquire);
    if (note) { note(priority); }
    return true;
}

/// Whether it is the function by which the runtime runs jobs. Its context is then a job.
static bool runs_job(work work_, void *queue) {
    work known = atomic_load_explicit(&run_job, memory_order_relaxed);
    if (__builtin_expect(known != NULL, 1)) { return known == work_; }
    if (!is_of_pool(queue)) { return false; }
    return atomic_compare_exchange_strong_explicit(&run_job, &known, work_, memory_order_release, memory_order_relaxed) ||
           known == work_;
}

/// The priority of a job of the pool. Null: it is not a job of the pool, or jobs are not counted.
static struct priority_jobs *jobs_of(void *queue, void *context, work work_) {
    if (!atomic_load_explicit(&is_armed, memory_order_relaxed) || !runs_job(work_, queue)) { return NULL; }
    uint8_t priority = ((const uint8_t *)context)[PRIORITY_OFFSET];
    struct priority_jobs *jobs = jobs_of_priority(priority);
    bool has_pool = jobs && atomic_load_explicit(&jobs->pool, memory_order_acquire);
    return has_pool && is_queue_of(jobs, queue, priority) ? jobs : NULL;
}

/// Called before each job of the main actor. Null: nothing is called.
static void (*_Atomic main_job_begins)(void);
static void *_Atomic main_queue;

void task_hooks_call_at_main_jobs(void (*begins)(void)) {
    atomic_store_explicit(&main_queue, dlsym(RTLD_DEFAULT, "_dispatch_main_q"), memory_order_relaxed);
    atomic_store_explicit(&main_job_begins, begins, memory_order_release);
}

/// The runtime's function that runs a job on the main actor. It is not the pool's, and is always the same.
static _Atomic(work) run_on_main_actor;

static void run_main_job(void *job) {
    atomic_load_explicit(&main_job_begins, memory_order_acquire)();
    atomic_load_explicit(&run_on_main_actor, memory_order_acquire)(job);
}

/// The function that the main queue calls for a piece of work: `run_main_job` for the main actor's jobs if they are wanted.
static work work_of_main_queue(void *queue, work work_) {
    if (__builtin_expect(!atomic_load_explicit(&main_job_begins, memory_order_acquire), 1)) { return work_; }
    if (queue != atomic_load_explicit(&main_queue, memory_order_relaxed)) { return work_; }
    work known = atomic_load_explicit(&run_on_main_actor, memory_order_acquire);
    // The runtime submits only jobs to the main queue.
    bool is_job = code_has(&runtime, (uintptr_t)work_);
    if (!known && is_job && atomic_compare_exchange_strong(&run_on_main_actor, &known, work_)) { known = work_; }
    return known == work_ ? run_main_job : work_;
}

static void hook_dispatch_async_f(void *queue, void *context, work work_) {
    async submit = atomic_load_explicit(&next, memory_order_acquire);
    if (__builtin_expect(!submit, 0)) {
        // Another library's constructor may submit work before ours has run.
        find_next();
        submit = atomic_load_explicit(&next, memory_order_acquire);
    }
    struct priority_jobs *jobs = jobs_of(queue, context, work_);
    if (!jobs) {
        bool concerns = queue_hooks_concerns_watcher(queue);
        submit(queue, context, work_of_main_queue(queue, work_));
        return queue_hooks_note_work(concerns);
    }
    task_pool_enqueue(atomic_load_explicit(&jobs->pool, memory_order_relaxed));
    submit(queue, context, run_functions[jobs - priorities]);
}

// Weak: a program that contains libdispatch links without a conflict, and uses its own function. A sanitizer needs its own definition.
#if !__has_feature(thread_sanitizer)
extern __typeof__(hook_dispatch_async_f) dispatch_async_f __attribute__((weak, alias("hook_dispatch_async_f")));
#endif

// The definition that the linker, or the dynamic loader, has chosen for the runtime.
bool task_hooks_are_called(void) { return is_wrapped() || dlsym(RTLD_DEFAULT, "dispatch_async_f") == (void *)&hook_dispatch_async_f; }
