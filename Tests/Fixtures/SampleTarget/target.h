#pragma once

#include <stdbool.h>
#include <stdint.h>

/// Prints READY, makes the call, and prints WHOLE or CUT, its result, its error number, and how many seconds it took.
int block_in(const char *name, double seconds);
void list_calls(void);

/// Makes the call. \returns whether it came back as it does undisturbed; false for a name that there is not.
bool call_once(const char *name, double seconds);

/// Turns an event loop that obeys standard input: see loop.c. Computes for so long before.
int turn_loop_after(unsigned long milliseconds);

/// Prints READY and stays on a function's first instruction: of one with an unwind table, or of code made at run time, without any.
int stand_first(bool is_made);

/// Waits in code made at run time that cannot be executed any more, as while a just-in-time compiler writes to its page. A line on the input
/// makes it executable again; then it waits on.
int wait_in_sealed_code(void);
