#define _GNU_SOURCE
#include "CRunLoopShims.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

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

// The default is the process's stack limit. A limit of 64 KiB is enough for C, but not for the Swift runtime: its first lookup
// of a generic type needs more, and an overflow would end the process.
enum { LEAST_STACK = 1024 * 1024 };

static int give_room(pthread_attr_t *attributes) {
    size_t size;
    int error = pthread_attr_init(attributes);
    if (error == 0 && pthread_attr_getstacksize(attributes, &size) == 0 && size < LEAST_STACK) {
        pthread_attr_setstacksize(attributes, LEAST_STACK);
    }
    return error;
}

int run_loop_start_thread(pthread_t *thread, const char *name, const sigset_t *mask, void (*body)(void *), void *context) {
    struct start *start = malloc(sizeof *start);
    if (start == NULL) { return ENOMEM; }
    *start = (struct start){.body = body, .context = context};
    strncpy(start->name, name, sizeof start->name - 1);
    pthread_attr_t attributes;
    int error = give_room(&attributes);
    if (error != 0) {
        free(start);
        return error;
    }
    // The mask is inherited: it is set here, so that there is no moment in which the new thread accepts a signal.
    sigset_t before;
    pthread_sigmask(SIG_SETMASK, mask, &before);
    error = pthread_create(thread, &attributes, run, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (error != 0) { free(start); }
    return error;
}

// The signals that a worker leaves to other threads: all except those that a thread causes itself, those that profilers and stack
// captures send, and the one of run_loop_interrupt. libdispatch makes the same choice for its threads, except for the last.
static void deferred_signals(sigset_t *mask) {
    static const int open[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGPIPE, SIGPROF, SIGSEGV, SIGSYS, SIGTRAP, SIGURG};
    sigfillset(mask);
    for (size_t i = 0; i < sizeof open / sizeof *open; i++) { sigdelset(mask, open[i]); }
}

int run_loop_start_worker(pthread_t *thread, const char *name, void (*body)(void *), void *context) {
    sigset_t deferred, present, mask;
    deferred_signals(&deferred);
    pthread_sigmask(SIG_SETMASK, NULL, &present);
    sigorset(&mask, &present, &deferred);
    // libdispatch's threads, which run tasks, block it. A worker that inherited that could not be woken by run_loop_interrupt.
    sigdelset(&mask, SIGURG);
    return run_loop_start_thread(thread, name, &mask, body, context);
}
