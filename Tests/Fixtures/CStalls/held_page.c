/// A thread whose stack has a page that nobody can read before it is released: userfaultfd(2).
#include "CStalls.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/// A multiple of the size of a page on all machines.
enum { HELD_BYTES = 64 * 1024, STACK_BYTES = 256 * 1024 };

struct stall_held {
    pthread_t handle;
    _Atomic pid_t thread;
    atomic_bool is_over;
    char *memory;
    atomic_int faults;  ///< While it is open, whoever reads the page waits. Negative afterwards.
};

static bool hold(stall_held *held) {
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register page = {
        .range = {(uintptr_t)held->memory + STACK_BYTES, HELD_BYTES},
        .mode = UFFDIO_REGISTER_MODE_MISSING,
    };
    return held->memory != MAP_FAILED && held->faults >= 0 && ioctl(held->faults, UFFDIO_API, &api) == 0 &&
           ioctl(held->faults, UFFDIO_REGISTER, &page) == 0;
}

static void *compute(void *argument) {
    stall_held *held = argument;
    // A thread of the task pool, which may have started it, blocks most signals.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_UNBLOCK, &all, NULL);
    atomic_store(&held->thread, (pid_t)syscall(SYS_gettid));
    while (!atomic_load_explicit(&held->is_over, memory_order_relaxed))
        continue;
    return NULL;
}

static bool start(stall_held *held) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, held->memory, STACK_BYTES);
    bool is_started = pthread_create(&held->handle, &attributes, compute, held) == 0;
    pthread_attr_destroy(&attributes);
    while (is_started && atomic_load(&held->thread) == 0)
        sched_yield();
    return is_started;
}

static void discard(stall_held *held) {
    if (held->memory != MAP_FAILED)
        munmap(held->memory, STACK_BYTES + HELD_BYTES);
    free(held);
}

stall_held *stall_hold_page(void) {
    stall_held *held = calloc(1, sizeof *held);
    if (!held)
        abort();
    held->memory = mmap(NULL, STACK_BYTES + HELD_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    atomic_init(&held->faults, (int)syscall(SYS_userfaultfd, O_CLOEXEC));
    if (hold(held) && start(held))
        return held;
    stall_release_page(held);
    discard(held);
    return NULL;
}

pid_t stall_held_thread(const stall_held *held) {
    return atomic_load(&held->thread);
}

uint64_t stall_held_low(const stall_held *held) {
    return (uintptr_t)held->memory;
}

uint64_t stall_held_high(const stall_held *held) {
    return (uintptr_t)held->memory + STACK_BYTES + HELD_BYTES;
}

void stall_release_page(stall_held *held) {
    int faults = atomic_exchange(&held->faults, -1);
    if (faults >= 0)
        close(faults);
}

void stall_held_finish(stall_held *held) {
    atomic_store(&held->is_over, true);
    stall_release_page(held);
    pthread_join(held->handle, NULL);
    discard(held);
}
