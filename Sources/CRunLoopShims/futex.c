#define _GNU_SOURCE
#include "CRunLoopShims.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

bool run_loop_futex_wait(void *word, uint32_t seen, uint64_t deadline_ns) {
    int saved = errno;
    struct timespec deadline = {.tv_sec = (time_t)(deadline_ns / 1000000000), .tv_nsec = (long)(deadline_ns % 1000000000)};
    const struct timespec *limit = deadline_ns == UINT64_MAX ? NULL : &deadline;
    // The operation with an absolute timeout on CLOCK_MONOTONIC. After any other error the caller checks the word again.
    long result = syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, seen, limit, NULL, FUTEX_BITSET_MATCH_ANY);
    bool in_time = result == 0 || errno != ETIMEDOUT;
    errno = saved;
    return in_time;
}

void run_loop_futex_wake(void *word, int32_t count) {
    int saved = errno;
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count);
    errno = saved;
}

_Noreturn void run_loop_trap_relocking(void) {
    // In a forked child it may be a new thread that has got the stack, and with it the thread pointer, of one that held the lock.
    run_loop_warn(
        run_loop_generation() == 0
            ? "Fatal error: a call came while the same thread was in the middle of another one, whose lock it holds. "
              "In a signal handler nothing of RunLoopKit or StallMonitor may be called but EventRunLoop.wakeUp()."
            : "Fatal error: a call in a forked child needs a lock that is never released. A thread of the parent held it at the fork: "
              "fork before other threads run, or call exec. Or this thread was in the middle of another call: "
              "in a signal handler nothing of RunLoopKit or StallMonitor may be called but EventRunLoop.wakeUp().");
    __builtin_trap();
}

// Like the callouts (callouts.c): frames of their own, no tail calls, and never folded into one.
#define WAIT_POINT(name)                                                                             \
    __attribute__((noinline)) bool name(void *word, uint32_t seen, uint64_t deadline_ns) {           \
        bool in_time = run_loop_futex_wait(word, seen, deadline_ns);                                 \
        __asm__ volatile("nop /* " #name " */" ::: "memory");                                        \
        return in_time;                                                                              \
    }

WAIT_POINT(event_run_loop_wait_for_a_perform_request)
WAIT_POINT(event_run_loop_wait_for_a_worker_to_end)
