#pragma once

#include <stdbool.h>
#include <stdint.h>

/// Prints READY, makes the call, and prints WHOLE or CUT, its result, its error number, and how many seconds it took.
int block_in(const char *name, double seconds);
void list_calls(void);

/// Prints READY and stays on a function's first instruction: of one with an unwind table, or of code made at run time, without any.
int stand_first(bool is_made);
