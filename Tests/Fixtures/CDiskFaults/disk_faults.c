#include "CDiskFaults.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int errors[6];
static atomic_bool took_half;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;
static bool hangs;
static int hanging;
static char watched[16];
static char last_path[256];
static _Atomic int64_t touches;

void disk_fail(enum disk_call call, int error) {
    took_half = false;
    errors[call] = error;
}

void disk_hang(bool value) {
    pthread_mutex_lock(&lock);
    hangs = value;
    pthread_cond_broadcast(&released);
    pthread_mutex_unlock(&lock);
}

bool disk_hangs(void) {
    pthread_mutex_lock(&lock);
    bool value = hanging > 0;
    pthread_mutex_unlock(&lock);
    return value;
}

void disk_watch(const char *thread) {
    touches = 0;
    snprintf(watched, sizeof watched, "%s", thread);
}

int64_t disk_touches(const char *thread) { return strcmp(thread, watched) == 0 ? touches : -1; }

const char *disk_last_path(void) { return last_path; }

int disk_own_mounts(void) {
    if (unshare(CLONE_NEWNS) != 0) { return errno; }
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 ? 0 : errno;
}

int disk_mount(const char *path, const char *options) {
    return mount("tmpfs", path, "tmpfs", 0, options) == 0 ? 0 : errno;
}

int disk_remount(const char *path, bool read_only) {
    return mount(NULL, path, NULL, MS_REMOUNT | (read_only ? MS_RDONLY : 0), NULL) == 0 ? 0 : errno;
}

static bool is_thread(const char *name) {
    char own[16] = "";
    pthread_getname_np(pthread_self(), own, sizeof own);
    return strcmp(own, name) == 0;
}

static int fail(enum disk_call call) {
    int error = errors[call];
    if (error == 0 || !is_thread(call == disk_record ? "stall-recorder" : "stall-writer")) { return 0; }
    errno = error;
    return error;
}

static void note(const char *path) {
    if (watched[0] == 0 || !is_thread(watched)) { return; }
    if (strncmp(path, "/proc", 5) == 0 || strncmp(path, "/sys", 4) == 0 || strncmp(path, "/dev", 4) == 0) { return; }
    snprintf(last_path, sizeof last_path, "%s", path);
    touches++;
}

// Replace the C library's functions, for this program and its shared libraries.
// Weak, because other fixtures define functions with the same names.
#pragma weak open
#pragma weak open64
#pragma weak openat
#pragma weak openat64
#pragma weak write
#pragma weak pwrite
#pragma weak fsync
#pragma weak renameat
#pragma weak readdir

static int open_at(int directory, const char *path, int flags, mode_t mode) {
    note(path);
    if ((flags & O_CREAT) && fail(disk_create)) { return -1; }
    return (int)syscall(SYS_openat, directory, path, flags, mode);
}

#define OPEN_FUNCTION(NAME, PARAMETERS, DIRECTORY)                                                                     \
    int NAME PARAMETERS {                                                                                              \
        va_list arguments;                                                                                             \
        va_start(arguments, flags);                                                                                    \
        mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(arguments, mode_t) : 0;                                 \
        va_end(arguments);                                                                                             \
        return open_at(DIRECTORY, path, flags, mode);                                                                  \
    }

OPEN_FUNCTION(open, (const char *path, int flags, ...), AT_FDCWD)
OPEN_FUNCTION(open64, (const char *path, int flags, ...), AT_FDCWD)
OPEN_FUNCTION(openat, (int directory, const char *path, int flags, ...), directory)
OPEN_FUNCTION(openat64, (int directory, const char *path, int flags, ...), directory)

ssize_t write(int file, const void *bytes, size_t count) {
    note("write");
    if (errors[disk_write] != 0 && is_thread("stall-writer")) {
        if (!took_half && count > 1) {
            took_half = true;
            return syscall(SYS_write, file, bytes, count / 2);
        }
        took_half = false;
        fail(disk_write);
        return -1;
    }
    return syscall(SYS_write, file, bytes, count);
}

ssize_t pwrite(int file, const void *bytes, size_t count, off_t offset) {
    return fail(disk_record) ? -1 : syscall(SYS_pwrite64, file, bytes, count, offset);
}

int fsync(int file) {
    note("fsync");
    if (is_thread("stall-writer")) {
        pthread_mutex_lock(&lock);
        hanging++;
        while (hangs) { pthread_cond_wait(&released, &lock); }
        hanging--;
        pthread_mutex_unlock(&lock);
    }
    return fail(disk_fsync) ? -1 : (int)syscall(SYS_fsync, file);
}

int renameat(int from_directory, const char *from, int to_directory, const char *to) {
    note(to);
    return fail(disk_rename) ? -1 : (int)syscall(SYS_renameat, from_directory, from, to_directory, to);
}

// Of any thread. On 64-bit machines `readdir64` is the same function.
struct dirent *readdir(DIR *stream) {
    int error = errors[disk_list];
    if (error == 0) { return (struct dirent *)readdir64(stream); }
    errno = error;
    return NULL;
}
