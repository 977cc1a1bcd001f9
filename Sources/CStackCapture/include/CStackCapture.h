/// Capturing another thread's stack, from the watchdog's side: sample, copy, release, unwind the copy.
///
/// Every function here is for one caller at a time per session, none of them may be called from a signal handler, and none
/// takes a lock of the process (the target may hold any of them: malloc's, the loader's, stdio's). After stackcap_open nothing
/// allocates. errno is not part of the interface: errors are returned in the structures.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma clang assume_nonnull begin

/// The greatest number of frames that one capture keeps: of a deeper stack, half of them from each end.
#define STACKCAP_MAX_FRAMES 1024
/// The greatest number of awaiting functions that one capture keeps.
#define STACKCAP_MAX_AWAITING 256
/// The greatest number of bytes of a stack that one capture copies: of a larger one, all but 64 KiB from its innermost end.
#define STACKCAP_MAX_COPY (512 * 1024)

/// The longest time that one walk over a stack may take, as CPU time of the capturing thread. 100,000 frames of a recursion
/// take about a tenth of it.
#define STACKCAP_MAX_WALK_NS 200000000

/// The buffers, the signal handler's request and the unwinder's state. One per signal number; see stackcap_open.
typedef struct stackcap_session stackcap_session;

/// The result of a step.
typedef enum stackcap_status {
    STACKCAP_OK = 0,
    STACKCAP_MOVED,          ///< The thread did not stay in the sampled state. Sample again.
    STACKCAP_GONE,           ///< There is no such thread in this process, or it is exiting.
    STACKCAP_KERNEL_ONLY,    ///< The thread runs only in the kernel, as io_uring's threads do.
    STACKCAP_NOT_DELIVERED,  ///< The signal handler did not start in time; the request is withdrawn.
    STACKCAP_STUCK,          ///< A handler has started and not finished: the copy belongs to it.
    STACKCAP_OUT_OF_BOUNDS,  ///< The thread's stack pointer is outside the given range, where nothing can be read.
    STACKCAP_UNREADABLE,     ///< The stack's memory could not be read.
    STACKCAP_STATE_UNREADABLE,  ///< The thread's state cannot be read from /proc.
    STACKCAP_UNWINDER,       ///< libunwind refused the first frame.
    STACKCAP_IN_USE,         ///< The signal belongs to another user.
    STACKCAP_FAILED,         ///< A system call failed; see the errno.
    STACKCAP_REFUSED,        ///< The kernel does not allow it: another user's process, a traced one, …
    STACKCAP_NOT_STOPPED,    ///< The thread did not stop in time, and runs on.
    STACKCAP_REPLACED,       ///< The process runs another program than before: execve(2). The copy is invalid.
    STACKCAP_OTHER_ARCHITECTURE,  ///< The process has another word length or processor architecture.
} stackcap_status;

/// A status with its errno, 0 if there is none.
typedef struct stackcap_outcome {
    stackcap_status status;
    int error;
} stackcap_outcome;

// Opening and closing

/// Allocates everything a session will ever need (about 1.9 MiB, of which 128 KiB are populated) and installs the handler with SA_SIGINFO |
/// SA_RESTART | SA_ONSTACK; the last two are those of the previous handler, if there was one. Signals that are not this
/// session's are forwarded to that handler, with the mask that it asked for.
///
/// Allocates; may take libunwind's own locks. A session's memory is never freed, because a late signal may still read it: a
/// later open for the same signal reuses it, so the cost is bounded by the number of signals.
/// \param read_through_file reads memory through /proc/self/mem even if process_vm_readv works.
/// \returns STACKCAP_IN_USE if a session for the signal is open in this process (a forked child opens its own),
/// STACKCAP_UNREADABLE if there is no way to read memory, STACKCAP_FAILED with EINVAL, ENOMEM and similar errors.
stackcap_outcome stackcap_open(int signal, bool read_through_file,
                               stackcap_session *_Nullable *_Nonnull session);

/// Restores the previous handler if the session's own is still the one installed, and discards its pending signals, so that
/// none meets the default action (which ends the process). Below another handler ours stays installed and forwards signals.
void stackcap_close(stackcap_session *session);

