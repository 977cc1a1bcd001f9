#pragma once

// The wait functions themselves, each called both as the program resolves it and as the C library defines it.

#include <stdbool.h>
#include <stdint.h>

#pragma clang assume_nonnull begin

/// Makes each wait produce each possible outcome (ready, short, timed out, refused, interrupted,
/// cancelled), both as the program resolves it and as the C library defines it. Compares the
/// result, errno, the written data, and the handlers that ran. Calls `tell` for each difference.
///
/// \param rounds  The number of calls from one place: from the third call on, a wait for an epoll set counts as a loop's wait.
/// \return  the number of comparisons; -1 if both are the same function, or no thread could be started.
int event_compare_waits(int rounds, void (*tell)(const char *difference));

/// Starts a thread with a loop, waits until it rests in its loop's wait, cancels it there, and waits for its end. Returns whether
/// it ended like a cancelled thread, with its clean-up handlers called.
bool event_cancel_loop(const char *name);

/// Makes this number of threads wait for an epoll set, each as often as a loop does, and end this long after all have waited. They share
/// one set, or each has its own. False if a thread could not be started.
bool event_crowd(int count, int milliseconds, bool shares);

/// Whether this thread of the process is asleep in the kernel.
bool event_sleeps(int32_t thread);

#pragma clang assume_nonnull end
