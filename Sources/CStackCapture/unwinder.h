/// A stack that is being unwound: unwinder.c.
#pragma once

#include "async.h"
#include "modules.h"

#pragma clang assume_nonnull begin

/// How often one walk may continue by a search of the stack.
enum { MAX_SCANS = 4 };

/// For the programs of one unwind row. No compiler writes such long ones.
enum { MAX_PROGRAM_BYTES = 256 * 1024 };

/// A sleeping thread: /proc/PID/task, its thread id, and its sampled state.
struct stackcap_sleeper {
    int tasks;  ///< AT_FDCWD for our own process.
    pid_t thread;
    stackcap_look seen;
};

/// A stack that is being unwound: its copy, the memory around it, and the position of the walk. The owner makes the
/// copy.
typedef struct stackcap_unwinder {
    struct stackcap_copy copy;
    struct stackcap_reader reader;
    struct stackcap_page_cache pages;
    struct stackcap_loader loader;  ///< Its state when the stack was copied. For this process only.
    bool distrusts_loaded;          ///< Modules have changed since: only those that came with the program are trusted.
    struct stackcap_registers registers;  ///< Where the walk starts,
    struct stackcap_registers start;      ///< … before guesses were added.
    bool registers_are_guessed;           ///< Only program counter and stack pointer are known, because the thread sleeps:
    struct stackcap_sleeper sleeper;      ///< … this thread.
    struct stackcap_rows rows;
    uint8_t *programs;                    ///< MAX_PROGRAM_BYTES: a copy of those of the last row that libunwind has got.
    struct stackcap_registers resumed;    ///< Where it continued after code without an unwind table.
    stackcap_found found_behind_gap;      ///< How the frame after the last code without a table was found.
    stackcap_found return_found;  ///< How the second frame was found, if that is known better than from the walk; otherwise 0.
    size_t scanned[MAX_SCANS];    ///< The frames that were found by a search of the stack.
    size_t scanned_count;
    uint64_t gap_record;  ///< The frame record from which to continue if the return address is unknown, or 0.
    int address_bias;  ///< To be added to the cursor's address: see stackcap_step.
    struct stackcap_modules *_Nullable modules;  ///< Another process's modules. NULL: those of this process, from the loader.

    unw_addr_space_t space;
    bool lacked_table;  ///< Since last cleared: an address had no unwind table.
    bool met_unknown;   ///< … a register that is not known was used as an address.
    bool left_copy;     ///< … the stack was read beyond the copy.
    const struct stackcap_registers *current;  ///< The registers as shown to libunwind.
    uint64_t first_unknown;  ///< The first address used that was computed from an unknown register, 0 for none.
    bool reads_middle;  ///< Memory between the two copied ends is read as it is now.
    bool read_middle;   ///< … and was read.
    uint64_t walk_until_ns;  ///< On the capturing thread's own clock.
    bool is_late;            ///< That time has passed while libunwind was reading.
    uint32_t reads, reads_in_all;  ///< libunwind's: of one row, since it was looked up; and ever.
    stackcap_frame *frames;  ///< The first half holds the innermost, the second half is a ring for the others: stackcap_frame_at.
    uint64_t trail;          ///< A hash of all frames: two walks with the same hash took the same path.
    size_t frame_count;      ///< Includes the frames that were dropped from the ring.
    stackcap_end end;
    bool ended_at_zero;  ///< … at a return address of 0, which a wrong guess can lead to as well.
    int unwinder_error;
    struct stackcap_async async;
} stackcap_unwinder;

/// Allocates the buffers, populates what the handler uses first, and makes libunwind initialise itself. \returns 0 or an errno; on
/// failure, finish it.
int stackcap_unwinder_prepare(stackcap_unwinder *unwinder);
void stackcap_unwinder_finish(stackcap_unwinder *unwinder);

#pragma clang assume_nonnull end
