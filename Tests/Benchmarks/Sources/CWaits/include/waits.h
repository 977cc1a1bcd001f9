#pragma once

// What a wait that does not wait costs: as the program calls it, which is by the hooks where they are linked, and as the C library has it.

#include <stdbool.h>

#pragma clang assume_nonnull begin

typedef enum wait_call {
    WAIT_LOOK,      ///< epoll_wait(…, 0) on a set in which nothing is ready.
    WAIT_TURN,      ///< The same on a set in which something is.
    WAIT_READY,     ///< epoll_wait(…, -1) there.
    WAIT_DISPATCH,  ///< dispatch_async_f onto a queue of its own, emptied at each hundredth.
} wait_call;

/// The wall's nanoseconds for one of `count` calls. Of the C library's own, or libdispatch's, if `plain`.
double wait_cost(wait_call call, bool plain, int count);
/// Has the calling thread run on one processor only.
void wait_confine(int processor);

#pragma clang assume_nonnull end
