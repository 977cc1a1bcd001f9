#define _GNU_SOURCE
#include "CMonitorShims.h"

#include "CRunLoopShims.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
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

int monitor_thread_start(const char *name, void (*body)(void *), void *context) {
    sigset_t mask;
    sigfillset(&mask);
    // Signals that a thread raises by its own faults stay unblocked: a trap
    // in the host's event handler must reach the host's crash handler.
    static const int own[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&mask, own[i]);
    pthread_t thread;
    int error = run_loop_start_thread(&thread, name, &mask, body, context);
    if (error == 0) pthread_detach(thread);
    return error;
}
