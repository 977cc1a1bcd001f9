#define _GNU_SOURCE
#include "queue_hooks.h"
#include "code.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <semaphore.h>
#include <string.h>
#include <time.h>

#ifndef __has_feature
#define __has_feature(name) 0
#endif

_Atomic(bool) queue_hooks_is_parked;
static _Atomic(void *) watched[QUEUE_HOOKS_CAPACITY];
/// The number of entries of `watched` that may be in use.
static atomic_int reach;
static sem_t wakeups;
/// libdispatch's code. Written before the first queue is added.
static code_range dispatch;
static void *main_queue;

/// Whether `queue_hooks_ask` was called on this thread; then the recorded queue.
static _Thread_local __attribute__((tls_model("initial-exec"))) bool is_asked;
static _Thread_local __attribute__((tls_model("initial-exec"))) void *answer;

// MARK: A queue's state

// The layout in libdispatch for Linux (src/queue_internal.h, Swift 5.3 to 6.3): DISPATCH_QUEUE_CLASS_HEADER, then dq_items_head.
// The target is where every object of libdispatch has it.
enum { TARGET = 24, TAIL = 48, STATE = 56, LABEL = 72, WIDTH = 80, HEAD = 104 };
/// The owner's part of the state's lower half: DLOCK_OWNER_MASK.
static const uint32_t OWNER = 0x3fffffff;

static uint64_t word_of(void *queue, unsigned offset) {
    return atomic_load_explicit((_Atomic(uint64_t) *)(void *)((char *)queue + offset), memory_order_seq_cst);
}

queue_hooks_state queue_hooks_look(void *queue) {
    uint64_t head = word_of(queue, HEAD), tail = word_of(queue, TAIL);
    return (queue_hooks_state){
        .owner = (int32_t)((uint32_t)word_of(queue, STATE) & OWNER),
        .items = head * 31 + tail,
    };
}

queue_hooks_verdict queue_hooks_judge(void *queue) {
    const char *(*label_of)(void *) = (const char *(*)(void *))dlsym(RTLD_DEFAULT, "dispatch_queue_get_label");
    if (queue == main_queue) { return QUEUE_HOOKS_MAIN; }
    // If the label and the width are at the expected places, the layout is the expected one.
    if (!label_of || (uint64_t)(uintptr_t)label_of(queue) != word_of(queue, LABEL)) { return QUEUE_HOOKS_UNKNOWN; }
    uint16_t width = (uint16_t)word_of(queue, WIDTH);
    if (width == 0) { return QUEUE_HOOKS_UNKNOWN; }
    return width == 1 ? QUEUE_HOOKS_WATCHABLE : QUEUE_HOOKS_NOT_SERIAL;
}

// MARK: Waking the watcher

void queue_hooks_wake(void) {
    int saved = errno;
    sem_post(&wakeups);
    errno = saved;
}

void queue_hooks_park(bool parked) { atomic_store(&queue_hooks_is_parked, parked); }

void queue_hooks_wake_parked(void) {
    if (atomic_exchange(&queue_hooks_is_parked, false)) { queue_hooks_wake(); }
}

static bool is_watched(void *queue) {
    for (int i = 0, end = atomic_load_explicit(&reach, memory_order_relaxed); i < end; i++) {
        if (atomic_load_explicit(&watched[i], memory_order_relaxed) == queue) { return true; }
    }
    return false;
}

bool queue_hooks_leads_to_watched(void *queue) {
    enum { LONGEST_HIERARCHY = 16 };
    for (int i = 0; queue && i < LONGEST_HIERARCHY; i++, queue = (void *)(uintptr_t)word_of(queue, TARGET)) {
        if (is_watched(queue)) { return true; }
    }
    return false;
}

void queue_hooks_note_events_slowly(uintptr_t place) {
    if (code_has(&dispatch, place)) { queue_hooks_wake_parked(); }
}

bool queue_hooks_wait(int64_t nanoseconds) {
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    int64_t rest = nanoseconds % 1000000000 + end.tv_nsec;
    end.tv_sec += nanoseconds / 1000000000 + rest / 1000000000;
    end.tv_nsec = rest % 1000000000;
    int result;
    do result = nanoseconds < 0 ? sem_wait(&wakeups) : sem_clockwait(&wakeups, CLOCK_MONOTONIC, &end);
    while (result != 0 && errno == EINTR);
    bool is_woken = result == 0;
    while (sem_trywait(&wakeups) == 0) { is_woken = true; }
    return is_woken;
}

bool queue_hooks_add(void *queue) {
    if (!atomic_load(&dispatch.high)) { code_around(dlsym(RTLD_NEXT, "dispatch_async_f"), &dispatch); }
    for (int i = 0; i < QUEUE_HOOKS_CAPACITY; i++) {
        void *none = NULL;
        if (!atomic_compare_exchange_strong(&watched[i], &none, queue)) { continue; }
        for (int known = atomic_load(&reach); known <= i && !atomic_compare_exchange_strong(&reach, &known, i + 1);) {}
        return true;
    }
    return false;
}

void queue_hooks_remove(void *queue) {
    for (int i = 0; i < QUEUE_HOOKS_CAPACITY; i++) {
        void *present = queue;
        if (atomic_compare_exchange_strong(&watched[i], &present, NULL)) { return; }
    }
}

