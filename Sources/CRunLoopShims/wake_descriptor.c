#define _GNU_SOURCE
#include "CRunLoopShims.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int run_loop_make_wake_descriptor(uint32_t mark) { return eventfd(mark, EFD_CLOEXEC | EFD_NONBLOCK); }

int run_loop_add_wake_descriptor(int epoll_fd, int wake_fd) {
    // No events are requested: a new wake descriptor has nothing to report.
    struct epoll_event event = {.events = EPOLLET, .data = {.u64 = RUN_LOOP_WAKE_TOKEN}};
    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, wake_fd, &event) == 0 ? 0 : errno;
}

int run_loop_signal_wake_descriptor(int epoll_fd, int wake_fd) {
    int saved = errno;
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data = {.u64 = RUN_LOOP_WAKE_TOKEN}};
    int failure = epoll_ctl(epoll_fd, EPOLL_CTL_MOD, wake_fd, &event) == 0 ? 0 : errno;
    errno = saved;
    return failure;
}

uint64_t run_loop_eventfd_field(int fd, const char *field, uint64_t unknown) {
    char path[48], text[256];
    snprintf(path, sizeof path, "/proc/thread-self/fdinfo/%d", fd);
    int info = open(path, O_RDONLY | O_CLOEXEC);
    if (info < 0) { return unknown; }
    ssize_t length = read(info, text, sizeof text - 1);
    close(info);
    text[length > 0 ? length : 0] = '\0';
    const char *found = strstr(text, field);
    return found != NULL ? strtoull(found + strlen(field), NULL, 16) : 0;
}

bool run_loop_is_wake_descriptor(int fd, uint32_t mark) {
    // Any other error comes from a sandbox, and says nothing about the descriptor.
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) { return false; }
    return run_loop_eventfd_field(fd, "eventfd-count:", mark) == mark;
}

struct run_loop_file run_loop_identify(int fd) {
    struct stat status;
    int saved = errno;
    struct run_loop_file file = {0};
    if (fstat(fd, &status) == 0) { file = (struct run_loop_file){.device = status.st_dev, .inode = status.st_ino}; }
    errno = saved;
    return file;
}

static void do_nothing(int signal) { (void)signal; }

void run_loop_interrupt(int32_t tid) {
    int saved = errno;
    struct sigaction action;
    // An ignored signal ends no wait. A handler of the program may be called: handlers of SIGURG must expect it without a
    // cause.
    if (sigaction(SIGURG, NULL, &action) == 0 && (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN)) {
        action = (struct sigaction){.sa_handler = do_nothing, .sa_flags = SA_RESTART};
        sigaction(SIGURG, &action, NULL);
    }
    syscall(SYS_tgkill, getpid(), tid, SIGURG);
    errno = saved;
}
