#include "waits.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int __poll_chk(struct pollfd *, nfds_t, int, size_t);
int __ppoll_chk(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *, size_t);

enum wait { EPOLL_WAIT, EPOLL_PWAIT, EPOLL_PWAIT2, POLL, PPOLL, POLL_CHK, PPOLL_CHK, SELECT, PSELECT, WAITS };

static const char *const names[WAITS] = {
    "epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "__poll_chk", "__ppoll_chk", "select", "pselect",
};

static void *calls[2][WAITS];

enum trial { READY, SHORT, AT_ONCE, TIMED, BAD_DESCRIPTOR, BAD_COUNT, BAD_ADDRESS, BAD_TIME, BAD_TIME_ADDRESS, INTERRUPTED, MASKED, CANCELLED, TRIALS };

static const char *const trials[TRIALS] = {
    "ready", "short", "at once", "timed", "bad descriptor", "bad count", "bad address", "bad time", "bad address of the time", "interrupted", "masked", "cancelled",
};

// MARK: One call

/// The arguments of a wait.
struct given {
    int set, idle_set;      // Three descriptors are ready in one, none in the other.
    int ready[3], silent;
};

/// The outcome of a wait.
struct outcome {
    int result, error, handled;
    bool is_mask_kept, was_cancelled, waited;
    /// Events, or the bits of the sets; and select's remaining time.
    uint64_t written, time_left;
};

static _Thread_local atomic_int handled;

static void handle(int number) {
    (void)number;
    handled++;
}

static bool has_mask(enum wait wait) {
    return wait == EPOLL_PWAIT || wait == EPOLL_PWAIT2 || wait == PPOLL || wait == PPOLL_CHK || wait == PSELECT;
}
static bool is_epoll(enum wait wait) { return wait <= EPOLL_PWAIT2; }
static bool is_select(enum wait wait) { return wait >= SELECT; }
static bool has_timespec(enum wait wait) { return wait == EPOLL_PWAIT2 || wait == PPOLL || wait == PPOLL_CHK || wait == PSELECT; }

/// -1 means without a limit.
static int limit_of(enum trial trial) {
    if (trial == READY || trial == INTERRUPTED || trial == MASKED || trial == CANCELLED) return -1;
    if (trial == SHORT || trial == BAD_ADDRESS) return 10000;
    return trial == TIMED ? 3 : 0;
}

static bool is_applicable(enum wait wait, enum trial trial) {
    if (trial == MASKED) return has_mask(wait);
    if (trial == BAD_TIME) return has_timespec(wait) || wait == SELECT;
    // The C library reads the others' itself.
    if (trial == BAD_TIME_ADDRESS) return wait == EPOLL_PWAIT2;
    // The C library reads a select's sets itself in some versions.
    if (trial == BAD_ADDRESS) return !is_select(wait);
    if (trial == BAD_COUNT) return wait != POLL_CHK && wait != PPOLL_CHK;
    return true;
}

static int call_epoll(enum wait wait, void *function, enum trial trial, const struct given *given, struct outcome *outcome) {
    bool ready = trial == READY || trial == SHORT || trial == BAD_ADDRESS;
    int set = trial == BAD_DESCRIPTOR ? 1 << 20 : ready ? given->set : given->idle_set;
    int capacity = trial == BAD_COUNT ? 0 : trial == SHORT ? 2 : 8;
    struct epoll_event events[8] = {0};
    struct epoll_event *target = trial == BAD_ADDRESS ? (struct epoll_event *)8 : events;
    int limit = limit_of(trial), result;
    struct timespec time = {.tv_sec = limit / 1000, .tv_nsec = trial == BAD_TIME ? -1 : limit % 1000 * 1000000L};
    sigset_t none;
    sigemptyset(&none);
    const sigset_t *mask = trial == MASKED ? &none : NULL;
    const struct timespec *until = trial == BAD_TIME_ADDRESS ? (struct timespec *)8 : limit < 0 ? NULL : &time;
    errno = 1234;
    switch (wait) {
        case EPOLL_WAIT: result = ((__typeof__(&epoll_wait))function)(set, target, capacity, limit); break;
        case EPOLL_PWAIT: result = ((__typeof__(&epoll_pwait))function)(set, target, capacity, limit, mask); break;
        default: result = ((__typeof__(&epoll_pwait2))function)(set, target, capacity, until, mask);
    }
    outcome->error = errno;
    // If not all events can be returned, the kernel chooses which ones, and its choice changes each time.
    for (int i = 0; i < 8; i++) outcome->written = outcome->written * 31 + events[i].events * 7 + (trial == SHORT ? events[i].data.u64 != 0 : events[i].data.u64);
    return result;
}