// Sampling

typedef enum stackcap_state {
    STACKCAP_STATE_UNKNOWN = 0,
    STACKCAP_STATE_RUNNING,  ///< Running or runnable, in the program or in the kernel.
    STACKCAP_STATE_CALLING,  ///< Asleep in a system call.
    STACKCAP_STATE_HALTED,   ///< Asleep outside a system call: a page fault, a stop.
} stackcap_state;

/// A thread's state in /proc at one moment.
typedef struct stackcap_look {
    stackcap_state state;
    int64_t call;  ///< The system call's number, −1 outside one.
    uint64_t arguments[6];
    uint64_t stack_pointer;
    uint64_t program_counter;
    uint64_t schedule[3];  ///< Run time, wait time, time slices: a thread that ran in between has changed these.
} stackcap_look;

/// Reads /proc/self/task/TID/schedstat and syscall: four to six system calls, no signal, no pause for the thread.
stackcap_outcome stackcap_look_at(pid_t thread, stackcap_look *look);

/// Distinguishes a thread that computes from one that runs briefly between two sleeps, or has been woken and waits for a
/// processor; and shows whether a signal and its handler would work there.
typedef struct stackcap_progress {
    uint64_t sleeps;  ///< How often it went to sleep: voluntary_ctxt_switches in /proc/self/task/TID/status.
    uint64_t cpu_ns;  ///< CPU time so far: pthread_getcpuclockid(3).
    uint64_t blocked;  ///< Signal N has bit N − 1: SigBlk.
    bool is_filtered;  ///< Its system calls pass a filter, which may end the process for one: Seccomp.
    bool is_strict;    ///< It may only read, write, return from a handler and end: any other call ends it (SECCOMP_SET_MODE_STRICT).
} stackcap_progress;

stackcap_outcome stackcap_read_progress(pid_t thread, stackcap_progress *progress);

// Copying

/// Copies the stack of a thread that sleeps in the kernel. The thread gets no signal and is not affected.
///
/// Here and below [low, high) is the thread's own stack. If it is on another one at the moment (an alternate signal stack, a
/// coroutine's), that one is copied from the stack pointer on, and also the outer part of its own one.
/// \param seen the last result of stackcap_look_at: STACKCAP_STATE_CALLING or STACKCAP_STATE_HALTED.
/// \returns STACKCAP_MOVED if it ran while its stack was copied; the copy is then invalid.
stackcap_outcome stackcap_copy_blocked(stackcap_session *session, pid_t thread, uint64_t low, uint64_t high,
                                       const stackcap_look *seen);

/// Makes a running thread copy its own registers and stack in a signal handler. Samples once more directly before the signal is
/// sent, because a signal cuts short the sleep of a thread that has entered a system call.
/// \param seen the last result of stackcap_read_progress.
/// \param deadline_ns on stackcap_now_ns's clock; the call does not wait beyond it.
/// \param stays_open after STACKCAP_NOT_DELIVERED the thread still copies itself when it runs, for stackcap_take_left_open. To
/// be settled before anything else is done with the session.
/// \returns STACKCAP_MOVED if the thread is no longer running; STACKCAP_IN_USE if another handler replaced ours and has
/// forwarded nothing to it since; STACKCAP_REFUSED if the thread is_strict, because the handler's calls would end it: in all
/// these cases nothing was sent.
stackcap_outcome stackcap_copy_running(stackcap_session *session, pid_t thread, uint64_t low, uint64_t high,
                                       const stackcap_progress *seen, uint64_t deadline_ns, bool stays_open);

/// The copy that a thread has made after its capture's deadline. This closes the request.
/// \param copied_ns set to when it was made.
/// \returns STACKCAP_NOT_DELIVERED if there is none.
stackcap_outcome stackcap_take_left_open(stackcap_session *session, pid_t thread, uint64_t *copied_ns);

/// Withdraws a request that was left open.
void stackcap_settle(stackcap_session *session);

// Unwinding

