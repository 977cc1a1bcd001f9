#pragma once

// The cost of a wait that returns immediately: as the program calls it, which
// goes through the hooks if they are linked, and as the C library implements it.

#include <stdbool.h>

#pragma clang assume_nonnull begin

typedef enum wait_call {
    WAIT_LOOK,      ///< epoll_wait(…, 0) on a set in which nothing is ready.
    WAIT_TURN,      ///< The same on a set in which something is ready.
    WAIT_READY,     ///< epoll_wait(…, -1) on that set.
    WAIT_DISPATCH,  ///< dispatch_async_f onto a separate queue, drained after every hundred calls.
} wait_call;

/// The wall time for one of `count` calls, in nanoseconds. If `plain`, of the C library's or libdispatch's own function.
double wait_cost(wait_call call, bool plain, int count);
/// Binds the calling thread to one processor.
void wait_confine(int processor);

#pragma clang assume_nonnull end
