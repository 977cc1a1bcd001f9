// Which task of Swift's runtime the caller is.
#include "CMonitorShims.h"

// Functions of the concurrency runtime. Weak: with a version that lacks them, tasks have no numbers. With so few arguments,
// Swift's calling convention is the same as C's.
extern void *swift_task_getCurrent(void) __attribute__((weak));
extern uint64_t swift_task_getJobTaskId(void *task) __attribute__((weak));

uint32_t monitor_current_task(void) {
    if (!swift_task_getCurrent || !swift_task_getJobTaskId) return 0;
    void *task = swift_task_getCurrent();
    return task ? (uint32_t)swift_task_getJobTaskId(task) : 0;
}
