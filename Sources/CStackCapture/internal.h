/// What the parts of the capture share. Nothing here is public.
#pragma once

#include "CStackCapture.h"

#include <signal.h>
#include <stdatomic.h>

#include <libunwind.h>

#include "registers.h"

#pragma clang assume_nonnull begin

// memory.c

enum { PAGE_SIZE = 4096, PAGE_SLOTS = 256 };

/// The innermost part of a stack as it was, and where the rest of it lies.
struct stackcap_copy {
    uint8_t *bytes;
    uint64_t start;
    uint64_t length;
    uint64_t high;  ///< The stack's outer end. Between start + length and here the memory may have changed since.
    uint64_t held_ns;  ///< What the thread was held for it.
    /// For a thread on a stack that is not its own (an alternate signal stack, a coroutine's), which then is the copy above: the outer
    /// part of its own one, ending at `home_end`, in the buffer's second half. The way out of a signal's handler leads there.
    uint64_t home_start, home_end;
    uint64_t home_low;  ///< Where its own stack begins. Up to home_start it was not copied.
};

/// Direct-mapped, one capture old at most: a module that is replaced at the same address must not leave its tables behind.
struct stackcap_page_cache {
    uint8_t *bytes;
    struct {
        uint64_t page;
        uint64_t generation;
        bool readable;
    } slots[PAGE_SLOTS];
    uint64_t generation;
};

/// How memory of a process, ours or another, is read without ever faulting.
struct stackcap_reader {
    pid_t process;
    int file;  ///< /proc/PID/mem, or −1 while process_vm_readv works.
    uint64_t file_identity[2];  ///< Device and inode: the application may close all descriptors and use their numbers again.
};

// async.c

enum {
    STACKCAP_ASYNC_SITES = 8,
    STACKCAP_GLIMPSES = 3,
    STACKCAP_GLIMPSE_BYTES = 2048,
};

/// The part of the heap that ends with a context, as it was right after the stack was copied.
struct stackcap_glimpse {
    uint64_t start, length;
    uint8_t bytes[STACKCAP_GLIMPSE_BYTES];
};

/// A frame that was started as the Swift concurrency runtime starts jobs.
struct stackcap_async_site {
    size_t frame;
    uint64_t low, high;  ///< Its part of the stack.
    /// In the frame, and in the one that called it; 0 if unknown.
    uint64_t frame_pointer, context, job;
};

/// What the walk sees of asynchronous functions, and what was made of it.
struct stackcap_async {
    struct stackcap_async_site sites[STACKCAP_ASYNC_SITES];  ///< Innermost first.
    size_t site_count;
    uint64_t awaiting[STACKCAP_MAX_AWAITING];
    uint64_t contexts[STACKCAP_MAX_AWAITING];
    uint64_t first;     ///< The context that the chain begins with.
    uint64_t job_call;  ///< The return address of the last job's call. It is the same for nearly all.
    bool is_glimpsed;   ///< … and was found in the copy.
    bool is_exact;      ///< The chain is as it was then.
    struct stackcap_glimpse glimpses[STACKCAP_GLIMPSES];
    stackcap_async_callers callers;
};

// unwinder.c

/// A stack that is being unwound: its copy, the memory around it, and where the walk stands. How the copy came about is its
/// owner's business.
typedef struct stackcap_unwinder {
    struct stackcap_copy copy;
    struct stackcap_reader reader;
    struct stackcap_page_cache pages;
    struct stackcap_registers registers;  ///< Where the walk starts.
    bool registers_are_guessed;           ///< Only program counter and stack pointer are known.
    struct stackcap_registers resumed;    ///< Where it went on behind code without an unwind table.
    bool is_resumed;
    stackcap_found return_found;  ///< How the second frame was found, if that is known better than by the walk; else 0.
    uint64_t gap_record;  ///< The frame record to go on from where the return address is unknown, or 0.
    int address_bias;  ///< To be added to the cursor's address: see stackcap_step.

    unw_addr_space_t space;
    bool lacked_table;  ///< Since last cleared: an address had no unwind table.
    bool met_unknown;   ///< … a register that is not known was used as an address.
    bool left_copy;     ///< … the stack was read beyond the copy.
    stackcap_frame *frames;
    size_t frame_count;
    stackcap_end end;
    int unwinder_error;
    struct stackcap_async async;
} stackcap_unwinder;

