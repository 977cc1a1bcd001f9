#pragma once

// Threads that wait as servers and their clients do, in C, as their libraries do it. All that is handed over is called on the thread.

#include <stdbool.h>
#include <stdint.h>

#include "waits.h"

#pragma clang assume_nonnull begin

typedef void (*event_job)(void *_Nullable context);

/// A thread with a loop.
typedef struct event_loop event_loop;

/// What a loop waits in.
typedef enum event_wait {
    EVENT_EPOLL,    ///< epoll_wait on an eventfd.
    EVENT_PWAIT2,   ///< epoll_pwait2 with a limit of an hour.
    EVENT_POLL,     ///< poll on an eventfd and a socket, without a limit, as GLib.
    EVENT_SELECT,   ///< select on a listening socket and a pipe.
    EVENT_POLLING,  ///< epoll_wait that never waits.
} event_wait;

/// Starts a thread of that name with a loop; returns when it waits for the second time.
event_loop *event_loop_start(const char *name, event_wait wait);
/// Has the loop call `job`.
void event_loop_run(event_loop *loop, event_job job, void *_Nullable context);
/// Whether it has still to take that.
bool event_loop_has_job(event_loop *loop);
/// Ends the loop and its thread, and waits for that.
void event_loop_end(event_loop *loop);
/// Of its thread, the kernel's.
int32_t event_loop_thread(event_loop *loop);

/// On a loop's thread: waits `count` times for `milliseconds` on an epoll set of its own, as a library does that waits for a child.
void event_nested_loop(int count, int milliseconds);
/// On any thread: asks a peer that answers after `milliseconds`, and awaits the answer in poll.
void event_ask(int milliseconds);

#pragma clang assume_nonnull end
