#include "CDeathHost.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static int log_descriptor = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int write_log_start(const char *path) {
    log_descriptor = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_APPEND, 0600);
    return log_descriptor < 0 ? -1 : 0;
}

static void record(char letter, int descriptor, int64_t offset, const void *bytes, size_t count) {
    if (log_descriptor < 0 || descriptor == log_descriptor) return;
    char head[17];
    uint32_t length = (uint32_t)count;
    head[0] = letter;
    memcpy(head + 1, &descriptor, 4);
    memcpy(head + 5, &offset, 8);
    memcpy(head + 13, &length, 4);
    syscall(SYS_write, log_descriptor, head, sizeof head);
    if (count) syscall(SYS_write, log_descriptor, bytes, count);
}

void write_log_promise(const char *name) {
    pthread_mutex_lock(&lock);
    record('P', 0, 0, name, strlen(name));
    pthread_mutex_unlock(&lock);
}

// The log must be in the order of the calls, so they are serialised.
#define LOCKED(type, call, ...)              \
    if (log_descriptor < 0) return (type)(call); \
    pthread_mutex_lock(&lock);               \
    type result = (type)(call);              \
    if (result >= 0) { __VA_ARGS__; }        \
    pthread_mutex_unlock(&lock);             \
    return result;

#pragma weak open
#pragma weak openat
#pragma weak write
#pragma weak pwrite
#pragma weak fsync
#pragma weak renameat
#pragma weak unlinkat
#pragma weak close

int open(const char *name, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = va_arg(arguments, mode_t);
    va_end(arguments);
    return openat(AT_FDCWD, name, flags, mode);
}

int openat(int directory, const char *name, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = va_arg(arguments, mode_t);
    va_end(arguments);
    LOCKED(int, syscall(SYS_openat, directory, name, flags, mode),
           if (flags & O_CREAT) record('C', result, 0, name, strlen(name));
           else if (flags & O_DIRECTORY) record('D', result, 0, name, strlen(name)))
}

ssize_t write(int descriptor, const void *bytes, size_t count) {
    LOCKED(ssize_t, syscall(SYS_write, descriptor, bytes, count), record('W', descriptor, -1, bytes, (size_t)result))
}

ssize_t pwrite(int descriptor, const void *bytes, size_t count, off_t offset) {
    LOCKED(ssize_t, syscall(SYS_pwrite64, descriptor, bytes, count, offset),
           record('W', descriptor, offset, bytes, (size_t)result))
}

// Without the lock, because a disk is slow. Data written before the call is safe after it.
int fsync(int descriptor) {
    int result = (int)syscall(SYS_fsync, descriptor);
    if (result == 0) {
        pthread_mutex_lock(&lock);
        record('F', descriptor, 0, NULL, 0);
        pthread_mutex_unlock(&lock);
    }
    return result;
}

int renameat(int from, const char *old, int to, const char *name) {
    char names[600];
    int count = snprintf(names, sizeof names, "%s%c%s", old, 0, name);
    LOCKED(int, syscall(SYS_renameat2, from, old, to, name, 0), record('R', to, 0, names, (size_t)count))
}

int unlinkat(int directory, const char *name, int flags) {
    LOCKED(int, syscall(SYS_unlinkat, directory, name, flags), record('U', directory, 0, name, strlen(name)))
}

int close(int descriptor) {
    LOCKED(int, syscall(SYS_close, descriptor), record('X', descriptor, 0, NULL, 0))
}
