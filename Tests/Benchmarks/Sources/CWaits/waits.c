#include "waits.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>

typedef __typeof__(&epoll_wait) wait_function;
typedef void (*async_function)(void *queue, void *context, void (*work)(void *));

void dispatch_async_f(void *queue, void *context, void (*work)(void *));
void dispatch_sync_f(void *queue, void *context, void (*work)(void *));
void *dispatch_queue_create(const char *label, void *_Nullable attributes);

static int set_with(uint64_t count) {
    int set = epoll_create1(EPOLL_CLOEXEC), event = eventfd((unsigned)count, EFD_CLOEXEC);
    struct epoll_event wanted = {.events = EPOLLIN};
    if (epoll_ctl(set, EPOLL_CTL_ADD, event, &wanted) != 0) abort();
    return set;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static double epoll_cost(wait_function function, int set, int timeout, int count) {
    struct epoll_event event;
    double start = now();
    for (int i = 0; i < count; i++) function(set, &event, 1, timeout);
    return (now() - start) / count;
}

static void nothing(void *context) { (void)context; }

static double async_cost(async_function function, void *queue, int count) {
    double start = now();
    for (int i = 0; i < count; i++) {
        function(queue, NULL, nothing);
        if (i % 100 == 99) dispatch_sync_f(queue, NULL, nothing);
    }
    return (now() - start) / count;
}

double wait_cost(wait_call call, bool plain, int count) {
    static int empty = -1, ready = -1;
    static void *queue;
    if (empty < 0) {
        empty = set_with(0);
        ready = set_with(1);
        queue = dispatch_queue_create("costs", NULL);
    }
    wait_function wait = plain ? (wait_function)dlsym(RTLD_NEXT, "epoll_wait") : &epoll_wait;
    async_function async = plain ? (async_function)dlsym(RTLD_NEXT, "dispatch_async_f") : &dispatch_async_f;
    switch (call) {
        case WAIT_LOOK: return epoll_cost(wait, empty, 0, count);
        case WAIT_TURN: return epoll_cost(wait, ready, 0, count);
        case WAIT_READY: return epoll_cost(wait, ready, -1, count);
        case WAIT_DISPATCH: return async_cost(async, queue, count);
    }
    return 0;
}

void wait_confine(int processor) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    CPU_SET(processor, &allowed);
    sched_setaffinity(0, sizeof allowed, &allowed);
}