static int call_poll(enum wait wait, void *function, enum trial trial, const struct given *given, struct outcome *outcome) {
    bool ready = trial == READY || trial == SHORT;
    struct pollfd polled[4] = {
        {.fd = given->silent, .events = POLLIN},
        {.fd = ready ? given->ready[0] : -1, .events = POLLIN},
        {.fd = trial == SHORT ? given->ready[1] : -1, .events = POLLIN},
        {.fd = trial == BAD_DESCRIPTOR ? 1 << 20 : -1, .events = POLLIN},
    };
    struct pollfd *target = trial == BAD_ADDRESS ? (struct pollfd *)8 : polled;
    nfds_t count = trial == BAD_COUNT ? (nfds_t)1 << 40 : 4;
    int limit = limit_of(trial), result;
    struct timespec time = {.tv_sec = limit / 1000, .tv_nsec = trial == BAD_TIME ? -1 : limit % 1000 * 1000000L};
    const struct timespec *until = limit < 0 ? NULL : &time;
    sigset_t none;
    sigemptyset(&none);
    const sigset_t *mask = trial == MASKED ? &none : NULL;
    errno = 1234;
    switch (wait) {
        case POLL: result = ((__typeof__(&poll))function)(target, count, limit); break;
        case PPOLL: result = ((__typeof__(&ppoll))function)(target, count, until, mask); break;
        case POLL_CHK: result = ((__typeof__(&__poll_chk))function)(target, count, limit, sizeof polled); break;
        default: result = ((__typeof__(&__ppoll_chk))function)(target, count, until, mask, sizeof polled);
    }
    outcome->error = errno;
    outcome->time_left = (uint64_t)time.tv_sec << 32 | (uint64_t)time.tv_nsec;
    for (int i = 0; i < 4; i++) outcome->written = outcome->written * 64 + (uint64_t)polled[i].revents;
    return result;
}

static int call_select(enum wait wait, void *function, enum trial trial, const struct given *given, struct outcome *outcome) {
    fd_set readable, writable;
    FD_ZERO(&readable);
    FD_ZERO(&writable);
    FD_SET(given->silent, &readable);
    int count = FD_SETSIZE;
    for (int i = 0; i < 3; i++) {
        if (trial == READY || trial == SHORT) FD_SET(given->ready[i], &readable);
        if (trial == SHORT) FD_SET(given->ready[i], &writable);
    }
    if (trial == BAD_DESCRIPTOR) FD_SET(1000, &readable);
    if (trial == BAD_COUNT) count = -1;
    int limit = limit_of(trial), result;
    long rest = trial == BAD_TIME ? -1 : limit % 1000 * 1000L;
    struct timeval duration = {.tv_sec = limit / 1000, .tv_usec = rest};
    struct timespec time = {.tv_sec = limit / 1000, .tv_nsec = trial == BAD_TIME ? -1 : rest * 1000};
    sigset_t none;
    sigemptyset(&none);
    errno = 1234;
    if (wait == SELECT) {
        result = ((__typeof__(&select))function)(count, &readable, &writable, NULL, limit < 0 ? NULL : &duration);
        // The remaining time cannot be predicted exactly: compare only whether time is left.
        outcome->time_left = trial == SHORT ? duration.tv_sec > 0 && duration.tv_sec <= 10 : (uint64_t)duration.tv_usec;
    } else {
        const sigset_t *mask = trial == MASKED ? &none : NULL;
        result = ((__typeof__(&pselect))function)(count, &readable, &writable, NULL, limit < 0 ? NULL : &time, mask);
        outcome->time_left = (uint64_t)time.tv_sec << 32 | (uint64_t)time.tv_nsec;
    }
    outcome->error = errno;
    for (int i = 0; i < 64; i++) outcome->written = outcome->written * 4 + (FD_ISSET(i, &readable) ? 1u : 0) + (FD_ISSET(i, &writable) ? 2u : 0);
    return result;
}

/// Not inlined: all calls of a trial come from one place, at the same stack depth.
static __attribute__((noinline)) void
call(enum wait wait, void *function, enum trial trial, const struct given *given, struct outcome *outcome) {
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    outcome->result = is_epoll(wait)    ? call_epoll(wait, function, trial, given, outcome)
                      : is_select(wait) ? call_select(wait, function, trial, given, outcome)
                                        : call_poll(wait, function, trial, given, outcome);
    clock_gettime(CLOCK_MONOTONIC, &end);
    int64_t ns = (end.tv_sec - start.tv_sec) * 1000000000LL + end.tv_nsec - start.tv_nsec;
    outcome->waited = trial == TIMED ? ns >= 3000000 : true;
}