/// Allocates the buffers, populated, and makes libunwind initialise itself. \returns 0 or an error number; then finish it.
int stackcap_unwinder_prepare(stackcap_unwinder *unwinder);
void stackcap_unwinder_finish(stackcap_unwinder *unwinder);

// request.c

/// What the capturing thread asks and the handler answers. `word` says whose turn it is: see request.c.
struct stackcap_request {
    _Atomic uint64_t word;
    _Atomic pid_t thread;
    uint64_t low, high;
    struct stackcap_registers registers;
    int copy_error;
    bool is_foreign;  ///< The thread is on another stack than its own.
};

// previous.c

/// The handler that was there before ours.
struct stackcap_previous {
    _Atomic(const struct sigaction *) action;
    struct sigaction kept[2];
    atomic_bool is_spent;  ///< It asked to be called once (SA_RESETHAND), and was.
};

/// Not in a handler.
void stackcap_previous_keep(struct stackcap_previous *previous, const struct sigaction *action);

/// What to install when ours goes.
void stackcap_previous_restore(const struct stackcap_previous *previous, struct sigaction *action);

/// What of its flags the kernel acts upon when it delivers to ours: what the application's signal does to system calls, and on
/// which stack, stays as the application chose it.
int stackcap_flags_over(const struct sigaction *action);

/// Acts as the kernel would have without us. In the handler.
void stackcap_previous_call(struct stackcap_previous *previous, int signal, siginfo_t *info, void *context);

struct stackcap_session {
    int signal;
    uint32_t mark;  ///< In every signal we send, so that the application's own are told apart.
    bool open;
    pid_t process;  ///< That opened it. A fork's child inherits a session that nobody there can close.
    bool in_chain;  ///< Our handler is installed, or someone may pass signals on to it.
    uintptr_t cover;         ///< The handler seen over ours,
    uint64_t passed_before;  ///< … and what had been chained when it was first seen there.
    struct stackcap_previous previous;

    struct stackcap_request request;
    stackcap_unwinder unwinder;
    pid_t blocked_thread;  ///< Whose stack the copy is, if it was asleep; else 0.
    stackcap_look seen;    ///< … and where it was.

    _Atomic uint64_t sent, arrived, late, chained, calls_cut_short;
};

/// The signal handler's life. \returns 0 or an error number.
int stackcap_handler_install(struct stackcap_session *session);
/// Not when another handler has replaced ours, which then stays below it.
void stackcap_handler_remove(struct stackcap_session *session);
bool stackcap_handler_is_busy(const struct stackcap_session *session);
/// In a fork's child, where no thread is left that could answer.
void stackcap_request_forget(struct stackcap_session *session);

// look.c

/// Whether the calling thread's system calls pass a filter (seccomp(2)). Looked up anew every 10 ms.
bool stackcap_is_filtered(void);

// look.c

/// Whether the thread whose copy this is has slept on since. False for a running one.
bool stackcap_sleeps_on(const struct stackcap_session *session);

// memory.c

/// Chooses process_vm_readv, or /proc/self/mem where a sandbox refuses it. A sandbox may as well end a process for the call: where
/// there is one, the call is not tried.
int stackcap_reader_prepare(struct stackcap_reader *reader, bool through_file);

/// Again before each capture: after a fork, or once a sandbox has been put up, or the application has closed the file.
int stackcap_reader_refresh(struct stackcap_reader *reader, bool is_filtered);
void stackcap_reader_finish(struct stackcap_reader *reader);

/// Copies live memory. Async-signal-safe; changes errno; never faults.
/// \returns the bytes read from the start, or −errno.
ssize_t stackcap_read_live(const struct stackcap_reader *reader, uint64_t address, void *to, size_t length);

/// Copies [stack_pointer − red zone, high) into the copy's buffer, at most STACKCAP_MAX_COPY. Async-signal-safe; changes errno.
/// \returns 0 or an error number.
int stackcap_copy_stack(stackcap_unwinder *unwinder, uint64_t stack_pointer, uint64_t low, uint64_t high);

/// Copies what lies at the stack pointer, up to the first page that cannot be read, and the outer part of the thread's own stack
/// [low, high), on which it is not just now; at most STACKCAP_MAX_COPY / 2 of each. Async-signal-safe; changes errno.
/// \returns 0 or an error number.
int stackcap_copy_foreign_stack(stackcap_unwinder *unwinder, uint64_t stack_pointer, uint64_t low, uint64_t high);

/// Whether a caller's frame may lie at `to`: further out, or on the thread's own stack.
bool stackcap_is_further_out(const stackcap_unwinder *unwinder, uint64_t from, uint64_t to);