/// How a frame's address was found.
typedef enum stackcap_found {
    STACKCAP_FOUND_REGISTER = 0,   ///< The program counter itself: of the first frame, and of one that a signal has interrupted.
    STACKCAP_FOUND_TABLE,          ///< By the module's unwind table.
    STACKCAP_FOUND_FRAME_POINTER,  ///< By the frame pointer: the code below it has no unwind table.
    STACKCAP_FOUND_SCAN,           ///< By a search of the stack for a frame record or a return address.
    STACKCAP_FOUND_CODE,           ///< By the instructions of the code below it, which has no unwind table.
} stackcap_found;

typedef struct stackcap_frame {
    uint64_t address;  ///< A program counter or a return address: see `found`.
    uint64_t stack_pointer;
    uint64_t state;  ///< A hash of the function's callee-saved registers: if it differs, the function has run on. 0: unknown.
    stackcap_found found;
} stackcap_frame;

/// Why the unwinder stopped.
typedef enum stackcap_end {
    STACKCAP_END_COMPLETE = 0,  ///< At the thread's first frame, according to the unwind table.
    STACKCAP_END_TIME_LIMIT,    ///< The stack continues, but the walk took too long: STACKCAP_MAX_WALK_NS.
    STACKCAP_END_COPY_LIMIT,    ///< The stack continues beyond the copy, and has changed there since.
    STACKCAP_END_NO_TABLE,      ///< Code without an unwind table, and no usable frame pointer.
    STACKCAP_END_BAD_FRAME,     ///< The next frame is invalid: a damaged stack, or a wrong table.
} stackcap_end;

/// Where a chain of awaiting functions ends.
typedef enum stackcap_async_end {
    STACKCAP_ASYNC_NONE = 0,    ///< No asynchronous function is on the stack.
    STACKCAP_ASYNC_TASK,        ///< At the first function of a task that is not a child task.
    STACKCAP_ASYNC_LET,         ///< … of an `async let`.
    STACKCAP_ASYNC_TASK_GROUP,  ///< … of a child task in a task group.
    STACKCAP_ASYNC_LIMIT,       ///< STACKCAP_MAX_AWAITING.
    STACKCAP_ASYNC_UNKNOWN,     ///< The chain was not found, or the thread ran on before it had been read.
} stackcap_async_end;

/// The functions that wait for the innermost asynchronous function on the stack.
typedef struct stackcap_async_callers {
    const uint64_t *_Nullable awaiting;  ///< Where each will resume, innermost first: a function's start.
    size_t count;
    size_t frame;  ///< Index of the frame that they continue.
    stackcap_async_end end;
    bool is_missed;        ///< Unknown, but the next capture is more likely to find it: this one has learnt where to look.
    uint32_t task_number;  ///< The lower half of the runtime's task number.
} stackcap_async_callers;

/// The result of the last copy. All pointers belong to the session and are valid until the next copy.
typedef struct stackcap_unwound {
    const stackcap_frame *_Nullable frames;
    size_t count;
    size_t left_out;       ///< Frames that are not included, because there were more than STACKCAP_MAX_FRAMES.
    size_t left_out_after; ///< The number of frames before the gap.
    stackcap_end end;
    bool is_unsettled;   ///< Modules were loaded or unloaded since the copy, and the stack led through one that can be replaced: the walk
                         ///< left it by the frame pointer, or ended there. Another copy may show more.
    int unwinder_error;  ///< libunwind's code (negative), 0 if none.
    uint64_t held_ns;    ///< In the signal handler; 0 for a blocked thread.
    uint64_t unwind_ns;
    uint64_t copied_bytes;
    stackcap_async_callers async;
} stackcap_unwound;

/// Unwinds the last copy with the target's unwind tables in memory. Reads never fault. The target is not involved.
stackcap_outcome stackcap_unwind(stackcap_session *session, stackcap_unwound *unwound);

// Live memory

/// Copies current memory of this process by a system call: if memory is not mapped, or is unmapped in the meantime, this is not
/// a fault. What other threads write at the same time may be copied in parts, but each aligned word of up to 8 bytes is
/// consistent.
/// \returns whether all of it could be read. Otherwise the contents of `to` are not valid.
bool stackcap_read_memory(stackcap_session *session, uint64_t address, void *to, size_t length);

