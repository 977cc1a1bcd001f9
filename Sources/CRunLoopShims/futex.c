#define _GNU_SOURCE
#include "CRunLoopShims.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

void run_loop_futex_wait(void *word, uint32_t seen) {
    int saved = errno;
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL);
    errno = saved;
}

void run_loop_futex_wake(void *word) {
    int saved = errno;
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1);
    errno = saved;
}
