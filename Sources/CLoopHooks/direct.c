#define _GNU_SOURCE
#include "direct.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/// The size of the kernel's signal set in bytes.
enum { SIGNALS = 8 };

static struct timespec of_milliseconds(int milliseconds) {
    return (struct timespec){milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
}

int direct_epoll_wait(int set, struct epoll_event *events, int capacity, int timeout) {
    return direct_epoll_pwait(set, events, capacity, timeout, NULL);
}

int direct_epoll_pwait(int set, struct epoll_event *events, int capacity, int timeout, const sigset_t *mask) {
    return (int)syscall(SYS_epoll_pwait, set, events, capacity, timeout, mask, SIGNALS);
}

int direct_epoll_pwait2(int set, struct epoll_event *events, int capacity, const struct timespec *timeout, const sigset_t *mask) {
    return (int)syscall(SYS_epoll_pwait2, set, events, capacity, timeout, mask, SIGNALS);
}

int direct_poll(struct pollfd *descriptors, nfds_t count, int timeout) {
    struct timespec time = of_milliseconds(timeout < 0 ? 0 : timeout);
    return direct_ppoll(descriptors, count, timeout < 0 ? NULL : &time, NULL);
}

int direct_ppoll(struct pollfd *descriptors, nfds_t count, const struct timespec *timeout, const sigset_t *mask) {
    // The kernel writes the remaining time there.
    struct timespec rest;
    if (timeout) rest = *timeout;
    return (int)syscall(SYS_ppoll, descriptors, count, timeout ? &rest : NULL, mask, SIGNALS);
}

int direct_poll_chk(struct pollfd *descriptors, nfds_t count, int timeout, size_t length) {
    if (length / sizeof *descriptors < count) abort();
    return direct_poll(descriptors, count, timeout);
}

int direct_ppoll_chk(
    struct pollfd *descriptors, nfds_t count, const struct timespec *timeout, const sigset_t *mask, size_t length
) {
    if (length / sizeof *descriptors < count) abort();
    return direct_ppoll(descriptors, count, timeout, mask);
}

static int wait_selected(
    int count, fd_set *readable, fd_set *writable, fd_set *exceptional, struct timespec *timeout, const sigset_t *mask
) {
    const struct {
        const sigset_t *mask;
        size_t size;
    } signals = {mask, SIGNALS};
    return (int)syscall(SYS_pselect6, count, readable, writable, exceptional, timeout, &signals);
}

int direct_select(int count, fd_set *readable, fd_set *writable, fd_set *exceptional, struct timeval *timeout) {
    if (!timeout) return wait_selected(count, readable, writable, exceptional, NULL, NULL);
    if (timeout->tv_sec < 0 || timeout->tv_usec < 0) return errno = EINVAL, -1;
    // The microseconds may be more than a second.
    struct timespec rest = {timeout->tv_sec + timeout->tv_usec / 1000000, timeout->tv_usec % 1000000 * 1000};
    int ready = wait_selected(count, readable, writable, exceptional, &rest, NULL);
    *timeout = (struct timeval){rest.tv_sec, rest.tv_nsec / 1000};
    return ready;
}

int direct_pselect(
    int count, fd_set *readable, fd_set *writable, fd_set *exceptional, const struct timespec *timeout, const sigset_t *mask
) {
    struct timespec rest;
    if (timeout) rest = *timeout;
    return wait_selected(count, readable, writable, exceptional, timeout ? &rest : NULL, mask);
}
