#pragma once

// Threads that wait like servers and their clients, in C, like their libraries. All callbacks are called on the loop's thread.

#include <stdbool.h>
#include <stdint.h>

#include "waits.h"

#pragma clang assume_nonnull begin

typedef void (*event_job)(void *_Nullable context);

/// A thread with a loop.
typedef struct event_loop event_loop;

/// The call in which a loop waits.
typedef enum event_wait {
    EVENT_EPOLL,    ///< epoll_wait on an eventfd.
    EVENT_PWAIT2,   ///< epoll_pwait2 with a timeout of an hour.
    EVENT_POLL,     ///< poll on an eventfd and a socket, without a timeout, like GLib.
    EVENT_SELECT,   ///< select on a listening socket and a pipe.
    EVENT_MANY,     ///< poll on eight descriptors, none of them typical of a loop, with a timeout.
    EVENT_ASKING,   ///< Like EVENT_EPOLL, and once a turn in poll, as a client that waits for a server's answer.
    EVENT_TIMED,    ///< poll on an eventfd and a pipe, the fourth time without a timeout, as GLib's loop when it has no timer for once.
    EVENT_HEIGHTS,  ///< poll on an epoll set, each time at another height of the stack, as Foundation's run loop when it is run again and again.
    EVENT_REFUSED,  ///< epoll_wait on no descriptor, which is refused.
    EVENT_POLLING,  ///< epoll_wait that never waits.
} event_wait;

/// Starts a thread with this name and a loop; returns when it waits for the second time.
event_loop *event_loop_start(const char *name, event_wait wait);
/// Starts a loop like EVENT_EPOLL, whose epoll set has the number of another loop's, which this closes. The other loop must be in a job, and end
/// after it.
event_loop *event_loop_start_in_place(const char *name, event_loop *other);
/// The loop that is started before the program's constructors, and has turned a few times, if the program's second argument is
/// `early`; otherwise null.
event_loop *_Nullable event_early_loop(void);
/// Makes the loop call `job`.
void event_loop_run(event_loop *loop, event_job job, void *_Nullable context);
/// Whether a job is still pending.
bool event_loop_has_job(event_loop *loop);
/// The socket that a loop with EVENT_POLL or EVENT_SELECT listens on. It accepts no connection, and does not wait for others once there was one.
int event_loop_listener(event_loop *loop);
/// Connects this number of clients to it. None is closed.
void event_connect(int listener, int count);
/// Ends the loop and its thread, and waits for the thread's end.
void event_loop_end(event_loop *loop);
/// The kernel's id of its thread.
int32_t event_loop_thread(event_loop *loop);

/// On a loop's thread: waits `count` times for `milliseconds` on a separate epoll set, like a library that waits for a child.
void event_nested_loop(int count, int milliseconds);
/// On any thread: sends a request to a peer that answers after `milliseconds`, and waits for the answer in poll.
void event_ask(int milliseconds);
/// On any thread: sends a request to the monitor's health endpoint on this port of 127.0.0.1, and waits for the answer.
void event_probe(int port);

#pragma clang assume_nonnull end
