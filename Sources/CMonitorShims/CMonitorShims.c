#define _GNU_SOURCE
#include "CMonitorShims.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct timespec timespec_from(uint64_t ns) {
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
}

sem_t *monitor_semaphore_create(void) {
    sem_t *semaphore = malloc(sizeof *semaphore);
    if (semaphore) sem_init(semaphore, 0, 0);
    return semaphore;
}

void monitor_semaphore_destroy(sem_t *semaphore) {
    sem_destroy(semaphore);
    free(semaphore);
}

void monitor_semaphore_wait(sem_t *semaphore) {
    while (sem_wait(semaphore) != 0 && errno == EINTR) {}
}

bool monitor_semaphore_wait_until(sem_t *semaphore, uint64_t deadline_ns) {
    struct timespec deadline = timespec_from(deadline_ns);
    int result;
    do result = sem_clockwait(semaphore, CLOCK_MONOTONIC, &deadline);
    while (result != 0 && errno == EINTR);
    return result == 0;
}

struct start {
    void (*body)(void *context);
    void *context;
    char name[16];
};

static void *run(void *argument) {
    struct start start = *(struct start *)argument;
    free(argument);
    pthread_setname_np(pthread_self(), start.name);
    start.body(start.context);
    return NULL;
}

// The default is the process's stack limit. With a limit of 64 KiB the stack is large enough for C, but not for the Swift
// runtime: its first lookup of a generic type needs more, and an overflow would end the process.
enum { LEAST_STACK = 1024 * 1024 };

static int give_room(pthread_attr_t *attributes) {
    size_t size;
    int error = pthread_attr_init(attributes);
    if (error == 0 && pthread_attr_getstacksize(attributes, &size) == 0 && size < LEAST_STACK) {
        pthread_attr_setstacksize(attributes, LEAST_STACK);
    }
    return error;
}

int monitor_thread_start(pthread_t *thread, const char *name, void (*body)(void *), void *context) {
    struct start *start = malloc(sizeof *start);
    if (!start) return ENOMEM;
    *start = (struct start){.body = body, .context = context};
    strncpy(start->name, name, sizeof start->name - 1);
    pthread_attr_t attributes;
    int error = give_room(&attributes);
    if (error) {
        free(start);
        return error;
    }
    // The signal mask is inherited. Set it here, so that there is no moment in which the new thread can receive a signal.
    sigset_t mask, before;
    sigfillset(&mask);
    // Signals that a thread raises by its own faults stay unblocked: a trap
    // in the host's event handler must reach the host's crash handler.
    static const int own[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&mask, own[i]);
    pthread_sigmask(SIG_SETMASK, &mask, &before);
    error = pthread_create(thread, &attributes, run, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (error) free(start);
    return error;
}

int monitor_thread_join(pthread_t thread, uint64_t deadline_ns) {
    struct timespec deadline = timespec_from(deadline_ns);
    return pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, &deadline);
}

static _Atomic uint32_t generation;

// Runs on the child's only thread, before fork() returns there.
static void note_fork(void) { atomic_fetch_add_explicit(&generation, 1, memory_order_relaxed); }

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, note_fork); }

uint32_t monitor_fork_generation(void) { return atomic_load_explicit(&generation, memory_order_relaxed); }