// MARK: A trial, on a separate thread

struct trial_run {
    enum wait wait;
    enum trial trial;
    void *function;
    const struct given *given;
    int rounds;
    const char *name;
    /// Of the last round: the wait of a loop, if there are enough rounds.
    struct outcome outcome;
    int32_t thread;
    atomic_bool is_at_last, is_over;
    bool was_cleaned_up;
};

static void clean_up(void *context) { *(bool *)context = true; }

static void *run(void *context) {
    struct trial_run *run = context;
    sigset_t blocked, kept;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR2);
    pthread_sigmask(run->trial == MASKED ? SIG_BLOCK : SIG_UNBLOCK, &blocked, NULL);
    run->thread = (int32_t)syscall(SYS_gettid);
    if (run->name) pthread_setname_np(pthread_self(), run->name);
    pthread_cleanup_push(clean_up, &run->was_cleaned_up);
    for (int round = 0; round < run->rounds; round++) {
        bool is_last = round == run->rounds - 1;
        enum trial trial = run->trial;
        // A wait that lasts until it is interrupted is only made in the last
        // round. The rounds before wait briefly, so that a loop is found there.
        if (!is_last && (trial == INTERRUPTED || trial == CANCELLED)) trial = TIMED;
        if (trial == MASKED) raise(SIGUSR2);
        run->outcome = (struct outcome){0};
        handled = 0;
        if (is_last) run->is_at_last = true;
        call(run->wait, run->function, trial, run->given, &run->outcome);
    }
    pthread_cleanup_pop(0);
    run->outcome.handled = handled > 0;
    pthread_sigmask(SIG_BLOCK, NULL, &kept);
    run->outcome.is_mask_kept = sigismember(&kept, SIGUSR2) == (run->trial == MASKED);
    run->is_over = true;
    return NULL;
}

static void nap(void) {
    struct timespec time = {.tv_nsec = 1000000};
    nanosleep(&time, NULL);
}

bool event_sleeps(int32_t thread) {
    char path[64], text[256] = {0};
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    (void)!read(file, text, sizeof text - 1);
    close(file);
    const char *name_end = strrchr(text, ')');
    return name_end && name_end[1] == ' ' && name_end[2] == 'S';
}

static bool play(struct trial_run *trial_run) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, trial_run) != 0) return false;
    if (trial_run->trial == INTERRUPTED || trial_run->trial == CANCELLED) {
        while (!trial_run->is_at_last) nap();
        for (int naps = 0; naps < 2000 && !event_sleeps(trial_run->thread); naps++) nap();
    }
    // Repeatedly, because a signal that arrives before the wait does not interrupt it.
    while (trial_run->trial == INTERRUPTED && !trial_run->is_over) {
        pthread_kill(thread, SIGUSR2);
        nap();
    }
    if (trial_run->trial == CANCELLED) pthread_cancel(thread);
    void *result = NULL;
    pthread_join(thread, &result);
    trial_run->outcome.was_cancelled = result == PTHREAD_CANCELED && trial_run->was_cleaned_up;
    if (result == PTHREAD_CANCELED) trial_run->outcome = (struct outcome){.was_cancelled = trial_run->was_cleaned_up};
    return true;
}

// MARK: All of them

static int ready_descriptor(int set) {
    int descriptor = eventfd(1, EFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)descriptor};
    epoll_ctl(set, EPOLL_CTL_ADD, descriptor, &event);
    return descriptor;
}

static bool find_calls(void) {
    for (int wait = 0; wait < WAITS; wait++) {
        calls[0][wait] = dlsym(RTLD_DEFAULT, names[wait]);
        calls[1][wait] = dlsym(RTLD_NEXT, names[wait]);
        if (!calls[0][wait] || !calls[1][wait] || calls[0][wait] == calls[1][wait]) return false;
    }
    return true;
}

static void describe(char text[160], const struct outcome *outcome) {
    snprintf(
        text, 160, "%d, errno %d, written %llx, left %llx, handled %d, mask kept %d, cancelled %d, waited %d", outcome->result,
        outcome->error, (unsigned long long)outcome->written, (unsigned long long)outcome->time_left, outcome->handled,
        outcome->is_mask_kept, outcome->was_cancelled, outcome->waited
    );
}

