/// The calling thread: its number, its stack, its CPU time; and the clock of all deadlines.
#include "walk.h"

#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

uint64_t stackcap_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t stackcap_own_time_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

pid_t stackcap_own_thread(void) {
    return (pid_t)syscall(SYS_gettid);
}

/// The C library puts a thread's own variables at the outer end of its stack, and includes them in its size.
static int leave_out_variables(struct dl_phdr_info *info, size_t size, void *context) {
    struct stackcap_range *stack = context;
    if (size < offsetof(struct dl_phdr_info, dlpi_tls_data) + sizeof info->dlpi_tls_data)
        return 0;
    uint64_t variables = (uintptr_t)info->dlpi_tls_data;
    if (variables > stack->low && variables < stack->high)
        stack->high = variables & ~UINT64_C(15);
    return 0;
}

int stackcap_own_stack(uint64_t *low, uint64_t *high) {
    pthread_attr_t attributes;
    int error = pthread_getattr_np(pthread_self(), &attributes);
    if (error)
        return error;
    void *start = NULL;
    size_t size = 0;
    error = pthread_attr_getstack(&attributes, &start, &size);
    pthread_attr_destroy(&attributes);
    struct stackcap_range stack = {(uintptr_t)start, (uintptr_t)start + size};
    dl_iterate_phdr(leave_out_variables, &stack);
    *low = stack.low;
    *high = stack.high;
    return error;
}
