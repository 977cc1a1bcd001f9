/// Functions that wait or spin at a known depth. waits.c is compiled in several ways; captures are compared with the known callers.
#pragma once

#include <stdint.h>

enum { DEPTH = 5 };

/// One way to wait. `wait` may be called by address; `call_by_name` is its caller by name.
struct wait {
    const char *name;
    void (*wait)(void);
    void (*call_by_name)(void);
};

extern const struct wait waits[];
extern const int wait_count;

/// Spin in a function that calls nothing, and in one that calls, until `waits_over` is set.
extern const struct wait spins[2];
extern volatile int waits_over;
/// Called by the second one.
int waits_are_over(void);
/// Incremented by both.
extern volatile uint64_t waits_spins;

/// Opens the descriptors that the waits need. Not from the thread that will wait.
void waits_prepare(void);

/// Calls `wait` by address, `depth` calls further down.
void descend(int depth, void (*wait)(void));
