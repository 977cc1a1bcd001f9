#pragma once

// Every epoll and poll loop of the program this is linked into. It defines epoll_wait, epoll_pwait, epoll_pwait2, poll, ppoll, select and
// pselect, which the program and its libraries then call in the place of the C library's; each calls that one in turn, and so keeps its
// errno, its EINTR and its being a cancellation point. Around the waits in which a loop rests it publishes the loop's heartbeat.
//
//     a thread waits ──twice for the same──> it has a loop: FOUND ──the registrar──> KNOWN: its waits are published ──it ends──> free
//
// The rule by which a wait is a loop's: see `rule.c`. What is said below to be async-signal-safe also allocates nothing and takes no lock.

#include <stdbool.h>
#include <stdint.h>

#include "queue_hooks.h"
#include "task_hooks.h"

#pragma clang assume_nonnull begin

/// How many threads with a loop can be known at a time.
#define LOOP_HOOKS_CAPACITY 1024

/// How a heartbeat is published, on its loop's thread. `rest`, `leave` and `turn` must be async-signal-safe as far as they are called at
/// the loop's own waits; `end` is called as the thread ends, and owns the heartbeat from then on.
typedef struct loop_hooks_publisher {
    void (*rest)(void *heartbeat);   ///< Before a wait that may last.
    void (*leave)(void *heartbeat);  ///< After it.
    void (*turn)(void *heartbeat);   ///< After a look at the descriptors that does not wait.
    void (*end)(void *heartbeat);
} loop_hooks_publisher;

/// A thread that was found to have a loop.
typedef struct loop_hooks_found {
    uint32_t number;       ///< Of its slot.
    int32_t thread;        ///< The kernel's id (gettid(2)).
    uintptr_t stack_low;   ///< Its stack's bounds; both 0 if they cannot be had.
    uintptr_t stack_high;
} loop_hooks_found;

/// Whether the program's calls come here. False where another definition of them goes before this one: this library was loaded with
/// dlopen(3), or something else in the program defines them. Any thread.
bool loop_hooks_are_called(void);

/// Waits until a thread is found to have a loop, one's loop has another epoll set, or `loop_hooks_ring`. For the registrar; there is one at a time.
void loop_hooks_wait(void);
/// Ends that wait, or the next one at once. Any thread; async-signal-safe.
void loop_hooks_ring(void);

/// The next thread that was found and is not known yet, from slot `*cursor` on; moves the cursor on. False if there is none. The thread waits
/// with its end until `loop_hooks_bind` was called, which must be soon. The registrar.
bool loop_hooks_next(uint32_t *cursor, loop_hooks_found *found);
/// Has the found thread publish by `publisher`, which must stay, from its next wait on. Takes the heartbeat over. The registrar.
void loop_hooks_bind(uint32_t number, const loop_hooks_publisher *publisher, void *heartbeat);

/// The epoll set that the loop of a slot's thread waits on; -1 for one that polls. Of a thread that has ended it may be another's. Any thread.
int loop_hooks_set(uint32_t number);
/// How many threads have a loop that waits for this epoll set. Any thread.
uint32_t loop_hooks_count_waiting_for(int set);

/// How many threads had a loop for which there was no slot left. Any thread.
uint32_t loop_hooks_overflow(void);

#pragma clang assume_nonnull end