// Many threads

struct stackcap_range {
    uint64_t low, high;
};

struct stackcap_name {
    char text[16];
};

/// A stack in the arena, for all threads that have it.
typedef struct stackcap_kept {
    size_t first;  ///< Index into the arena's frames.
    size_t count;
    size_t left_out;
    size_t left_out_after;
    stackcap_end end;
} stackcap_kept;

/// This process's threads and their stacks, without awaiting callers. Stored at the start of its own memory. That is from mmap,
/// not malloc, because any thread may hold malloc's lock: only the used part is ever populated.
typedef struct stackcap_arena {
    size_t size;
    pid_t *threads;  ///< From /proc/self/task, including the caller. None in an arena for one thread.
    size_t thread_count, thread_capacity;
    struct stackcap_name *names;  ///< Of those that were requested.
    void *entries;  ///< The owner's, initially zero: one of entry_size bytes for each thread.
    stackcap_kept *stacks;
    size_t stack_count;
    stackcap_frame *frames;
    size_t frame_count, frame_capacity;
    struct stackcap_range *ranges;  ///< Writable memory, in ascending order.
    size_t range_count, range_capacity;
    int reads_of_maps;
    uint32_t *index;
    size_t index_capacity;
    char *text;
} stackcap_arena;

/// Lists the memory that may be stacks, and, unless \p entry_size is 0, the threads. Close it unless this failed.
stackcap_outcome stackcap_arena_open(size_t entry_size, stackcap_arena *_Nullable *_Nonnull arena);
void stackcap_arena_close(stackcap_arena *arena);

/// Finds the memory around a stack pointer. \returns false if there is no writable memory there.
bool stackcap_arena_bounds(stackcap_arena *arena, uint64_t stack_pointer, uint64_t *low, uint64_t *high);

/// Corrects the bounds of a copy that a running thread made without knowing them: between 0 and UINT64_MAX.
void stackcap_arena_bound_copy(stackcap_arena *arena, stackcap_session *session);

/// Keeps a stack. \returns its number, or that of an earlier stack with the same frames; −1 if the arena is full.
int64_t stackcap_arena_keep(stackcap_arena *arena, const stackcap_unwound *unwound);

/// Reads the name of a listed thread, unless it is known. It stays empty if the thread no longer exists.
void stackcap_arena_read_name(stackcap_arena *arena, size_t index);

/// The number of bytes of code before a return address that are needed to recognise the call of a job.
#define STACKCAP_JOB_CALL_BYTES 32

/// The register that holds the job, in DWARF's numbers, if the bytes before a return address are the Swift concurrency
/// runtime's call of a job's function; otherwise −1. Pure, for each architecture; async-signal-safe.
int stackcap_job_register_x86_64(const uint8_t before[_Nonnull STACKCAP_JOB_CALL_BYTES]);
int stackcap_job_register_aarch64(const uint8_t before[_Nonnull STACKCAP_JOB_CALL_BYTES]);

// Counters, the calling thread, time

/// Counts since the session was first opened. They only grow.
typedef struct stackcap_counters {
    uint64_t sent;            ///< Signals sent.
    uint64_t late;            ///< Own signals that arrived when no request for their thread was left.
    uint64_t chained;         ///< Signals that were not ours.
    uint64_t calls_cut_short; ///< System calls that returned EINTR because of our signal: the known race.
} stackcap_counters;

stackcap_counters stackcap_read_counters(stackcap_session *session);

/// The calling thread's id, as in /proc. Async-signal-safe.
pid_t stackcap_own_thread(void);

/// The calling thread's stack, without the thread-local variables after it. Allocates; takes the loader's lock; on the
/// process's first thread it reads /proc/self/maps: pthread_getattr_np(3).
/// \returns 0 or an errno.
int stackcap_own_stack(uint64_t *low, uint64_t *high);

/// CLOCK_MONOTONIC. Async-signal-safe.
uint64_t stackcap_now_ns(void);

#pragma clang assume_nonnull end

#ifdef __cplusplus
}
#endif
