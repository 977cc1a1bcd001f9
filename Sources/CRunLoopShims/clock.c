#include "CRunLoopShims.h"

#include <errno.h>
#include <sys/timerfd.h>
#include <unistd.h>

// Armed for a date that is never reached: the only event is that the clock was set (timerfd_create(2), ECANCELED).
static int arm(int fd) {
    struct itimerspec never = {.it_value = {.tv_sec = INT64_MAX / 1000000000}};
    return timerfd_settime(fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &never, NULL);
}

int run_loop_make_clock_fd(void) {
    int fd = timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (fd < 0) { return -1; }
    if (arm(fd) == 0) { return fd; }
    int failure = errno;
    close(fd);
    errno = failure;
    return -1;
}

void run_loop_rearm_clock_fd(int fd) {
    int saved = errno;
    uint64_t expirations;
    // Fails with ECANCELED; this read makes the kernel report the next step.
    ssize_t length = read(fd, &expirations, sizeof expirations);
    (void)length;
    arm(fd);
    errno = saved;
}
