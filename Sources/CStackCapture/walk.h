/// The walk from frame to frame: tables.c, row_program.c, accessors.c, walk.c, unwind.c, guess.c, way_out_x86_64.c, and what depends on
/// the processor.
#pragma once

#include "unwinder.h"

#pragma clang assume_nonnull begin

// tables.c

/// Whether the code at the address may have changed since the stack was copied.
bool stackcap_is_distrusted(const stackcap_unwinder *unwinder, uint64_t address);

/// Finds the unwind row for an address, from the tables in memory, and without the loader's lock.
/// \returns 0, or libunwind's error code; lacked_table is set then.
int stackcap_find_procedure(stackcap_unwinder *unwinder, unw_word_t address, unw_proc_info_t *procedure, int needs_info);

/// Where the function around `address` starts, 0 if no unwind table gives it.
uint64_t stackcap_function_start(stackcap_unwinder *unwinder, uint64_t address);

/// Whether an unwind table has a function that starts here, or has none around here and one may start here.
bool stackcap_may_start_function(stackcap_unwinder *unwinder, uint64_t address);

/// The part of a module around the address that belongs to no function of its table: [low, high). \returns false if there is
/// none.
bool stackcap_gap_around(stackcap_unwinder *unwinder, uint64_t address, uint64_t *low, uint64_t *high);

/// Whether the address is in a module.
bool stackcap_in_module(stackcap_unwinder *unwinder, uint64_t address);

// row_program.c

/// Shows libunwind a copy of the program of the row that was just found for it. It refuses the row if the program could harm this
/// process, or cannot be read. The copy is valid until the next row is looked up for it.
void stackcap_row_check(stackcap_unwinder *unwinder, unw_proc_info_t *procedure);

/// Reads a word of that copy. \returns false if the address is not in it.
bool stackcap_row_read(const stackcap_unwinder *unwinder, uint64_t address, uint64_t *word);

// thread.c

/// CPU time of the calling thread instead of elapsed time: a thread that waits for a processor makes no progress.
/// Async-signal-safe.
uint64_t stackcap_own_time_ns(void);

// accessors.c

/// Creates libunwind's address space and makes it initialise itself. Allocates. \returns 0 or an errno.
int stackcap_space_prepare(stackcap_unwinder *unwinder);

/// Reads a word for the unwinder; a value that looks like a frame pointer loses Swift's mark. met_unknown and first_unknown
/// report an address that cannot be known.
bool stackcap_read_word(stackcap_unwinder *unwinder, uint64_t address, uint64_t *value);

/// Counts a read of a word for libunwind, which has no limits of its own. \returns false if it must not read any more.
bool stackcap_may_read(stackcap_unwinder *unwinder);

// walk.c

/// So many frames are kept from each end.
enum { HALF_OF_FRAMES = STACKCAP_MAX_FRAMES / 2 };

/// Unwinds from the registers into the frames. \returns whether the first frame was found.
bool stackcap_unwind_from_registers(stackcap_unwinder *unwinder);

/// \returns a register's value in the walk's current frame; 0 if it is not known.
uint64_t stackcap_walk_register(struct stackcap_walk *walk, int number);

/// Reads the known registers of the walk's current frame.
void stackcap_walk_read_registers(struct stackcap_walk *walk, struct stackcap_registers *registers);

/// \returns the frame with this index, innermost 0; it is another frame if this one was dropped from the ring.
stackcap_frame *stackcap_frame_at(const stackcap_unwinder *unwinder, size_t index);

// unwind.c

/// Unwinds the last copy. See stackcap_unwind.
stackcap_outcome stackcap_unwind_copy(stackcap_unwinder *unwinder, stackcap_unwound *unwound);

// guess.c

/// Unwinds a copy of which only program counter and stack pointer are known. \returns as above.
bool stackcap_unwind_guessing(stackcap_unwinder *unwinder);

// registers_*.c

/// How well the instruction before a return address fits a call of `function`. 0: it is not a call.
enum { CALL_NONE = 0, CALL_ELSEWHERE, CALL_INDIRECT, CALL_MATCHES };
int stackcap_call_before(stackcap_unwinder *unwinder, uint64_t return_address, uint64_t function);

/// Whether a signal handler returns to this address: the next outer frame was interrupted and did not make a call.
bool stackcap_is_signal_return(stackcap_unwinder *unwinder, uint64_t address);
/// Steps the cursor to the caller: by unw_step, or for code without an unwind table by what the code does, or by the frame
/// pointer.
/// \returns as unw_step does; found_behind_gap is set if there was no table.
int stackcap_step(stackcap_unwinder *unwinder, unw_cursor_t *cursor);

/// An address: the current value of a register plus a constant. Register 0 means none: no address is based on that one.
struct stackcap_sum {
    int base;
    int64_t offset;
};

/// How a function without an unwind table returns to its caller.
struct stackcap_way_out {
    struct stackcap_sum return_address;
    struct stackcap_sum saved[KEPT_REGISTERS];  ///< Where the caller's registers are saved; none for those that are unchanged.
    bool is_sure;  ///< The path is the function's own up to a return, as far as can be determined.
};

/// Decodes the function's instructions from the address on. If it is a return address, a call must precede it.
/// \returns false if no path leads to a return.
bool stackcap_find_way_out(stackcap_unwinder *unwinder, uint64_t address, bool is_return, struct stackcap_way_out *way);

enum { STACKCAP_STARTS = 4 };

/// The addresses where functions without an unwind table may start, in the same gap between tables' functions, up to the
/// address: the last STACKCAP_STARTS of them, each at its number % STACKCAP_STARTS. \returns the number of all.
size_t stackcap_find_starts(stackcap_unwinder *unwinder, uint64_t address, uint64_t starts[_Nonnull STACKCAP_STARTS]);

/// Like stackcap_find_way_out, but by the instructions from the function's start to the address: for a function that never
/// returns.
bool stackcap_find_way_in(stackcap_unwinder *unwinder, uint64_t start, uint64_t address, struct stackcap_way_out *way);

/// Finds the return address of the innermost function if it is in an unknown register: a frame record leads to the caller's
/// caller, the call there to the caller, and the calls in the caller to the place. Unwinds from the registers it found. Leaves
/// the registers unchanged if nothing fits.
void stackcap_guess_return_address(stackcap_unwinder *unwinder);

/// The distance of the frame pointer above the stack pointer in a function's body, from the instructions at its start.
/// \returns false for a function that sets up its frame in another way than compilers usually do.
bool stackcap_frame_pointer_distance(stackcap_unwinder *unwinder, uint64_t function, uint64_t *distance);

#pragma clang assume_nonnull end
