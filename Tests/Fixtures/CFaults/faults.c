#include "CFaults.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static atomic_int errors[3];
static atomic_int victim = -1;
static _Atomic int64_t waits;

void faults_inject(enum faults_call call, int error, int fd) {
    if (call == faults_epoll_add) { victim = fd; }
    errors[call] = error;
}

int64_t faults_waits(void) { return waits; }

pid_t faults_fork(void) { return fork(); }

void faults_close_from(int first) { syscall(SYS_close_range, first, ~0U, 0); }

static bool forbid(unsigned int number) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),  // seccomp_data.nr
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

bool faults_forbid_fcntl(void) { return forbid(SYS_fcntl); }

bool faults_forbid_exact_waits(void) { return forbid(SYS_epoll_pwait2); }

int faults_make_ready_descriptor(void) { return eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC); }

size_t faults_allocated(void) { return mallinfo2().uordblks + mallinfo2().hblkhd; }

static int fail(enum faults_call call) {
    int error = errors[call];
    if (error != 0) { errno = error; }
    return error;
}

// Replace the C library's functions, for this program and its shared libraries. Weak, because another fixture defines functions
// with the same names, and the test bundle is linked with both.
#pragma weak eventfd
#pragma weak epoll_create1
#pragma weak epoll_ctl
#pragma weak epoll_wait
#pragma weak epoll_pwait2

int eventfd(unsigned int count, int flags) {
    return fail(faults_eventfd) ? -1 : (int)syscall(SYS_eventfd2, count, flags);
}

int epoll_create1(int flags) { return fail(faults_epoll_create) ? -1 : (int)syscall(SYS_epoll_create1, flags); }

int epoll_ctl(int set, int operation, int fd, struct epoll_event *event) {
    if (operation == EPOLL_CTL_ADD && (victim == -1 || victim == fd) && fail(faults_epoll_add)) { return -1; }
    return (int)syscall(SYS_epoll_ctl, set, operation, fd, event);
}

int epoll_wait(int set, struct epoll_event *events, int capacity, int timeout) {
    int count = (int)syscall(SYS_epoll_pwait, set, events, capacity, timeout, NULL, (size_t)8);
    waits++;
    return count;
}

int epoll_pwait2(int set, struct epoll_event *events, int capacity, const struct timespec *timeout, const sigset_t *mask) {
    int count = (int)syscall(SYS_epoll_pwait2, set, events, capacity, timeout, mask, (size_t)8);
    waits++;
    return count;
}
