#define _GNU_SOURCE
#include "CRunLoopShims.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

// libdispatch's interface for CFRunLoop: exported and used by Foundation, but in no public header.
extern int _dispatch_get_main_queue_handle_4CF(void);
extern void _dispatch_main_queue_callback_4CF(void *_Nullable message);

// RunLoopKit: runs the main loop forever.
extern void event_run_loop_run_main(void);

// The concurrency runtime calls the hook instead of its own drain when an async main has suspended for the first time. Its
// own drain is dispatch_main(), which ends the main thread (R60).
typedef __attribute__((swiftcall)) void (*drain_function)(void);
typedef __attribute__((swiftcall)) void (*drain_hook)(drain_function, drain_function);
extern drain_hook _Nullable swift_task_asyncMainDrainQueue_hook;

static __attribute__((swiftcall)) void drain_by_main_loop(drain_function original, drain_function compatible) {
    (void)original;
    (void)compatible;
    event_run_loop_run_main();
}

// This object is linked whenever RunLoopKit is, because RunLoopKit calls its other functions. A hook set earlier wins.
__attribute__((constructor)) static void install_drain_hook(void) {
    if (swift_task_asyncMainDrainQueue_hook == NULL) { swift_task_asyncMainDrainQueue_hook = drain_by_main_loop; }
}

// Written by the main thread: the generation in which libdispatch made its eventfd, plus one (0 before that), the eventfd, and
// the kernel's id of it.
static _Atomic uint32_t generation_of_eventfd;
static int main_eventfd = -1;
static uint64_t main_eventfd_id;

bool run_loop_main_queue_survived_fork(void) {
    uint32_t made = atomic_load_explicit(&generation_of_eventfd, memory_order_relaxed);
    return made == 0 || made == run_loop_generation() + 1;
}

static uint64_t identify_eventfd(void) { return run_loop_eventfd_field(main_eventfd, "eventfd-id:", UINT64_MAX); }

static bool take_over(void) {
    int probe = eventfd(0, EFD_CLOEXEC);
    if (probe < 0) { return false; }
    close(probe);
    main_eventfd = _dispatch_get_main_queue_handle_4CF();
    main_eventfd_id = identify_eventfd();
    atomic_store_explicit(&generation_of_eventfd, run_loop_generation() + 1, memory_order_relaxed);
    return true;
}

// Reopens an eventfd under libdispatch's number after that was closed. It is ready, because there may be work that could not be
// reported. Not with dup2: if another thread takes the number in the meantime, its file must stay.
static bool reopen(void) {
    int fresh = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fresh < 0) { return false; }
    if (fresh != main_eventfd) {
        int again = fcntl(fresh, F_DUPFD_CLOEXEC, main_eventfd);
        close(fresh);
        if (again >= 0 && again != main_eventfd) { close(again); }
        if (again != main_eventfd) { return false; }
    }
    main_eventfd_id = identify_eventfd();
    return true;
}

int run_loop_main_queue_eventfd(void) {
    if (atomic_load_explicit(&generation_of_eventfd, memory_order_relaxed) == 0) {
        return take_over() ? main_eventfd : -1;
    }
    // Any other error comes from a sandbox, and says nothing about the descriptor.
    if (fcntl(main_eventfd, F_GETFD) < 0 && errno == EBADF) { return reopen() ? main_eventfd : -1; }
    uint64_t id = identify_eventfd();
    // Zero: a kernel that gives eventfds no ids. The greatest: the id could not be read.
    if (id == main_eventfd_id || id == UINT64_MAX || main_eventfd_id == UINT64_MAX) { return main_eventfd; }
    errno = EBADF;
    return -1;
}

bool run_loop_main_queue_take(void) {
    uint64_t count;
    return read(main_eventfd, &count, sizeof count) > 0;
}

__attribute__((noinline)) void event_run_loop_is_servicing_the_main_dispatch_queue(void) {
    _dispatch_main_queue_callback_4CF(NULL);
    __asm__ volatile("" ::: "memory");  // no tail call: the frame stays on the stack
}
