#define _GNU_SOURCE
#include "CRunLoopShims.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static bool is_open(const uint32_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE) != 0; }

void run_loop_latch_open(uint32_t *word) {
    int saved = errno;
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    errno = saved;
}

bool run_loop_latch_wait(uint32_t *word, uint64_t deadline_ns) {
    int saved = errno;
    struct timespec deadline = {.tv_sec = (time_t)(deadline_ns / 1000000000), .tv_nsec = (long)(deadline_ns % 1000000000)};
    const struct timespec *limit = deadline_ns == UINT64_MAX ? NULL : &deadline;
    bool in_time = true;
    while (!is_open(word) && in_time) {
        // Absolute, on CLOCK_MONOTONIC. Any other error is a reason to look again.
        long result = syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, 0, limit, NULL, FUTEX_BITSET_MATCH_ANY);
        in_time = result == 0 || errno != ETIMEDOUT;
    }
    errno = saved;
    return is_open(word);
}

__attribute__((noinline)) bool event_run_loop_wait_for_a_perform_request(uint32_t *word, uint64_t deadline_ns) {
    bool open = run_loop_latch_wait(word, deadline_ns);
    __asm__ volatile("" ::: "memory");  // no tail call: the frame stays
    return open;
}