/// Whether the copy ends before this frame, though it is not known where the stack does.
bool stackcap_is_beyond_foreign_copy(const stackcap_unwinder *unwinder, uint64_t stack_pointer);

/// Whether the stack still reads as it was copied. Not in the handler.
bool stackcap_copy_holds(const stackcap_unwinder *unwinder);

bool stackcap_in_copy(const stackcap_unwinder *unwinder, uint64_t address, size_t length);

/// Forgets all cached pages.
void stackcap_pages_forget(struct stackcap_page_cache *pages);

/// Reads from the copy, or else from memory that is not the stack, through the page cache. Not in the handler.
bool stackcap_peek(stackcap_unwinder *unwinder, uint64_t address, void *to, size_t length);

// tables.c

/// Finds the unwind row for an address, by the tables as they stand in memory, and without the loader's lock.
/// \returns 0, or libunwind's code; lacked_table is set then.
int stackcap_find_procedure(stackcap_unwinder *unwinder, unw_word_t address, unw_proc_info_t *procedure, int needs_info);

/// Where the function around `address` starts, 0 if no unwind table says.
uint64_t stackcap_function_start(stackcap_unwinder *unwinder, uint64_t address);

/// Whether an unwind table has a function that starts here, or has none around here where one may start.
bool stackcap_may_start_function(stackcap_unwinder *unwinder, uint64_t address);

/// Whether the address lies in a module.
bool stackcap_in_module(stackcap_unwinder *unwinder, uint64_t address);

// walk.c

/// Creates libunwind's address space and makes it initialise itself. Allocates. \returns 0 or an error number.
int stackcap_space_prepare(stackcap_unwinder *unwinder);

/// Unwinds from the registers into the frames. \returns whether the first frame was found.
bool stackcap_unwind_from_registers(stackcap_unwinder *unwinder);

// async.c

/// Reads what is likely to be the innermost contexts of a running thread while it is held: when the stack has been unwound, they may
/// be gone. At most ten system calls; nothing is believed of what they give. Async-signal-safe; changes errno.
void stackcap_async_glimpse(stackcap_unwinder *unwinder, uint64_t context_register);
/// Forgets what an earlier walk saw.
void stackcap_async_begin(stackcap_unwinder *unwinder);
/// Looks at the walk's latest frame: whether it started the one before it as a job. Reads a few bytes of code.
void stackcap_async_notice(stackcap_unwinder *unwinder, unw_cursor_t *callee, unw_cursor_t *caller);
/// Follows the contexts of the innermost asynchronous frame into async.callers. Reads the live heap; never faults.
void stackcap_async_read(stackcap_unwinder *unwinder);
/// Whether chain and frame still are what was read.
bool stackcap_async_holds(const stackcap_unwinder *unwinder);
/// Gives up the chain, but not the frame.
void stackcap_async_doubt(stackcap_unwinder *unwinder);

// job_call.c

#if defined(__x86_64__)
#define stackcap_job_register stackcap_job_register_x86_64
#else
#define stackcap_job_register stackcap_job_register_aarch64
#endif

// guess.c

/// Unwinds a copy of which only program counter and stack pointer are known. \returns as above.
bool stackcap_unwind_guessing(stackcap_unwinder *unwinder);

// registers_*.c

/// How well the instruction before a return address fits a call of `function`. 0: it is no call.
enum { CALL_NONE = 0, CALL_ELSEWHERE, CALL_INDIRECT, CALL_MATCHES };
int stackcap_call_before(stackcap_unwinder *unwinder, uint64_t return_address, uint64_t function);

/// One step of the cursor to the caller: unw_step, and where that has no unwind table, the frame pointer. \returns as unw_step does.
int stackcap_step(stackcap_unwinder *unwinder, unw_cursor_t *cursor);

/// Finds out where the innermost function returns to, where that is in a register that is unknown: a frame record leads to the
/// caller's caller, the call there to the caller, and the calls in the caller to the place. Unwinds from the registers it found.
/// Leaves the registers as they were if nothing fits.
void stackcap_guess_return_address(stackcap_unwinder *unwinder);

/// How far the frame pointer lies above the stack pointer in a function's body, read from the instructions at its start.
/// \returns false for a function that sets its frame up in another way than compilers usually do.
bool stackcap_frame_pointer_distance(stackcap_unwinder *unwinder, uint64_t function, uint64_t *distance);

#pragma clang assume_nonnull end
