#include "peers.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

static uint64_t read_clock(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

struct peer_time peer_now(void) {
    return (struct peer_time){.wall_ns = read_clock(CLOCK_MONOTONIC), .cpu_ns = read_clock(CLOCK_PROCESS_CPUTIME_ID)};
}

struct peer_time peer_between(struct peer_time start, struct peer_time end) {
    return (struct peer_time){.wall_ns = end.wall_ns - start.wall_ns, .cpu_ns = end.cpu_ns - start.cpu_ns};
}

struct peer_time peer_since(struct peer_time start) { return peer_between(start, peer_now()); }

struct peer_time peer_sum(struct peer_time one, struct peer_time other) {
    return (struct peer_time){.wall_ns = one.wall_ns + other.wall_ns, .cpu_ns = one.cpu_ns + other.cpu_ns};
}

void peer_require(_Bool condition, const char *what) {
    if (condition) { return; }
    fprintf(stderr, "benchmark: %s: %s\n", what, strerror(errno));
    exit(1);
}

int *peer_make_eventfds(uint64_t count) {
    int *fds = malloc(count * sizeof *fds);
    peer_require(fds != NULL, "malloc");
    for (uint64_t i = 0; i < count; i++) {
        fds[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        peer_require(fds[i] >= 0, "eventfd");
    }
    return fds;
}

void peer_close_eventfds(int *fds, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) { close(fds[i]); }
    free(fds);
}

void peer_post(int fd) {
    uint64_t one = 1;
    peer_require(write(fd, &one, sizeof one) == sizeof one, "write");
}

_Bool peer_take(int fd) {
    uint64_t value;
    return read(fd, &value, sizeof value) == sizeof value;
}

// xorshift64: the sequence must be the same for all peers.
static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

void peer_random_delays(uint64_t *delays_ms, uint64_t count) {
    uint64_t state = 88172645463325252u;
    for (uint64_t i = 0; i < count; i++) { delays_ms[i] = 1 + next_random(&state) % 200; }
}

void peer_sleep_until_due(void) { usleep(210000); }

// MARK: - Four producers

enum { PRODUCERS = 4 };

struct peer_producers {
    pthread_t threads[PRODUCERS];
    pthread_barrier_t start;
    uint64_t each;
    void (*enqueue)(void *);
    void *context;
};

static void *produce(void *argument) {
    struct peer_producers *producers = argument;
    pthread_barrier_wait(&producers->start);
    for (uint64_t i = 0; i < producers->each; i++) { producers->enqueue(producers->context); }
    return NULL;
}

struct peer_producers *peer_start_producers(uint64_t count, void (*enqueue)(void *), void *context) {
    struct peer_producers *producers = malloc(sizeof *producers);
    peer_require(producers != NULL, "malloc");
    producers->each = count / PRODUCERS;
    producers->enqueue = enqueue;
    producers->context = context;
    pthread_barrier_init(&producers->start, NULL, PRODUCERS + 1);
    for (int i = 0; i < PRODUCERS; i++) {
        peer_require(pthread_create(&producers->threads[i], NULL, produce, producers) == 0, "pthread_create");
    }
    return producers;
}

void peer_release_producers(struct peer_producers *producers) { pthread_barrier_wait(&producers->start); }

void peer_join_producers(struct peer_producers *producers) {
    for (int i = 0; i < PRODUCERS; i++) { pthread_join(producers->threads[i], NULL); }
    pthread_barrier_destroy(&producers->start);
    free(producers);
}

// MARK: - A thread

struct call {
    void (*body)(void *);
    void *context;
};

static void *make_call(void *argument) {
    struct call *call = argument;
    call->body(call->context);
    return NULL;
}

void peer_run_on_thread(void (*body)(void *), void *context) {
    struct call call = {.body = body, .context = context};
    pthread_t thread;
    peer_require(pthread_create(&thread, NULL, make_call, &call) == 0, "pthread_create");
    pthread_join(thread, NULL);
}

// MARK: - Cores

static cpu_set_t all_cores;

__attribute__((constructor)) static void note_cores(void) { sched_getaffinity(0, sizeof all_cores, &all_cores); }

// Sets it for every thread: the pools of libdispatch and NIO live longer than one round.
static void set_affinity(const cpu_set_t *cores) {
    DIR *tasks = opendir("/proc/self/task");
    peer_require(tasks != NULL, "/proc/self/task");
    for (struct dirent *entry = readdir(tasks); entry != NULL; entry = readdir(tasks)) {
        int tid = atoi(entry->d_name);
        // A thread that has ended in the meantime is skipped.
        if (tid > 0) { sched_setaffinity(tid, sizeof *cores, cores); }
    }
    closedir(tasks);
}

void peer_pin(void) {
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int core = CPU_SETSIZE - 1; core >= 0; core--) {
        // The last core: interrupts prefer the first.
        if (CPU_ISSET(core, &all_cores)) {
            CPU_SET(core, &one);
            break;
        }
    }
    set_affinity(&one);
}

void peer_unpin(void) { set_affinity(&all_cores); }
