#include "internal.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

uint64_t stackcap_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

pid_t stackcap_own_thread(void) {
    return (pid_t)syscall(SYS_gettid);
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
    *low = (uintptr_t)start;
    *high = (uintptr_t)start + size;
    return error;
}