static bool compare(enum wait wait, enum trial trial, const struct given *given, int rounds, void (*tell)(const char *)) {
    char told[2][160];
    for (int side = 0; side < 2; side++) {
        struct trial_run run = {.wait = wait, .trial = trial, .function = calls[side][wait], .given = given, .rounds = rounds};
        if (!play(&run)) return false;
        describe(told[side], &run.outcome);
    }
    if (strcmp(told[0], told[1]) == 0) return true;
    char text[512];
    snprintf(text, sizeof text, "%s, %s, round %d: %s; the C library's: %s", names[wait], trials[trial], rounds, told[0], told[1]);
    tell(text);
    return true;
}

int event_compare_waits(int rounds, void (*tell)(const char *difference)) {
    if (!find_calls()) return -1;
    struct sigaction action = {.sa_handler = handle};
    sigaction(SIGUSR2, &action, NULL);
    struct given given = {.set = epoll_create1(EPOLL_CLOEXEC), .idle_set = epoll_create1(EPOLL_CLOEXEC), .silent = eventfd(0, EFD_CLOEXEC)};
    for (int i = 0; i < 3; i++) given.ready[i] = ready_descriptor(given.set);
    int compared = 0;
    for (int wait = 0; wait < WAITS; wait++) {
        for (int trial = 0; trial < TRIALS; trial++) {
            if (!is_applicable(wait, trial)) continue;
            if (!compare(wait, trial, &given, rounds, tell)) return -1;
            compared++;
        }
    }
    for (int i = 0; i < 3; i++) close(given.ready[i]);
    close(given.set);
    close(given.idle_set);
    close(given.silent);
    return compared;
}

// MARK: Threads that end

bool event_cancel_loop(const char *name) {
    struct given given = {.set = -1, .idle_set = epoll_create1(EPOLL_CLOEXEC), .silent = eventfd(0, EFD_CLOEXEC)};
    struct trial_run run = {.wait = EPOLL_WAIT, .trial = CANCELLED, .function = &epoll_wait, .given = &given, .rounds = 40, .name = name};
    bool played = play(&run);
    close(given.idle_set);
    close(given.silent);
    return played && run.outcome.was_cancelled;
}

struct crowd {
    /// Shared by all threads; -1: each has its own.
    int set, end, milliseconds;
    atomic_bool is_worked;
    sem_t waited;
};

static int set_with(int descriptor) {
    struct epoll_event event = {.events = EPOLLIN};
    int set = epoll_create1(EPOLL_CLOEXEC);
    if (set < 0 || epoll_ctl(set, EPOLL_CTL_ADD, descriptor, &event) != 0) abort();
    return set;
}

static void *join_crowd(void *context) {
    struct crowd *crowd = context;
    struct epoll_event event;
    int set = crowd->set >= 0 ? crowd->set : set_with(crowd->end);
    for (int i = 0; i < 3; i++) epoll_wait(set, &event, 1, 1);
    sem_post(&crowd->waited);
    // One thread of a pool works meanwhile.
    if (crowd->set >= 0 && !atomic_exchange(&crowd->is_worked, true)) usleep((useconds_t)crowd->milliseconds * 1000);
    // They rest in their loops until the end, which comes for all at once.
    while (epoll_wait(set, &event, 1, -1) < 1) {}
    if (crowd->set < 0) close(set);
    return NULL;
}

bool event_crowd(int count, int milliseconds, bool shares) {
    pthread_t *threads = calloc((size_t)count, sizeof *threads);
    struct rlimit descriptors;
    getrlimit(RLIMIT_NOFILE, &descriptors);
    descriptors.rlim_cur = descriptors.rlim_max;
    setrlimit(RLIMIT_NOFILE, &descriptors);
    struct crowd crowd = {.set = -1, .end = eventfd(0, EFD_CLOEXEC), .milliseconds = milliseconds};
    if (shares) crowd.set = set_with(crowd.end);
    sem_init(&crowd.waited, 0, 0);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 << 10);
    int started = 0;
    while (started < count && pthread_create(&threads[started], &small, join_crowd, &crowd) == 0) started++;
    for (int i = 0; i < started; i++)
        while (sem_wait(&crowd.waited) != 0) {}
    for (int i = 0; i < milliseconds; i++) nap();
    uint64_t one = 1;
    bool ends = write(crowd.end, &one, sizeof one) == sizeof one;
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    pthread_attr_destroy(&small);
    if (shares) close(crowd.set);
    close(crowd.end);
    free(threads);
    return ends && started == count;
}
