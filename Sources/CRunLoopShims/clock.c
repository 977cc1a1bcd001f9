#include "CRunLoopShims.h"

#include <errno.h>
#include <sys/timerfd.h>
#include <unistd.h>

int run_loop_make_clock_fd(void) {
    int fd = timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (fd < 0) { return -1; }
    // Armed for a date that is never reached: the only event is that the clock was set (timerfd_create(2), ECANCELED).
    struct itimerspec never = {.it_value = {.tv_sec = INT64_MAX / 1000000000}};
    if (timerfd_settime(fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &never, NULL) == 0) { return fd; }
    int failure = errno;
    close(fd);
    errno = failure;
    return -1;
}
