#include "simulated_kernel.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static _Thread_local struct simulated_kernel *kernel;

void simulated_kernel_enter(struct simulated_kernel *entered) { kernel = entered; }

bool simulated_kernel_is_readable(int fd) {
    struct pollfd request = {.fd = fd, .events = POLLIN};
    struct timespec none = {0};
    return syscall(SYS_ppoll, &request, 1, &none, NULL, 8) > 0;
}

bool simulated_kernel_set_readable(int fd, bool readable) {
    uint64_t count = 0;
    bool was = read(fd, &count, sizeof count) > 0;
    count = 1;
    ssize_t written = readable ? write(fd, &count, sizeof count) : 0;
    (void)written;
    return was;
}

// MARK: - The clocks

// Seconds from 1970 to 2001, the reference date of Core Foundation.
enum { REFERENCE_DATE = 978307200 };

static struct timespec simulated_time(clockid_t clock) {
    time_t base = clock == CLOCK_REALTIME ? REFERENCE_DATE : 0;
    return (struct timespec){
        .tv_sec = base + (time_t)(kernel->now_ns / 1000000000), .tv_nsec = (long)(kernel->now_ns % 1000000000)};
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    if (kernel != NULL && (clock == CLOCK_MONOTONIC || clock == CLOCK_REALTIME)) {
        *time = simulated_time(clock);
        return 0;
    }
    static int (*_Atomic real)(clockid_t, struct timespec *);
    if (real == NULL) { real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime"); }
    return real(clock, time);
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *time = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
    return 0;
}

// MARK: - Waiting

static int real_epoll_wait(int set, struct epoll_event *events, int capacity, int timeout_ms) {
    return (int)syscall(SYS_epoll_pwait, set, events, capacity, timeout_ms, NULL, 8);
}

static int wait_in_simulation(int set, struct epoll_event *events, int capacity, int64_t timeout_ns) {
    if (kernel->arrival != NULL) {
        if (kernel->arrived_fd < 0) { return 0; }
        events[0] = (struct epoll_event){.events = EPOLLIN, .data.fd = kernel->arrived_fd};
        kernel->arrived_fd = -1;
        return 1;
    }
    uint64_t until = timeout_ns < 0 ? UINT64_MAX : kernel->now_ns + (uint64_t)timeout_ns;
    while (true) {
        int count = real_epoll_wait(set, events, capacity, 0);
        if (count != 0 || timeout_ns == 0) { return count; }
        if (kernel->rest(kernel->context, until)) { return 0; }
    }
}

int epoll_wait(int set, struct epoll_event *events, int capacity, int timeout_ms) {
    if (kernel == NULL) { return real_epoll_wait(set, events, capacity, timeout_ms); }
    return wait_in_simulation(set, events, capacity, timeout_ms < 0 ? -1 : (int64_t)timeout_ms * 1000000);
}

int epoll_pwait2(int set, struct epoll_event *events, int capacity, const struct timespec *timeout, const sigset_t *mask) {
    if (kernel == NULL) { return (int)syscall(SYS_epoll_pwait2, set, events, capacity, timeout, mask, 8); }
    int64_t timeout_ns = timeout == NULL ? -1 : (int64_t)timeout->tv_sec * 1000000000 + timeout->tv_nsec;
    return wait_in_simulation(set, events, capacity, timeout_ns);
}

int epoll_ctl(int set, int operation, int fd, struct epoll_event *event) {
    if (kernel != NULL && fd >= 0 && fd == kernel->main_queue_fd) { kernel->serves_main_queue = operation == EPOLL_CTL_ADD; }
    return (int)syscall(SYS_epoll_ctl, set, operation, fd, event);
}

int ppoll(struct pollfd *requests, nfds_t count, const struct timespec *timeout, const sigset_t *mask) {
    if (kernel == NULL || kernel->arrival == NULL || count != 1 || requests->fd == kernel->main_queue_fd) {
        struct timespec rest = timeout == NULL ? (struct timespec){0} : *timeout;  // the kernel writes to it
        int ready = (int)syscall(SYS_ppoll, requests, count, timeout == NULL ? NULL : &rest, mask, 8);
        if (kernel != NULL && kernel->looked_at_main_queue != NULL) { kernel->looked_at_main_queue(kernel->context, ready > 0); }
        return ready;
    }
    kernel->arrived_fd = kernel->arrival(kernel->context, timeout == NULL);
    requests->revents = kernel->arrived_fd < 0 ? 0 : POLLIN;
    return kernel->arrived_fd < 0 ? 0 : 1;
}

// MARK: - Descriptors

// The time at which each simulated timerfd becomes ready; 0 for never. A loop's thread and its helper access it alternately.
enum { TABLE_SIZE = 65536 };
static _Atomic uint64_t armed[TABLE_SIZE];

uint64_t simulated_kernel_armed_ns(int fd) { return fd >= 0 && fd < TABLE_SIZE ? armed[fd] : 0; }

void simulated_kernel_disarm(int fd) {
    if (fd >= 0 && fd < TABLE_SIZE) { armed[fd] = 0; }
}

int eventfd(unsigned int count, int flags) {
    int fd = (int)syscall(SYS_eventfd2, count, flags);
    if (kernel != NULL) { kernel->last_eventfd = fd; }
    return fd;
}

int timerfd_create(clockid_t clock, int flags) {
    if (kernel == NULL || kernel->arrival == NULL) { return (int)syscall(SYS_timerfd_create, clock, flags); }
    kernel->last_timerfd = (int)syscall(SYS_eventfd2, 0, EFD_CLOEXEC | EFD_NONBLOCK);
    simulated_kernel_disarm(kernel->last_timerfd);
    return kernel->last_timerfd;
}

int timerfd_settime(int fd, int flags, const struct itimerspec *new_value, struct itimerspec *old_value) {
    if (kernel != NULL && kernel->arrival != NULL && fd >= 0 && fd < TABLE_SIZE) {
        armed[fd] = (uint64_t)new_value->it_value.tv_sec * 1000000000 + (uint64_t)new_value->it_value.tv_nsec;
        return 0;
    }
    return (int)syscall(SYS_timerfd_settime, fd, flags, new_value, old_value);
}

// MARK: - libdispatch

void dispatch_source_set_timer(void *source, uint64_t start, uint64_t interval, uint64_t leeway) {
    // Foundation uses such a timer for a run's timeout. In a simulated kernel `arrival` handles the runs and their timeouts.
    if (kernel != NULL && kernel->timed != NULL) {
        kernel->timed(kernel->context);
        return;
    }
    static void (*_Atomic real)(void *, uint64_t, uint64_t, uint64_t);
    if (real == NULL) {
        real = (void (*)(void *, uint64_t, uint64_t, uint64_t))dlsym(RTLD_NEXT, "dispatch_source_set_timer");
    }
    real(source, start, interval, leeway);
}

void _dispatch_main_queue_callback_4CF(void *_Nullable message) {
    if (kernel != NULL && kernel->drains != NULL) { kernel->drains(kernel->context); }
    static void (*_Atomic real)(void *);
    if (real == NULL) { real = (void (*)(void *))dlsym(RTLD_NEXT, "_dispatch_main_queue_callback_4CF"); }
    real(message);
}
