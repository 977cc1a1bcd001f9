#define _GNU_SOURCE
#include "CStallCorpus.h"

#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

void corpus_name_thread(const char *name) {
    (void)pthread_setname_np(pthread_self(), name);
}

int corpus_bind_thread(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return sched_setaffinity(0, sizeof set, &set);
}

int corpus_lock_until(pthread_mutex_t *mutex, uint64_t nanoseconds) {
    struct timespec moment = {(time_t)(nanoseconds / 1000000000), (long)(nanoseconds % 1000000000)};
    return pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &moment);
}

int corpus_pipe(int *ends) {
    return pipe2(ends, O_CLOEXEC);
}

// nftw(3) passes no context to its callback.
static __thread int (*current_visit)(void);

static int visit(const char *path, const struct stat *status, int type, struct FTW *place) {
    (void)path, (void)status, (void)type, (void)place;
    return current_visit();
}

int corpus_walk_files(const char *directory, int (*visit_file)(void)) {
    current_visit = visit_file;
    int result = nftw(directory, visit, 4, FTW_PHYS);
    current_visit = 0;
    return result;
}

int corpus_wait_for_events(int milliseconds) {
    struct epoll_event event;
    int set = epoll_create1(EPOLL_CLOEXEC);
    int count = epoll_wait(set, &event, 1, milliseconds);
    close(set);
    return count;
}

pid_t corpus_fork(void) {
    return fork();
}
