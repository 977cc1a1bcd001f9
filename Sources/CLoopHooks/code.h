#pragma once

// The address range of a library's code.

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#pragma clang assume_nonnull begin

/// The executable bytes of a library, from `low` to below `high`. Empty while it is not known.
typedef struct {
    _Atomic(uintptr_t) low, high;
} code_range;

/// Stores the range of the library that contains `address`. Leaves the range unchanged if there is none. Takes the loader's lock.
void code_around(const void *_Nullable address, code_range *range);

/// Whether the range contains an address. False while the range is not stored completely, because `high` is stored last. Async-signal-safe.
static inline bool code_has(const code_range *range, uintptr_t address) {
    return address >= atomic_load_explicit(&range->low, memory_order_relaxed) &&
           address < atomic_load_explicit(&range->high, memory_order_relaxed);
}

#pragma clang assume_nonnull end
