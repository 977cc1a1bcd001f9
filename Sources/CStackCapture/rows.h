/// The position of a walk, and unwind rows that are known already: rows.c.
#pragma once

#include "registers.h"
#include "stack_memory.h"

#include <libunwind.h>

#pragma clang assume_nonnull begin

enum { ROW_SLOTS = 2048 };

/// The effect of the unwind row of one address: the caller's registers, as sums of one register and a constant.
struct stackcap_row {
    uint64_t address;  ///< Where it was looked up; 0 for none.
    uint64_t walk;     ///< The capture for which it is valid. 0 for all: its module cannot be unloaded.
    enum { ROW_SEEN, ROW_USABLE, ROW_UNUSABLE } state;
    int base;                      ///< The register to which all offsets are relative.
    int32_t return_address;        ///< Where it is stored.
    int32_t stack_pointer;         ///< The caller's.
    int32_t saved[KEPT_REGISTERS]; ///< Where these are saved; INT32_MIN for a register that was not changed.
};

/// Direct-mapped.
struct stackcap_rows {
    struct stackcap_row *slots;
    uint64_t walk;
};

/// The position of a walk: in the cursor, in the registers, or in both.
struct stackcap_walk {
    uint64_t address;
    uint64_t stack_pointer;
    uint64_t lookup;  ///< Where the address's row is looked up: one byte before, for a return address.
    unw_cursor_t cursor;
    bool in_cursor;
    struct stackcap_registers registers;
    bool in_registers;
};

/// Whether the address is in the read-only part of a module that came with this program, and so is never unloaded.
bool stackcap_is_lasting(const stackcap_unwinder *unwinder, uint64_t address);

/// Unwinds to the caller by a row that is known already, in a twentieth of the time of libunwind, which looks the row up and
/// decodes it again.
/// \returns false, with nothing changed, if there is no such row, or it leads nowhere: libunwind then does the step.
bool stackcap_row_step(stackcap_unwinder *unwinder, struct stackcap_walk *walk);

/// What has to be recorded before a step of libunwind, so that its row can be learnt from it.
struct stackcap_lesson {
    struct stackcap_row *_Nullable row;  ///< None if there is nothing to learn.
    uint64_t before[KEPT_REGISTERS];     ///< Where the registers were saved.
    uint64_t bases[KEPT_REGISTERS + 1];  ///< Their values; the stack pointer last.
};
void stackcap_row_watch(stackcap_unwinder *unwinder, struct stackcap_walk *walk, struct stackcap_lesson *lesson);
void stackcap_row_learn(stackcap_unwinder *unwinder, struct stackcap_walk *walk, const struct stackcap_lesson *lesson);

#pragma clang assume_nonnull end
