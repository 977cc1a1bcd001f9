#define _GNU_SOURCE
#include "CRunLoopShims.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <time.h>

// The functions that call the kernel's waits are in a section of their own, so that a callee can recognise them as its callers.
#define WAITS __attribute__((noinline, section("run_loop_waits")))
extern const char __start_run_loop_waits[] __attribute__((visibility("hidden")));
extern const char __stop_run_loop_waits[] __attribute__((visibility("hidden")));

bool run_loop_publishes_wait_at(uintptr_t return_address) {
    return return_address >= (uintptr_t)__start_run_loop_waits && return_address <= (uintptr_t)__stop_run_loop_waits;
}

// Set once the kernel has reported that it lacks epoll_pwait2. Relaxed everywhere: a thread that misses it tries again.
static atomic_bool lacks_pwait2;

static int timeout_ms(int64_t timeout_ns) {
    if (timeout_ns < 0) { return -1; }
    int64_t ms = timeout_ns / 1000000 + (timeout_ns % 1000000 != 0);
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

WAITS static int wait_exactly(int epoll_fd, struct epoll_event *events, int capacity, int64_t timeout_ns) {
    struct timespec timeout = {.tv_sec = timeout_ns / 1000000000, .tv_nsec = timeout_ns % 1000000000};
    int count = epoll_pwait2(epoll_fd, events, capacity, &timeout, NULL);
    // EPERM: returned by sandboxes for system calls that they do not know.
    if (count >= 0 || (errno != ENOSYS && errno != EPERM)) { return count; }
    atomic_store_explicit(&lacks_pwait2, true, memory_order_relaxed);
    return epoll_wait(epoll_fd, events, capacity, timeout_ms(timeout_ns));
}

WAITS int event_run_loop_wait(int epoll_fd, struct epoll_event *events, int capacity, int64_t timeout_ns) {
    int saved = errno;
    bool coarse = timeout_ns <= 0 || atomic_load_explicit(&lacks_pwait2, memory_order_relaxed);
    int count = coarse ? epoll_wait(epoll_fd, events, capacity, timeout_ms(timeout_ns))
                       : wait_exactly(epoll_fd, events, capacity, timeout_ns);
    if (count < 0) { count = -errno; }
    errno = saved;
    return count;
}

// The bits that poll and epoll share, among those that the loop requests.
_Static_assert(POLLIN == EPOLLIN && POLLOUT == EPOLLOUT && POLLRDHUP == EPOLLRDHUP, "poll and epoll have the same bits");

uint32_t run_loop_poll(int fd, uint32_t events) {
    int saved = errno;
    struct pollfd request = {.fd = fd, .events = (short)(events & (POLLIN | POLLOUT | POLLRDHUP))};
    int count = poll(&request, 1, 0);
    errno = saved;
    return count > 0 ? (uint32_t)(unsigned short)request.revents : 0;
}
