/// Unusual waits in the kernel.
#include "internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/// Uses the stack like a child of vfork that redirects files before it executes a program.
BODY static int scribble(volatile int depth) {
    volatile char frame[512];
    memset((void *)frame, 0x5a, sizeof frame);
    return depth > 0 ? scribble(depth - 1) + frame[depth] : frame[0];
}

BODY void coexist_vfork(coexist_thread *thread) {
    MARK(thread);
    pid_t child = vfork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct timespec rest = {0, 100000};
        for (int i = 0; i < 50000 && !thread->released; i++) {
            scribble(i % 20);
            ready(thread);
            nanosleep(&rest, NULL);
        }
        _exit(0);
    }
    atomic_store(&thread->returned, true);
    require(child > 0 && waitpid(child, NULL, 0) == child);
}

static char path[64];

void coexist_release_spawned(void) {
    int file = open(path, O_WRONLY);
    require(file >= 0);
    close(file);
    unlink(path);
}

BODY void coexist_posix_spawn(coexist_thread *thread) {
    pid_t child;
    posix_spawn_file_actions_t actions;
    char *const arguments[] = {"true", NULL};
    snprintf(path, sizeof path, "/tmp/coexistence-%d", getpid());
    unlink(path);  // of a process with this number that was killed
    require(mkfifo(path, 0600) == 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, path, O_RDONLY, 0);
    MARK(thread);
    ready(thread);
    require(posix_spawn(&child, "/bin/true", &actions, NULL, arguments, arguments + 1) == 0);
    atomic_store(&thread->returned, true);
    waitpid(child, NULL, 0);
}

static int make_ring(struct io_uring_params *parameters) {
    return (int)syscall(SYS_io_uring_setup, 4, parameters);
}

BODY void coexist_uring_wait(coexist_thread *thread) {
    struct io_uring_params parameters;
    memset(&parameters, 0, sizeof parameters);
    int ring = make_ring(&parameters);
    MARK(thread);
    ready(thread);
    if (ring < 0)
        return;
    syscall(SYS_io_uring_enter, ring, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0);
    atomic_store(&thread->returned, true);
}

static pid_t newest_thread(void) {
    DIR *tasks = opendir("/proc/self/task");
    pid_t newest = 0;
    for (struct dirent *entry; tasks && (entry = readdir(tasks));)
        newest = atoi(entry->d_name) > newest ? atoi(entry->d_name) : newest;
    closedir(tasks);
    return newest;
}

pid_t coexist_uring_poller(void) {
    struct io_uring_params parameters;
    memset(&parameters, 0, sizeof parameters);
    parameters.flags = IORING_SETUP_SQPOLL;
    parameters.sq_thread_idle = 50;
    return make_ring(&parameters) < 0 ? 0 : newest_thread();
}
