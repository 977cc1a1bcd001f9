#include "CRunLoopShims.h"

// libdispatch's interface for CFRunLoop, exported and in use by Foundation, but in no public header.
extern int _dispatch_get_main_queue_handle_4CF(void);
extern void _dispatch_main_queue_callback_4CF(void *_Nullable message);

// RunLoopKit: runs the main loop for ever.
extern void event_run_loop_run_main(void);

// The concurrency runtime calls the hook in place of its own drain when an async main has suspended for the first time. Its
// own drain is dispatch_main(), which ends the main thread (R60).
typedef __attribute__((swiftcall)) void (*drain_function)(void);
typedef __attribute__((swiftcall)) void (*drain_hook)(drain_function, drain_function);
extern drain_hook _Nullable swift_task_asyncMainDrainQueue_hook;

static __attribute__((swiftcall)) void drain_by_main_loop(drain_function original, drain_function compatible) {
    (void)original;
    (void)compatible;
    event_run_loop_run_main();
}

// This object is linked whenever RunLoopKit is: its other functions are called from there. A hook set earlier wins.
__attribute__((constructor)) static void install_drain_hook(void) {
    if (swift_task_asyncMainDrainQueue_hook == NULL) { swift_task_asyncMainDrainQueue_hook = drain_by_main_loop; }
}

int run_loop_main_queue_eventfd(void) { return _dispatch_get_main_queue_handle_4CF(); }

__attribute__((noinline)) void event_run_loop_is_servicing_the_main_dispatch_queue(void) {
    _dispatch_main_queue_callback_4CF(NULL);
    __asm__ volatile("" ::: "memory");  // no tail call: the frame stays
}
