/// A thread that alternately computes and calls: a signal that is sent while it computes may arrive during a call.
#include "blocking.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/select.h>

struct trial_caller {
    trial_caller_kind kind;
    uint64_t period_ns;
    pthread_t handle;
    trial_thread thread;
    int file[3];
    atomic_bool started, released;
    _Atomic uint64_t calls, cut_short;
};

static int64_t one_call(trial_caller *caller) {
    struct pollfd wanted = {caller->file[2], POLLIN, 0};
    struct epoll_event event;
    struct timespec time = {0, 1000}, none = {0, 0};
    struct timeval nothing = {0, 0};
    char byte = 0;
    switch (caller->kind) {
    case TRIAL_CALLS_POLL: return poll(&wanted, 1, 0);
    case TRIAL_CALLS_READ: return write(caller->file[1], &byte, 1) == 1 ? read(caller->file[0], &byte, 1) : -1;
    case TRIAL_CALLS_SLEEP: return nanosleep(&time, NULL);
    case TRIAL_CALLS_EPOLL: return epoll_wait(caller->file[2], &event, 1, 0);
    case TRIAL_CALLS_PPOLL: return ppoll(&wanted, 1, &none, NULL);
    case TRIAL_CALLS_SELECT: return select(0, NULL, NULL, NULL, &nothing);
    }
    return 0;
}

static void *trial_caller_main(void *context) {
    trial_caller *caller = context;
    caller->thread = trial_own_thread();
    prctl(PR_SET_TIMERSLACK, 1);
    atomic_store(&caller->started, true);
    for (uint64_t next = trial_now_ns(); !atomic_load_explicit(&caller->released, memory_order_relaxed);) {
        if (one_call(caller) < 0 && errno == EINTR)
            caller->cut_short++;
        caller->calls++;
        next += caller->period_ns;
        uint64_t now = trial_now_ns();
        next = next + 1000000 < now ? now : next;  // At most a millisecond of delay is caught up.
        while (trial_now_ns() < next) {}
    }
    return NULL;
}

trial_caller *trial_caller_start(trial_caller_kind kind, uint64_t per_second) {
    trial_caller *caller = calloc(1, sizeof *caller);
    require(caller != NULL);
    caller->kind = kind;
    caller->period_ns = 1000000000 / per_second;
    require(pipe2(caller->file, O_CLOEXEC) == 0);
    caller->file[2] = epoll_create1(EPOLL_CLOEXEC);
    require(caller->file[2] >= 0 && pthread_create(&caller->handle, NULL, trial_caller_main, caller) == 0);
    while (!atomic_load(&caller->started))
        sched_yield();
    return caller;
}

trial_thread trial_caller_thread(const trial_caller *caller) { return caller->thread; }
uint64_t trial_caller_calls(const trial_caller *caller) { return caller->calls; }
uint64_t trial_caller_cut_short(const trial_caller *caller) { return caller->cut_short; }

void trial_caller_finish(trial_caller *caller) {
    atomic_store(&caller->released, true);
    pthread_join(caller->handle, NULL);
    for (int i = 0; i < 3; i++)
        close(caller->file[i]);
    free(caller);
}
