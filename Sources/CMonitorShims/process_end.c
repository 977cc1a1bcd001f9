#define _GNU_SOURCE
#include "CMonitorShims.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// The state below belongs to the process that set it, and not to its children.
static _Atomic pid_t owner;
static _Atomic(void (*)(int)) exit_body;

static void on_exit_handler(int status, void *context) {
    (void)context;
    void (*body)(int) = atomic_load(&exit_body);
    if (body && atomic_load(&owner) == getpid()) body(status);
}

bool monitor_on_exit(void (*body)(int status)) {
    atomic_store(&owner, getpid());
    // Registered at most once per process: a handler cannot be removed.
    if (atomic_exchange(&exit_body, body)) return true;
    return on_exit(on_exit_handler, NULL) == 0;
}

// Descriptors to be closed in a child of fork(2). A place is changed from −1 to −2 first, then filled, and then published.
#define PLACES 8
static struct place {
    atomic_int descriptor;
    dev_t device;
    ino_t inode;
} places[PLACES] = {[0 ... PLACES - 1] = {.descriptor = -1}};

/// Not by close(2), which is a cancellation point: if the thread that forks was cancelled, the child would end before fork returns.
static void close_in_child(void) {
    for (int i = 0; i < PLACES; i++) {
        int descriptor = atomic_load(&places[i].descriptor);
        struct stat now;
        // The number may refer to another file by now.
        if (descriptor >= 0 && fstat(descriptor, &now) == 0 && now.st_dev == places[i].device && now.st_ino == places[i].inode)
            syscall(SYS_close, descriptor);
        atomic_store(&places[i].descriptor, -1);
    }
}

static void register_child_handler(void) { pthread_atfork(NULL, NULL, close_in_child); }

bool monitor_close_in_child(int descriptor) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_child_handler);
    struct stat now;
    if (fstat(descriptor, &now) != 0) return false;
    for (int i = 0; i < PLACES; i++) {
        int free = -1;
        if (!atomic_compare_exchange_strong(&places[i].descriptor, &free, -2)) continue;
        places[i].device = now.st_dev;
        places[i].inode = now.st_ino;
        atomic_store(&places[i].descriptor, descriptor);
        return true;
    }
    return false;
}

void monitor_forget_in_child(int descriptor) {
    for (int i = 0; i < PLACES; i++) {
        int expected = descriptor;
        if (atomic_compare_exchange_strong(&places[i].descriptor, &expected, -1)) return;
    }
}
