// A fully static program with the hooks. Each wait must behave as the C library's does, and the loop must be found. Prints each failure
// on a line, and DONE at the end. Compiled by a test.

#define _GNU_SOURCE
#include "CLoopHooks.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WAITS = 7 };
static const char *const names[WAITS] = {"epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect"};
static int set, file;

/// One wait for `file`.
static int wait_once(int way, int milliseconds) {
    struct epoll_event event;
    struct pollfd polled = {.fd = file, .events = POLLIN};
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    struct timeval left = {milliseconds / 1000, milliseconds % 1000 * 1000};
    fd_set readable;
    FD_ZERO(&readable);
    FD_SET(file, &readable);
    switch (way) {
        case 0: return epoll_wait(set, &event, 1, milliseconds);
        case 1: return epoll_pwait(set, &event, 1, milliseconds, NULL);
        case 2: return epoll_pwait2(set, &event, 1, &time, NULL);
        case 3: return poll(&polled, 1, milliseconds);
        case 4: return ppoll(&polled, 1, &time, NULL);
        case 5: return select(file + 1, &readable, NULL, NULL, &left);
        default: return pselect(file + 1, &readable, NULL, NULL, &time, NULL);
    }
}

static void expect(const char *name, const char *what, int result, int wanted) {
    if (result != wanted) printf("%s, %s: %d, errno %d\n", name, what, result, errno);
}

static void ignore(int signal) { (void)signal; }

static pthread_t waiter;
static atomic_bool has_returned;

/// Interrupts until the wait has returned: the first signals may come before it begins.
static void *interrupt(void *context) {
    struct timespec time = {.tv_nsec = 5000000};
    while (!has_returned) {
        nanosleep(&time, NULL);
        pthread_kill(waiter, SIGUSR1);
    }
    return context;
}

static void try_interrupted(int way) {
    pthread_t other;
    has_returned = false;
    pthread_create(&other, NULL, interrupt, NULL);
    bool is_interrupted = wait_once(way, 60000) < 0 && errno == EINTR;
    has_returned = true;
    expect(names[way], "interrupted", is_interrupted, 1);
    pthread_join(other, NULL);
}

static void try_time_left(void) {
    struct timeval left = {.tv_sec = 60};
    fd_set readable;
    FD_ZERO(&readable);
    FD_SET(file, &readable);
    expect("select", "ready", select(file + 1, &readable, NULL, NULL, &left), 1);
    expect("select", "time left", left.tv_sec >= 30 && left.tv_sec < 60, 1);
    left = (struct timeval){.tv_sec = -1};
    expect("select", "negative time", select(0, NULL, NULL, NULL, &left) < 0 && errno == EINVAL, 1);
}

/// A child gets memory of its own only for the slots that the parent has used, which is one.
static void try_fork(void) {
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        struct rusage usage;
        getrusage(RUSAGE_SELF, &usage);
        _exit(usage.ru_minflt < 60 ? 0 : 1);
    }
    waitpid(child, &status, 0);
    expect("fork", "few pages", status, 0);
}

static atomic_int ended;
static atomic_bool has_loop, may_end;

static void publish(void *heartbeat) { (void)heartbeat; }
static void end(void *heartbeat) { *(atomic_int *)heartbeat += 1; }

/// Has a loop, is cancelled, and returns without reaching a cancellation point.
static void *loop_and_return(void *context) {
    int own = epoll_create1(0);
    struct epoll_event event;
    for (int wait = 0; wait < 3; wait++) epoll_wait(own, &event, 1, 1);
    close(own);
    has_loop = true;
    while (!may_end) sched_yield();
    pthread_cancel(pthread_self());
    return context;
}

/// Whether a thread of this process is in clock_nanosleep(2), or has ended.
static bool naps_or_has_ended(int thread) {
    char path[64], text[16] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", thread);
    FILE *state = fopen(path, "r");
    if (!state) return true;
    bool is_read = fgets(text, sizeof text, state) != NULL;
    fclose(state);
    return !is_read || atoi(text) == SYS_clock_nanosleep;
}

/// The end of a thread waits for the registrar, also if the thread was cancelled: otherwise its loop would never end.
static void try_cancelled(uint32_t cursor) {
    static const loop_hooks_publisher publisher = {publish, publish, publish, end};
    pthread_t thread;
    loop_hooks_found found = {.thread = 0};
    pthread_create(&thread, NULL, loop_and_return, NULL);
    while (!has_loop) sched_yield();
    expect("cancelled", "loop found", loop_hooks_next(&cursor, &found), 1);
    may_end = true;
    while (!naps_or_has_ended(found.thread)) sched_yield();
    loop_hooks_bind(found.number, &publisher, &ended);
    pthread_join(thread, NULL);
    expect("cancelled", "loop ended", ended, 1);
}

int main(void) {
    struct sigaction action = {.sa_handler = ignore};
    sigaction(SIGUSR1, &action, NULL);
    // The threads of Swift's task pool block all signals, and a program that one of them starts inherits that.
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    sigprocmask(SIG_UNBLOCK, &signals, NULL);
    waiter = pthread_self();
    file = eventfd(0, 0);
    set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(set, EPOLL_CTL_ADD, file, &event);
    for (int way = 0; way < WAITS; way++) {
        expect(names[way], "timed out", wait_once(way, 20), 0);
        try_interrupted(way);
        uint64_t number = 1;
        expect(names[way], "written", (int)write(file, &number, sizeof number), 8);
        expect(names[way], "ready", wait_once(way, 20), 1);
        if (way == 5) try_time_left();
        expect(names[way], "read", (int)read(file, &number, sizeof number), 8);
    }
    expect("epoll_wait", "bad descriptor", epoll_wait(-1, &event, 1, 0) < 0 && errno == EBADF, 1);
    expect("hooks", "called", loop_hooks_are_called(), 1);
    uint32_t cursor = 0;
    loop_hooks_found found;
    expect("hooks", "loop found", loop_hooks_next(&cursor, &found), 1);
    try_fork();
    try_cancelled(cursor);
    puts("DONE");
}
