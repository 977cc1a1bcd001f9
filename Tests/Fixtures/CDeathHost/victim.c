#include "CDeathHost.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int victim_fork(void) { return fork(); }

static void *fork_cancelled(void *status) {
    pthread_cancel(pthread_self());
    pid_t child = fork();
    if (child == 0) _exit(42);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    waitpid(child, status, 0);
    return NULL;
}

int victim_fork_cancelled(void) {
    pthread_t thread;
    int status = -1;
    if (pthread_create(&thread, NULL, fork_cancelled, &status) != 0) return -1;
    pthread_join(thread, NULL);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void victim_close_from(int first) { syscall(SYS_close_range, first, ~0U, 0); }
