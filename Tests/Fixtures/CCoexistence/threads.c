#include "internal.h"

#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void (*const bodies[])(coexist_thread *) = {
    [COEXIST_SPIN] = coexist_spin,
    [COEXIST_SPIN_PINNED] = coexist_spin_pinned,
    [COEXIST_WAIT] = coexist_wait,
    [COEXIST_SLEEP] = coexist_sleep,
    [COEXIST_SPIN_MASKED] = coexist_spin_masked,
    [COEXIST_SPIN_CANCELLED] = coexist_spin_cancelled,
    [COEXIST_TOGGLE_MASK] = coexist_toggle_mask,
    [COEXIST_EXIT_SOON] = coexist_exit_soon,
    [COEXIST_POLL_SIGNAL] = coexist_poll_signal,
    [COEXIST_SPIN_ON_ALTERNATE_STACK] = coexist_spin_on_alternate_stack,
    [COEXIST_WAIT_ON_ALTERNATE_STACK] = coexist_wait_on_alternate_stack,
    [COEXIST_SPIN_NESTED] = coexist_spin_nested,
    [COEXIST_SPIN_DEEP_BELOW_ALTERNATE] = coexist_spin_deep_below_alternate,
    [COEXIST_SPIN_ON_COROUTINE] = coexist_spin_on_coroutine,
    [COEXIST_WAIT_ON_COROUTINE] = coexist_wait_on_coroutine,
    [COEXIST_SWITCH_COROUTINES] = coexist_switch_coroutines,
    [COEXIST_VFORK] = coexist_vfork,
    [COEXIST_POSIX_SPAWN] = coexist_posix_spawn,
    [COEXIST_URING_WAIT] = coexist_uring_wait,
    [COEXIST_SPIN_STRICT] = coexist_spin_strict,
    [COEXIST_SPIN_SANDBOXED] = coexist_spin_sandboxed,
};

BODY static void run_body(coexist_thread *thread) {
    MARK(thread);
    bodies[thread->body](thread);
    STAY(thread);
}

static void *run(void *context) {
    coexist_thread *thread = context;
    pthread_attr_t attributes;
    void *low;
    size_t size;
    require(pthread_getattr_np(pthread_self(), &attributes) == 0);
    pthread_attr_getstack(&attributes, &low, &size);
    pthread_attr_destroy(&attributes);
    thread->low = (uintptr_t)low;
    thread->high = thread->low + size;
    thread->number = (pid_t)syscall(SYS_gettid);
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_UNBLOCK, &all, NULL);
    run_body(thread);
    return NULL;
}

coexist_thread *coexist_start(coexist_body body) {
    coexist_thread *thread = calloc(1, sizeof *thread);
    require(thread != NULL && pipe(thread->pipe) == 0);
    thread->body = body;
    require(pthread_create(&thread->handle, NULL, run, thread) == 0);
    while (!atomic_load(&thread->ready))
        sched_yield();
    return thread;
}

pid_t coexist_thread_number(const coexist_thread *thread) { return thread->number; }
uint64_t coexist_stack_low(const coexist_thread *thread) { return thread->low; }
uint64_t coexist_stack_high(const coexist_thread *thread) { return thread->high; }
size_t coexist_mark_count(const coexist_thread *thread) { return thread->mark_count; }
uint64_t coexist_mark(const coexist_thread *thread, size_t index) { return thread->marks[index]; }
bool coexist_has_returned(const coexist_thread *thread) { return thread->returned; }
uint64_t coexist_rounds(const coexist_thread *thread) { return thread->rounds; }

void coexist_finish(coexist_thread *thread) {
    atomic_store(&thread->released, true);
    if (thread->body == COEXIST_POSIX_SPAWN)
        coexist_release_spawned();
    require(write(thread->pipe[1], "", 1) == 1);
    pthread_join(thread->handle, NULL);
}

BODY void coexist_spin(coexist_thread *thread) {
    MARK(thread);
    ready(thread);
    while (!atomic_load_explicit(&thread->released, memory_order_relaxed))
        STAY(thread);
}

BODY void coexist_spin_pinned(coexist_thread *thread) {
    cpu_set_t allowed, first;
    int processor = 0;
    require(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    while (!CPU_ISSET(processor, &allowed))
        processor++;
    CPU_ZERO(&first);
    CPU_SET(processor, &first);
    sched_setaffinity(0, sizeof first, &first);
    MARK(thread);
    coexist_spin(thread);
    STAY(thread);
}

BODY void coexist_wait(coexist_thread *thread) {
    char byte;
    MARK(thread);
    ready(thread);
    while (read(thread->pipe[0], &byte, 1) != 1)
        pause();  // after the descriptor was closed, COEXIST_WAIT continues here
    atomic_store(&thread->returned, true);
}

BODY void coexist_sleep(coexist_thread *thread) {
    struct timespec hour = {3600, 0};
    MARK(thread);
    ready(thread);
    clock_nanosleep(CLOCK_MONOTONIC, 0, &hour, NULL);
    atomic_store(&thread->returned, true);
    while (true)
        pause();
}

BODY void coexist_spin_masked(coexist_thread *thread) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    MARK(thread);
    coexist_spin(thread);
    STAY(thread);
}

BODY void coexist_spin_cancelled(coexist_thread *thread) {
    require(pthread_cancel(pthread_self()) == 0);
    MARK(thread);
    coexist_spin(thread);
    STAY(thread);
}

BODY void coexist_toggle_mask(coexist_thread *thread) {
    sigset_t all;
    sigfillset(&all);
    MARK(thread);
    ready(thread);
    while (!thread->released) {
        pthread_sigmask(SIG_BLOCK, &all, NULL);
        for (int i = 0; i < 2000; i++)
            STAY(thread);
        pthread_sigmask(SIG_UNBLOCK, &all, NULL);
        for (int i = 0; i < 2000; i++)
            STAY(thread);
    }
}

BODY void coexist_exit_soon(coexist_thread *thread) {
    static atomic_int threads;
    ready(thread);
    for (volatile int i = atomic_fetch_add(&threads, 1) % 97 * 10000; i > 0; i--) {}
}

static _Atomic uint64_t taken;

uint64_t coexist_signals_taken(void) { return taken; }

BODY void coexist_poll_signal(coexist_thread *thread) {
    sigset_t set;
    struct timespec none = {0, 0};
    sigemptyset(&set);
    sigaddset(&set, SIGPROF);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    MARK(thread);
    ready(thread);
    while (!thread->released) {
        for (int i = 0; i < 1000000; i++)
            STAY(thread);
        if (sigtimedwait(&set, NULL, &none) == SIGPROF)
            taken++;
    }
}
