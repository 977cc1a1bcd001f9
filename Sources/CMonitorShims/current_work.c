// Which thread and which task of Swift's runtime the caller is.
#define _GNU_SOURCE
#include "CMonitorShims.h"

#include <pthread.h>
#include <stddef.h>
#include <unistd.h>

// Functions of the concurrency runtime. Weak: with a version that lacks them, tasks have no numbers. With so few arguments,
// Swift's calling convention is the same as C's.
extern void *swift_task_getCurrent(void) __attribute__((weak));
extern uint64_t swift_task_getJobTaskId(void *task) __attribute__((weak));

uint32_t monitor_current_task(void) {
    if (!swift_task_getCurrent || !swift_task_getJobTaskId) return 0;
    void *task = swift_task_getCurrent();
    return task ? (uint32_t)swift_task_getJobTaskId(task) : 0;
}

static __thread int32_t own_number;

// A fork's child has one thread, whose number is a new one.
static void forget_number(void) { own_number = 0; }

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, forget_number); }

int32_t monitor_thread_number(void) {
    if (own_number == 0) own_number = gettid();
    return own_number;
}
