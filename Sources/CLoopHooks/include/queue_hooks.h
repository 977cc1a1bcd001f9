#pragma once

// Serial dispatch queues under watch. A queue has no loop and, while nothing is on it, no thread: whether one works is read off its own state,
// where libdispatch keeps who drains it. The functions by which work comes to a queue are defined in the program here, and only ring for
// the watcher while it is parked; each calls libdispatch's in turn, with what it was given.

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#pragma clang assume_nonnull begin

/// How many queues can be watched at a time.
#define QUEUE_HOOKS_CAPACITY 64

/// A queue at one moment.
typedef struct queue_hooks_sight {
    int32_t owner;   ///< The thread that drains it; 0 if none does: it is empty, suspended, or waits for a worker.
    uint64_t items;  ///< Changes when an item comes or goes, but for chance; 0 if none waits.
} queue_hooks_sight;

/// From now on the calling thread's next dispatch_queue_get_qos_class tells which queue it is for: Swift's `DispatchQueue` does not give it away.
void queue_hooks_ask(void);
/// That queue; null if the call did not come here.
void *_Nullable queue_hooks_answer(void);

/// Why a queue can or cannot be watched.
typedef enum queue_hooks_verdict {
    QUEUE_HOOKS_WATCHABLE,
    QUEUE_HOOKS_NOT_SERIAL,  ///< It runs several items at once.
    QUEUE_HOOKS_MAIN,        ///< The main queue, which is the main loop's.
    QUEUE_HOOKS_UNKNOWN,     ///< This libdispatch keeps its queues in another way.
} queue_hooks_verdict;

/// Reads a queue, which must live. Any thread.
queue_hooks_verdict queue_hooks_judge(void *queue);
/// As above.
queue_hooks_sight queue_hooks_look(void *queue);
/// Hands `work` over to the queue, past the hooks. Any thread.
void queue_hooks_hand_over(void *queue, void *context, void (*work)(void *context));

/// Rings for this queue from now on. False if there are too many. The watcher's user; any thread.
bool queue_hooks_add(void *queue);
/// No longer.
void queue_hooks_remove(void *queue);

/// Whether the next work for one of the queues rings. The watcher.
void queue_hooks_park(bool parked);
/// Waits for a ring, or so long: forever if negative. Whether it rang. The watcher.
bool queue_hooks_wait(int64_t nanoseconds);
/// Ends that wait, or the next one at once. Any thread; async-signal-safe.
void queue_hooks_ring(void);

// MARK: For the other hooks

extern _Atomic(bool) queue_hooks_is_parked;
void queue_hooks_note_slowly(void *_Nullable queue);
void queue_hooks_note_events_slowly(uintptr_t place);

/// Work has come to a queue. Async-signal-safe.
static inline void queue_hooks_note(void *_Nullable queue) {
    if (__builtin_expect(atomic_load_explicit(&queue_hooks_is_parked, memory_order_seq_cst), 0)) { queue_hooks_note_slowly(queue); }
}

/// A wait at this place of the code is over: if it is libdispatch's own, a timer's or a source's work may follow. Async-signal-safe.
static inline void queue_hooks_note_events(uintptr_t place) {
    if (__builtin_expect(atomic_load_explicit(&queue_hooks_is_parked, memory_order_relaxed), 0)) { queue_hooks_note_events_slowly(place); }
}

#pragma clang assume_nonnull end
