#include "CRunLoopShims.h"

_Atomic uint32_t run_loop_generation_counter;
static pthread_t forking_thread;

// Runs on the child's only thread, before fork() returns.
static void note_fork(void) {
    forking_thread = pthread_self();
    atomic_fetch_add_explicit(&run_loop_generation_counter, 1, memory_order_relaxed);
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, note_fork); }

bool run_loop_survived_fork(pthread_t thread) { return pthread_equal(thread, forking_thread); }
