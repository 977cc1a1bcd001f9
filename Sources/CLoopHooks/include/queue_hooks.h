#pragma once

// Watches serial dispatch queues. A queue has no loop, and no thread while it has no work. Its own state, in libdispatch's memory, contains the
// thread that runs its work. The functions that submit work to queues are defined here for the program. They wake the watcher while it is
// parked, and do nothing else but call libdispatch's function with the same arguments.

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#pragma clang assume_nonnull begin

/// How many queues can be watched at a time.
#define QUEUE_HOOKS_CAPACITY 64

/// A queue at one moment.
typedef struct queue_hooks_state {
    int32_t owner;   ///< The thread that runs its work; 0 if there is none: it is empty, suspended, or waits for a worker thread.
    uint64_t items;  ///< Almost always changes when an item comes or goes; 0 if no item waits.
} queue_hooks_state;

/// Records the argument of the calling thread's next dispatch_queue_get_qos_class: Swift's `DispatchQueue` does not expose libdispatch's object.
void queue_hooks_ask(void);
/// The recorded queue; null if the call did not reach these functions.
void *_Nullable queue_hooks_answer(void);

/// Why a queue can or cannot be watched.
typedef enum queue_hooks_verdict {
    QUEUE_HOOKS_WATCHABLE,
    QUEUE_HOOKS_NOT_SERIAL,  ///< It runs several items at once.
    QUEUE_HOOKS_MAIN,        ///< It is the main queue, which belongs to the main loop.
    QUEUE_HOOKS_UNKNOWN,     ///< This version of libdispatch has another layout.
} queue_hooks_verdict;

/// Whether a queue can be watched. The queue must be alive. Any thread.
queue_hooks_verdict queue_hooks_judge(void *queue);
/// Its present state. The queue must be alive. Any thread.
queue_hooks_state queue_hooks_look(void *queue);
/// Submits `work` to the queue, without the hooks. Any thread.
void queue_hooks_submit(void *queue, void *context, void (*work)(void *context));

/// From now on, work for this queue, or for one that targets it, wakes the watcher. False if too many queues are watched. Any thread.
bool queue_hooks_add(void *queue);
/// Undoes `queue_hooks_add`. Any thread.
void queue_hooks_remove(void *queue);

/// Sets whether the next work for one of the queues wakes the watcher. For the watcher.
void queue_hooks_park(bool parked);
/// Waits for a wake-up, at most for this time; without limit if it is negative. Returns whether it was woken. For the watcher.
bool queue_hooks_wait(int64_t nanoseconds);
/// Ends the present wait, or the next one at once. Any thread; async-signal-safe.
void queue_hooks_wake(void);

// MARK: For the other hooks

/// Whether the watcher is parked: set by `queue_hooks_park`, cleared by whoever wakes it.
extern _Atomic(bool) queue_hooks_is_parked;
/// Wakes the watcher if it is parked: once for each time that it parks.
void queue_hooks_wake_parked(void);
/// Whether the queue, or one that it targets directly or not, is watched.
bool queue_hooks_leads_to_watched(void *_Nullable queue);
/// The part of `queue_hooks_note_events` for a parked watcher. Async-signal-safe.
void queue_hooks_note_events_slowly(uintptr_t place);

/// Whether the watcher has to know that work is submitted to a queue. Called before that, while the queue is certainly alive. True while the watcher
/// is not parked: it may park before the work is submitted. Async-signal-safe.
static inline bool queue_hooks_concerns_watcher(void *_Nullable queue) {
    bool is_parked = atomic_load_explicit(&queue_hooks_is_parked, memory_order_relaxed);
    return __builtin_expect(!is_parked, 1) || queue_hooks_leads_to_watched(queue);
}

/// Called when the work was submitted. Async-signal-safe.
static inline void queue_hooks_note_work(bool concerns_watcher) {
    bool is_parked = atomic_load_explicit(&queue_hooks_is_parked, memory_order_seq_cst);
    if (__builtin_expect(is_parked && concerns_watcher, 0)) { queue_hooks_wake_parked(); }
}

/// Called after a wait at this place in the code. If it is libdispatch's own wait, work of a timer or a source may follow. Async-signal-safe.
static inline void queue_hooks_note_events(uintptr_t place) {
    if (__builtin_expect(atomic_load_explicit(&queue_hooks_is_parked, memory_order_relaxed), 0)) { queue_hooks_note_events_slowly(place); }
}

#pragma clang assume_nonnull end