/// Called after fork(2) on the child's only thread. The child does not watch its parent's queues.
static void forget_all(void) {
    memset(watched, 0, sizeof watched);
    atomic_store(&reach, 0);
    atomic_store(&queue_hooks_is_parked, false);
    sem_init(&wakeups, 0, 0);
}

__attribute__((constructor(101))) static void prepare(void) { pthread_atfork(NULL, NULL, forget_all); }

// MARK: The functions

// libdispatch's functions that submit work, each as: its name after `dispatch_`, the queue, the parameters, and the arguments.

/// Those that do not wait for the work.
#define SUBMITTING(USE)                                                                                                     \
    USE(async, queue, (void *queue, void *block), (queue, block))                                                           \
    USE(barrier_async, queue, (void *queue, void *block), (queue, block))                                                   \
    USE(barrier_async_f, queue, (void *queue, void *context, void (*work)(void *)), (queue, context, work))                 \
    USE(group_async, queue, (void *group, void *queue, void *block), (group, queue, block))                                 \
    USE(group_async_f, queue, (void *group, void *queue, void *context, void (*work)(void *)), (group, queue, context, work)) \
    USE(resume, object, (void *object), (object))                                                                           \
    USE(activate, object, (void *object), (object))

/// Those that do.
#define WAITING(USE)                                                                                                        \
    USE(sync, queue, (void *queue, void *block), (queue, block))                                                            \
    USE(sync_f, queue, (void *queue, void *context, void (*work)(void *)), (queue, context, work))                          \
    USE(barrier_sync, queue, (void *queue, void *block), (queue, block))                                                    \
    USE(barrier_sync_f, queue, (void *queue, void *context, void (*work)(void *)), (queue, context, work))                  \
    USE(async_and_wait, queue, (void *queue, void *block), (queue, block))                                                  \
    USE(async_and_wait_f, queue, (void *queue, void *context, void (*work)(void *)), (queue, context, work))                \
    USE(barrier_async_and_wait, queue, (void *queue, void *block), (queue, block))                                          \
    USE(barrier_async_and_wait_f, queue, (void *queue, void *context, void (*work)(void *)), (queue, context, work))

/// libdispatch's functions. Written before main: by the constructor, or by an earlier call.
static struct {
#define MEMBER(name, queue, parameters, arguments) void (*name) parameters;
    SUBMITTING(MEMBER)
    WAITING(MEMBER)
    unsigned (*get_qos_class)(void *queue, int *priority);
    void (*async_f)(void *queue, void *context, void (*work)(void *));
} next;

__attribute__((constructor(101))) static void find_next(void) {
    if (next.async_f) { return; }
#define FIND(name, ...) next.name = (__typeof__(next.name))dlsym(RTLD_NEXT, "dispatch_" #name);
    SUBMITTING(FIND)
    WAITING(FIND)
    next.get_qos_class = (__typeof__(next.get_qos_class))dlsym(RTLD_NEXT, "dispatch_queue_get_qos_class");
    main_queue = dlsym(RTLD_DEFAULT, "_dispatch_main_q");
    sem_init(&wakeups, 0, 0);
    FIND(async_f)
}

/// Another library's constructor may submit work before ours has run.
#define NEXT(name) \
    if (__builtin_expect(!next.name, 0)) { find_next(); }

void queue_hooks_submit(void *queue, void *context, void (*work)(void *)) { next.async_f(queue, context, work); }

// Functions that do not wait for the work call `queue_hooks_note_work` after they have submitted it. The watcher parks and then looks once more:
// either the watcher sees the work, or the function sees that it is parked. By then the queue may be gone, so it is looked at before.

#define HOOK_SUBMITTING(name, queue, parameters, arguments)  \
    static void hook_##name parameters {                     \
        NEXT(name)                                           \
        bool concerns = queue_hooks_concerns_watcher(queue); \
        next.name arguments;                                 \
        queue_hooks_note_work(concerns);                     \
    }
SUBMITTING(HOOK_SUBMITTING)

#define HOOK_WAITING(name, queue, parameters, arguments)             \
    static void hook_##name parameters {                             \
        NEXT(name)                                                   \
        queue_hooks_note_work(queue_hooks_concerns_watcher(queue));  \
        next.name arguments;                                         \
    }
WAITING(HOOK_WAITING)

static unsigned hook_get_qos_class(void *queue, int *priority) {
    NEXT(get_qos_class)
    if (is_asked) { answer = queue; }
    return next.get_qos_class(queue, priority);
}

void queue_hooks_ask(void) {
    is_asked = true;
    answer = NULL;
}

void *queue_hooks_answer(void) {
    is_asked = false;
    return answer;
}

// MARK: libdispatch's names

// Weak, and not under a sanitizer: see tasks.c, which defines dispatch_async_f.
#if !__has_feature(thread_sanitizer)
#define CALL_BY(name, hook) extern __typeof__(hook) dispatch_##name __attribute__((weak, alias(#hook)));
#define CALL_BY_NAME(name, ...) CALL_BY(name, hook_##name)
SUBMITTING(CALL_BY_NAME)
WAITING(CALL_BY_NAME)
CALL_BY(queue_get_qos_class, hook_get_qos_class)
#endif
