#pragma once

#include <stdbool.h>
#include <stdint.h>

/// Prints READY, makes the call, and prints WHOLE or CUT, its result, its error number, and its duration in seconds.
int block_in(const char *name, double seconds);
void list_calls(void);

/// Makes the call. \returns whether it returned as it does undisturbed; false for an unknown name.
bool make_one_call(const char *name, double seconds);

/// Runs an event loop that is controlled by standard input: see loop.c. First computes for the given time.
int turn_loop_after(unsigned long milliseconds);
/// The same, waiting in poll.
int turn_loop_that_polls(void);
int turn_loop_with_timer(void);

/// The same on a second thread, while the first one waits until it is ended.
int turn_loop_beside(void);

/// Prints READY and stays on a function's first instruction: of a function with an unwind table, or of code generated at run time,
/// without a table.
int stand_first(bool is_made);

/// Waits in code generated at run time that is not executable at the moment, as while a just-in-time compiler writes to its page.
/// A line of input makes it executable again; then it continues to wait.
int wait_in_sealed_code(void);
