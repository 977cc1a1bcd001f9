#pragma once

// The waits themselves, each called as the program has it and as the C library has it.

#include <stdbool.h>

#pragma clang assume_nonnull begin

/// Has each wait do what it can come to (ready, short, timed out, refused, interrupted, cancelled), as the program calls it and as the C library
/// defines it, and compares: result, errno, what was written, which handlers ran. Tells of each difference.
///
/// \param rounds  How often each is called from one place: the third time on, a wait for an epoll set is that of a loop.
/// \return  how many were compared; -1 if the two are the same function, or there was no thread to be had.
int event_compare_waits(int rounds, void (*tell)(const char *difference));

/// Starts a thread that has a loop, waits until it rests in its loop's wait, cancels it there, and waits for its end. Returns whether it
/// ended as a cancelled thread does, with its clean-up handlers called.
bool event_cancel_loop(const char *name);

/// Has so many threads wait for one epoll set, each as often as a loop does, and end so long after all have. False if there was no thread to be had.
bool event_crowd(int count, int milliseconds);

#pragma clang assume_nonnull end
