#pragma once

// Finds every epoll and poll loop of the program. It defines epoll_wait, epoll_pwait, epoll_pwait2, poll, ppoll, select and pselect, which the
// program and its libraries then call instead of the C library's functions. Each calls the C library's function, so errno, EINTR and
// cancellation stay the same. Before and after the waits in which a loop rests, it publishes the loop's heartbeat. It also defines
// CFRunLoopRunSpecific, in which Foundation runs its loops, to publish when a run has ended.
//
//     a thread waits ──it returns to the same wait──> FOUND: it has a loop ──the registrar──> KNOWN: its waits are published ──it ends──> free
//
// The rule by which a wait belongs to a loop: see `rule.c`. Functions that are async-signal-safe also do not allocate and take no lock.

#include <stdbool.h>
#include <stdint.h>

#include "queue_hooks.h"
#include "task_hooks.h"

#pragma clang assume_nonnull begin

/// How many threads with a loop can be known at a time.
#define LOOP_HOOKS_CAPACITY 1024

/// How many of the descriptors that a loop polls are known.
#define LOOP_HOOKS_POLLED 64

/// The functions that publish a heartbeat, called on its loop's thread. `rest`, `leave` and `turn` are called in the wait functions, so they must be
/// async-signal-safe. `end` is called when the thread or its loop ends, and takes the ownership of the heartbeat.
typedef struct loop_hooks_publisher {
    void (*rest)(void *heartbeat);   ///< Before a wait that may sleep, and after a run of Foundation's loop.
    void (*leave)(void *heartbeat);  ///< After it.
    void (*turn)(void *heartbeat);   ///< After a call with a timeout of 0, and before a run of Foundation's loop.
    void (*end)(void *heartbeat);
} loop_hooks_publisher;

/// A thread with a loop.
typedef struct loop_hooks_found {
    uint32_t number;       ///< The number of its slot.
    int32_t thread;        ///< The kernel's id (gettid(2)).
    uintptr_t stack_low;   ///< The bounds of its stack; both 0 if they are not known.
    uintptr_t stack_high;
} loop_hooks_found;

/// Whether the program's calls reach these functions. False if this library was loaded with dlopen(3), or something else in the program defines
/// them. Any thread.
bool loop_hooks_are_called(void);

/// Waits until a loop is found, a loop's epoll set has changed, a doubt about one has ended, or `loop_hooks_wake` is called. For the registrar: one thread at a time.
void loop_hooks_wait(void);
/// Ends the present wait, or the next one at once. Any thread; async-signal-safe.
void loop_hooks_wake(void);

/// The next thread that was found and has no heartbeat yet, from slot `*cursor` on; advances the cursor. False if there is none. Until
/// `loop_hooks_bind` is called, which must be soon, the thread's end waits. For the registrar.
bool loop_hooks_next(uint32_t *cursor, loop_hooks_found *found);
/// Lets the found thread publish by `publisher`, which must stay valid, from its next wait on. Takes the ownership of the heartbeat. For the
/// registrar.
void loop_hooks_bind(uint32_t number, const loop_hooks_publisher *publisher, void *heartbeat);

/// The epoll set for which the loop of a slot's thread waits; -1 for a poll, and while that is in doubt. After the thread's end the slot may belong
/// to another thread. Any thread.
int loop_hooks_set(uint32_t number);
/// Called when a loop has arrived at this set. If several slots have its number, it is in doubt from now on which of their threads still use the
/// set: some may have closed theirs before this one got the number. A thread's next wait for its set ends the doubt about it. For the registrar.
void loop_hooks_doubt(int set);
/// Whether it is in doubt whether a slot's thread still uses its loop's set. Any thread.
bool loop_hooks_is_in_doubt(uint32_t number);
/// Whether a slot's thread and another one use the same epoll set, as far as there is no doubt. Any thread.
bool loop_hooks_shares_set(uint32_t number);
/// The descriptors that a slot's loop polls: writes up to LOOP_HOOKS_POLLED of them, and returns how many. They are those of its latest wait, or of
/// one of the 64 waits before it. 0 for a loop that waits for an epoll set. Any thread.
uint32_t loop_hooks_polled(uint32_t number, int *descriptors);
/// How many threads had a loop and found no free slot. Any thread.
uint32_t loop_hooks_overflow(void);

#pragma clang assume_nonnull end
