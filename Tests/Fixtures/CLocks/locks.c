#include "internal.h"

#include <errno.h>
#include <linux/futex.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MOST_LOCKS = 256 };

struct lock {
    lock_make make;
    pthread_mutex_t mutex;
    pthread_rwlock_t rw;
    sem_t semaphore;
    pthread_cond_t condition;
    FILE *stream;
    int signals;
    _Alignas(8) _Atomic uint32_t words[16];
};

static struct lock locks[MOST_LOCKS];
static atomic_int lock_count;

static void make_mutex(struct lock *lock) {
    static const int types[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_ADAPTIVE_NP};
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    if (lock->make <= LOCK_ADAPTIVE)
        pthread_mutexattr_settype(&attributes, types[lock->make]);
    if (lock->make == LOCK_ROBUST)
        pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    if (lock->make == LOCK_INHERITING)
        pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    if (lock->make == LOCK_SHARED)
        pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&lock->mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

int lock_create(lock_make make) {
    int number = atomic_fetch_add(&lock_count, 1);
    if (number >= MOST_LOCKS)
        abort();
    struct lock *lock = &locks[number];
    lock->make = make;
    make_mutex(lock);
    pthread_rwlock_init(&lock->rw, NULL);
    sem_init(&lock->semaphore, 0, 0);
    pthread_cond_init(&lock->condition, NULL);
    lock->words[0] = 7;
    if (make == LOCK_STREAM)
        lock->stream = fopen("/dev/null", "w");
    return number;
}

static void wait_for_change(struct lock *lock, uint32_t from) {
    while (lock->words[0] == from)
        syscall(SYS_futex, &lock->words[0], FUTEX_WAIT_PRIVATE, from, NULL, NULL, 0);
}

static void wait_for_signal(struct lock *lock) {
    pthread_mutex_lock(&lock->mutex);
    while (lock->signals == 0)
        pthread_cond_wait(&lock->condition, &lock->mutex);
    pthread_mutex_unlock(&lock->mutex);
}

void lock_take(int number) {
    struct lock *lock = &locks[number];
    switch (lock->make) {
    case LOCK_RW: pthread_rwlock_wrlock(&lock->rw); break;
    case LOCK_STREAM: flockfile(lock->stream); break;
    case LOCK_SEMAPHORE:
        while (sem_wait(&lock->semaphore) != 0 && errno == EINTR) {}
        break;
    case LOCK_CONDITION: wait_for_signal(lock); break;
    case LOCK_UNKNOWN: wait_for_change(lock, 7); break;
    case LOCK_DECEIVER: wait_for_change(lock, 2); break;
    default: pthread_mutex_lock(&lock->mutex); break;
    }
}

void lock_take_to_read(int number) {
    pthread_rwlock_rdlock(&locks[number].rw);
}

bool lock_take_within(int number, int64_t milliseconds) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    time.tv_sec += milliseconds / 1000;
    time.tv_nsec += milliseconds % 1000 * 1000000;
    if (time.tv_nsec >= 1000000000) {
        time.tv_sec++;
        time.tv_nsec -= 1000000000;
    }
    return pthread_mutex_clocklock(&locks[number].mutex, CLOCK_MONOTONIC, &time) == 0;
}

static void signal_one(struct lock *lock) {
    pthread_mutex_lock(&lock->mutex);
    lock->signals++;
    pthread_cond_signal(&lock->condition);
    pthread_mutex_unlock(&lock->mutex);
}

void lock_release(int number) {
    struct lock *lock = &locks[number];
    switch (lock->make) {
    case LOCK_RW: pthread_rwlock_unlock(&lock->rw); break;
    case LOCK_STREAM: funlockfile(lock->stream); break;
    case LOCK_SEMAPHORE: sem_post(&lock->semaphore); break;
    case LOCK_CONDITION: signal_one(lock); break;
    case LOCK_UNKNOWN:
    case LOCK_DECEIVER:
        lock->words[0] = 0;
        syscall(SYS_futex, &lock->words[0], FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        break;
    default: pthread_mutex_unlock(&lock->mutex); break;
    }
}

uint64_t lock_address(int number) {
    struct lock *lock = &locks[number];
    switch (lock->make) {
    case LOCK_RW: return (uintptr_t)&lock->rw;
    case LOCK_SEMAPHORE: return (uintptr_t)&lock->semaphore;
    case LOCK_CONDITION: return (uintptr_t)&lock->condition;
    case LOCK_UNKNOWN:
    case LOCK_DECEIVER: return (uintptr_t)&lock->words[0];
    case LOCK_STREAM: return 0;
    default: return (uintptr_t)&lock->mutex;
    }
}

void lock_deceive(int number, pid_t owner) {
    struct lock *lock = &locks[number];
    lock->words[0] = 2;
    lock->words[2] = (uint32_t)owner;
    lock->words[3] = 1;
}
