#define _GNU_SOURCE
#include "CRunLoopShims.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

// Written before main() by the constructor, read-only afterwards.
static pthread_t main_thread;
static bool main_is_known;

__attribute__((constructor)) static void note_main_thread(void) {
    if (run_loop_current_tid() != run_loop_main_tid()) { return; }  // loaded with dlopen by another thread
    main_thread = pthread_self();
    main_is_known = true;
}

int32_t run_loop_main_tid(void) { return (int32_t)getpid(); }

int32_t run_loop_current_tid(void) { return (int32_t)syscall(SYS_gettid); }

int32_t run_loop_own_tid(void) {
    static _Thread_local struct {
        int32_t tid;
        uint32_t generation;
    } own;
    uint32_t generation = run_loop_generation();
    if (own.tid == 0 || own.generation != generation) {
        own.tid = run_loop_current_tid();
        own.generation = generation;
    }
    return own.tid;
}

bool run_loop_is_main_thread(void) {
    if (main_is_known) { return pthread_equal(pthread_self(), main_thread); }
    return run_loop_current_tid() == run_loop_main_tid();
}

/// Initial-exec: at a fixed distance from the thread pointer, so that the first use does not allocate.
static _Thread_local __attribute__((tls_model("initial-exec"))) uintptr_t height_of_run;

__attribute__((noinline)) uintptr_t run_loop_begin_run(void) {
    uintptr_t outer = height_of_run;
    height_of_run = (uintptr_t)__builtin_frame_address(0);
    return outer;
}

void run_loop_end_run(uintptr_t outer) { height_of_run = outer; }

uintptr_t run_loop_height_of_run(void) { return height_of_run; }

bool run_loop_main_pthread(pthread_t *thread) {
    if (main_is_known) { *thread = main_thread; }
    return main_is_known;
}

int run_loop_stack_bounds(pthread_t thread, uintptr_t *low, uintptr_t *high) {
    pthread_attr_t attributes;
    int error = pthread_getattr_np(thread, &attributes);
    if (error != 0) { return error; }
    void *address = NULL;
    size_t size = 0;
    error = pthread_attr_getstack(&attributes, &address, &size);
    pthread_attr_destroy(&attributes);
    if (error != 0) { return error; }
    // For main, glibc uses RLIMIT_STACK as the size. If that is unlimited, the stack can reach below address 0.
    uintptr_t top = (uintptr_t)address + size;
    *low = (uintptr_t)address <= top ? (uintptr_t)address : 0;
    *high = top;
    return 0;
}

bool run_loop_thread_name(int32_t tid, char name[16]) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", (int)tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) { return false; }
    ssize_t length = read(fd, name, 15);
    close(fd);
    if (length <= 0) { return false; }
    if (name[length - 1] == '\n') { length--; }
    name[length] = '\0';
    return true;
}

// The file that was standard error before main(). No file has the inode 0.
static dev_t error_device;
static ino_t error_inode;

__attribute__((constructor)) static void note_standard_error(void) {
    struct stat status;
    if (fstat(STDERR_FILENO, &status) != 0) { return; }
    error_device = status.st_dev;
    error_inode = status.st_ino;
}

// Whether a file was opened for lines, as far as can be determined. A daemon may have closed its standard error, and the number may
// be that of a database or of a client's connection by now: these are open for reading, too.
static bool is_for_lines(int descriptor) {
    struct stat status;
    if (fstat(descriptor, &status) != 0) { return false; }
    if (status.st_dev == error_device && status.st_ino == error_inode) { return true; }
    int flags = fcntl(descriptor, F_GETFL);
    return S_ISCHR(status.st_mode) || (flags >= 0 && ((flags & O_ACCMODE) == O_WRONLY || (flags & O_APPEND) != 0));
}

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// Waits for a second, however many signals interrupt it.
static int poll_for_a_second(struct pollfd *output) {
    for (int64_t end = now_ms() + 1000;;) {
        int64_t left = end - now_ms();
        int ready = poll(output, 1, left > 0 ? (int)left : 0);
        if (ready >= 0 || errno != EINTR || left <= 0) { return ready; }
    }
}

bool run_loop_takes_lines(int descriptor) {
    int saved = errno;
    struct pollfd output = {.fd = descriptor, .events = POLLOUT};
    bool takes = is_for_lines(descriptor) && poll_for_a_second(&output) > 0 && (output.revents & (POLLERR | POLLHUP)) == 0;
    errno = saved;
    return takes;
}

void run_loop_warn(const char *message) {
    if (!run_loop_takes_lines(STDERR_FILENO)) { return; }
    int saved = errno;
    struct iovec parts[] = {
        {.iov_base = (void *)"RunLoopKit: ", .iov_len = 12},
        {.iov_base = (void *)message, .iov_len = strlen(message)},
        {.iov_base = (void *)"\n", .iov_len = 1},
    };
    ssize_t written = writev(STDERR_FILENO, parts, 3);
    (void)written;
    errno = saved;
}
