#pragma once

// Watches Swift's own task pools. The runtime submits each job that is ready to run by libdispatch's dispatch_async_f, to one queue for each
// priority. That function is defined here for the program, so the runtime calls it instead. It calls libdispatch's function, and runs Swift's
// jobs between task_pool_begin and task_pool_end. All other work passes through unchanged.
//
// These are not counted as jobs: jobs of the main actor, and of actors and tasks with their own executors, which run elsewhere; and the wake-up
// at the end of Task.sleep, which submits the sleeping task as an ordinary job.

#include <stdbool.h>
#include <stdint.h>

#pragma clang assume_nonnull begin

/// The number of priorities with a name in Swift. Tasks of other priorities run on other queues, and are not watched.
enum { TASK_HOOKS_PRIORITIES = 5 };

/// Whether the runtime's calls reach these functions. False if the runtime or libdispatch is linked into the program (`-static-stdlib`) without
/// the linker's option `--wrap=dispatch_async_f`, or if this library was loaded with dlopen(3). Any thread.
bool task_hooks_are_called(void);

/// Sets the pool in which the jobs of a priority begin and end. Once for each priority, before the first `task_hooks_arm`.
///
/// \param priority  a `TaskPriority.rawValue`: 9, 17, 21, 25 or 33. Others are ignored.
/// \param pool      a `task_pool`, which must stay valid.
void task_hooks_set_pool(uint8_t priority, void *pool);

/// Sets a function that is called once for each priority, when its first job is submitted while armed, on the submitting thread.
void task_hooks_call_at_use(void (*used)(uint8_t priority));

/// Sets whether jobs submitted from now on are counted. Any thread.
void task_hooks_arm(bool armed);

/// From now on, `begins` is called before each job of the main actor that the main queue runs. Any thread, once.
void task_hooks_call_at_main_jobs(void (*begins)(void));

/// How many jobs a pool runs at once, which libdispatch decides: as many as the machine has processors, but not more than the process was
/// permitted to use when it started. After a second, libdispatch adds workers in place of sleeping ones.
uint32_t task_hooks_width(void);

#pragma clang assume_nonnull end
