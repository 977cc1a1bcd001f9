/// Shared by the files of the blocking calls.
#pragma once

#include "CTrials.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#pragma clang assume_nonnull begin

// System calls that newer architectures have only in a more general form.
#ifndef SYS_poll
#define SYS_poll SYS_ppoll
#endif
#ifndef SYS_epoll_wait
#define SYS_epoll_wait SYS_epoll_pwait
#endif
#ifndef SYS_pause
#define SYS_pause SYS_ppoll
#endif
#ifndef SYS_vfork
#define SYS_vfork SYS_clone
#endif
#ifndef SYS_inotify_init
#define SYS_inotify_init SYS_inotify_init1
#endif

struct blocking_call {
    const char *name;
    long number, or_number;  ///< As the kernel sees it; 0 for `or_number`: no alternative. −1: a page fault.
    /// Called on the starting thread. \returns 0 or an error number if the call is not available here.
    int (*_Nullable prepare)(trial_block *block);
    /// Called on the thread. Ends with ended(), which prevents a tail call.
    int64_t (*run)(trial_block *block);
    /// Makes an untimed call return. NULL if the call is timed.
    void (*_Nullable release)(trial_block *block);
    void (*_Nullable clean)(trial_block *block);
    int64_t result;
    int error;
};

struct trial_block {
    const struct blocking_call *call;
    uint64_t time_ns;
    pthread_t handle;
    trial_thread thread;
    atomic_bool started, returned;
    uint64_t began_ns, ended_ns, released_ns;
    int64_t result;
    int error;
    // Resources that the call waits with.
    int file[4];
    int queue;
    pid_t child;
    pthread_t other;
    char path[64];
    void *_Nullable memory;
    size_t size;
    pthread_mutex_t mutex;
    pthread_rwlock_t rwlock;
    pthread_cond_t condition;
    sem_t semaphore;
    uint32_t word;
};

extern const struct blocking_call trial_timed_calls[], trial_descriptor_calls[], trial_process_calls[];
extern const size_t trial_timed_call_count, trial_descriptor_call_count, trial_process_call_count;

static inline int64_t ended(trial_block *block, int64_t result) {
    block->error = errno;
    return result;
}

static inline struct timespec in_timespec(uint64_t ns) {
    return (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
}

static inline struct timespec from_now(clockid_t clock, uint64_t ns) {
    struct timespec now;
    clock_gettime(clock, &now);
    return in_timespec((uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec + ns);
}

void trial_require(bool met, const char *what);
#define require(met) trial_require(met, #met)

/// Fills a stream socket pair, file[0] and file[1], until it accepts no more bytes.
void trial_fill(int file);
/// An io_uring in file[0] and memory. \returns 0 or an error number.
int trial_ring_open(trial_block *block);
/// Completes one operation of the ring.
void trial_ring_complete(trial_block *block);
void trial_ring_close(trial_block *block);
/// A listener with a full backlog in file[0], two sockets for it in file[1] and file[2].
int trial_full_listener(trial_block *block);
void trial_close_files(trial_block *block);
void trial_handle_usr2(void);

#pragma clang assume_nonnull end
