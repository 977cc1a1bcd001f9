#pragma once

// Swift's own task pool. Its runtime hands each job that is ready to run to libdispatch by dispatch_async_f, on a queue for each priority.
// Here that function is defined in the program, which the runtime then calls in its place; it calls libdispatch's in turn, and has a
// job that is Swift's run between task_pool_begin and task_pool_end. All else that is handed over that way passes through untouched.
//
// Not among the jobs: those of the main actor, of actors and tasks with an executor of their own, which run elsewhere, and the wake-up at the
// end of Task.sleep, which hands the task that slept over as a job like any other.

#include <stdbool.h>
#include <stdint.h>

#pragma clang assume_nonnull begin

/// The priorities that Swift has names for. Tasks of other priorities run on queues of their own, and pass through.
enum { TASK_HOOKS_LANES = 5 };

/// Whether the runtime's calls come here. False in a program that has the runtime or libdispatch in it (`-static-stdlib`), and where this
/// library was loaded with dlopen(3). Any thread.
bool task_hooks_are_called(void);

/// Has the jobs of a priority begin and end in `pool`, a `task_pool`, which must stay. Before the first arming, once for each.
///
/// \param priority  as `TaskPriority.rawValue` has it: 9, 17, 21, 25 or 33. Another one is ignored.
void task_hooks_set_pool(uint8_t priority, void *pool);

/// Sets what is called once for each priority, when its first job is handed over while armed, on the thread that does so.
void task_hooks_call_at_use(void (*used)(uint8_t priority));

/// Whether jobs are counted that are handed over from now on. Any thread.
void task_hooks_arm(bool armed);

/// Has `begins` called before each job of the main actor, where the main queue runs it, that is handed over from now on. Any
/// thread, once.
void task_hooks_call_at_main_jobs(void (*begins)(void));

/// How many of its own jobs Swift's pool runs at once, as libdispatch has it: as many as the machine has processors; not more than the
/// process was permitted to use when it began, though it adds workers in the place of some that sleep, after a second.
uint32_t task_hooks_width(void);

#pragma clang assume_nonnull end
