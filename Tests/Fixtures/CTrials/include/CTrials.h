/// What captures are tried on: threads that block, compute, storm or stand still in ways that are known exactly. For tests alone:
/// whatever is not expected aborts.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma clang assume_nonnull begin

/// A thread, as a capture wants it.
typedef struct trial_thread {
    pid_t number;
    uint64_t low, high;
} trial_thread;

/// Of the calling thread. Allocates.
trial_thread trial_own_thread(void);

/// CLOCK_MONOTONIC.
uint64_t trial_now_ns(void);
/// CLOCK_THREAD_CPUTIME_ID.
uint64_t trial_own_cpu_ns(void);
/// Standard output by lines, into pipes too.
void trial_buffer_lines(void);

// Blocking calls (blocking*.c)

/// One call that blocks, on a thread of its own.
typedef struct trial_block trial_block;

typedef struct trial_block_end {
    bool as_expected;  ///< Result and error number are those of a call that was left alone.
    bool early;        ///< It returned before its time, or before it was released.
    int64_t result;
    int error;
    uint64_t lasted_ns;
} trial_block_end;

size_t trial_block_count(void);
const char *trial_block_name(size_t index);
/// Whether the call returns by itself after its time.
bool trial_block_is_timed(size_t index);
/// Whether the number is that of the call as the kernel gets it. A page fault is no call.
bool trial_block_is_call(size_t index, int64_t number);
bool trial_block_is_page_fault(size_t index);

/// Starts the thread. \returns NULL, with the reason in `error`, where the kernel or a sandbox does not offer the call.
trial_block *_Nullable trial_block_start(size_t index, uint64_t time_ns, int *error);
/// As many more frames below the call, of different sizes. For the next start.
void trial_block_set_depth(int depth);
trial_thread trial_block_thread(const trial_block *block);
/// Waits until /proc shows the thread asleep in its call. \returns false at the deadline.
bool trial_block_await(trial_block *block, uint64_t deadline_ns);
bool trial_block_has_returned(const trial_block *block);
/// Releases what waits to be released, waits for the thread and frees everything.
trial_block_end trial_block_finish(trial_block *block);

// A thread that makes many short calls (callers.c)

typedef enum trial_caller_kind {
    TRIAL_CALLS_POLL,   ///< poll with no time: it never sleeps, yet returns EINTR if a signal is pending.
    TRIAL_CALLS_READ,   ///< read of a byte that is there.
    TRIAL_CALLS_SLEEP,  ///< nanosleep of a microsecond, with the least timer slack.
    TRIAL_CALLS_EPOLL,  ///< epoll_wait with no time.
    TRIAL_CALLS_PPOLL,  ///< ppoll with no time.
    TRIAL_CALLS_SELECT, ///< select with no time.
} trial_caller_kind;

typedef struct trial_caller trial_caller;

/// Starts a thread that makes `per_second` calls a second, if they take no time, and computes in between.
trial_caller *trial_caller_start(trial_caller_kind kind, uint64_t per_second);
trial_thread trial_caller_thread(const trial_caller *caller);
uint64_t trial_caller_calls(const trial_caller *caller);
/// Calls that returned EINTR.
uint64_t trial_caller_cut_short(const trial_caller *caller);
void trial_caller_finish(trial_caller *caller);

// A thread that watches its own clock (clock_reader.c)

typedef struct trial_clock_reader trial_clock_reader;

/// Starts a thread that reads the clock, `frames` calls deep, and does nothing else. It stays on the given processor.
trial_clock_reader *trial_clock_reader_start(int frames, int processor);
trial_thread trial_clock_reader_thread(const trial_clock_reader *reader);
/// The longest time between two readings since the last call of this. Forgets it.
uint64_t trial_clock_reader_take_gap(trial_clock_reader *reader);
/// Waits until the thread has read the clock twice more.
void trial_clock_reader_await(const trial_clock_reader *reader);
/// Times the thread lost its processor to another one.
uint64_t trial_clock_reader_preemptions(const trial_clock_reader *reader);
void trial_clock_reader_finish(trial_clock_reader *reader);

/// Starts a thread that sleeps, `frames` calls deep, for good.
trial_thread trial_sleeper_start(int frames);
/// Run time, wait time and time slices of a thread: unchanged if it has not run.
void trial_schedule_of(pid_t thread, uint64_t numbers[_Nonnull 3]);

/// Keeps the calling thread on one processor.
void trial_stay_on(int processor);

// What a signal's handler may do (handlers.c)

/// In the handler, from the interrupted context.
typedef void (*trial_handler)(void *context);

void trial_handler_nothing(void *context);
/// Unwinds with libunwind's unw_step. Never where the thread may hold a lock.
void trial_handler_step(void *context);
/// Frames that trial_handler_step found when it ran last.
int trial_handler_step_frames(void);
/// \returns false without libunwind.so.8.
bool trial_handler_step_prepare(void);

/// Has a thread run a handler of SIGUSR2, and waits until it has.
void trial_interrupt(pid_t thread, trial_handler handler);

/// Runs a program without its output. \returns its exit status, −1 if it does not start.
int trial_run_program(const char *_Nullable const *_Nonnull arguments, uint64_t *wall_ns, uint64_t *cpu_ns);

// Loads under which captures are taken (storms*.c)

/// What the storm's threads do, over and over, below TRIAL_STORM_DEPTH calls of trial_storm_descend. The function that does it has
/// a name with `load_` in it.
typedef enum trial_load {
    TRIAL_LOAD_MALLOC,
    TRIAL_LOAD_RELOAD,   ///< dlopen and dlclose of plugin0…3.so in the folder, at the same address.
    TRIAL_LOAD_ITERATE,  ///< dl_iterate_phdr.
    TRIAL_LOAD_THROW,    ///< C++ exceptions through five frames.
    TRIAL_LOAD_STDIO,
    TRIAL_LOAD_LOCKS,    ///< One mutex between all threads.
    TRIAL_LOAD_FORK,
    TRIAL_LOAD_SIGNALS,  ///< The application's own signals, SIGPROF among them.
    TRIAL_LOAD_DOZE,     ///< Short sleeps at changing depths.
    TRIAL_LOAD_CHURN,    ///< Threads that end as soon as they have begun.
    TRIAL_LOAD_UNTABLED, ///< Calls of code that has no unwind table, and is little more than its first and last instructions.
    TRIAL_LOAD_CUSTOM,   ///< The given function.
} trial_load;

enum { TRIAL_STORM_DEPTH = 6, TRIAL_STORM_THREADS = 2 };

typedef struct trial_storm trial_storm;

/// Returns soon; called again until the storm is over.
typedef void (*trial_work)(void);

trial_storm *trial_storm_start(trial_load load, const char *folder, trial_work _Nullable work);
/// Of TRIAL_LOAD_CHURN: one that lived just now.
trial_thread trial_storm_thread(trial_storm *storm, int index);
uint64_t trial_storm_rounds(const trial_storm *storm);
void trial_storm_finish(trial_storm *storm);

/// The application's handler of SIGPROF, as one that was there before the capturer's.
void trial_handle_prof(void);
void trial_throw_once(void);

/// Ends the process with a word and status 3 if trial_watchdog_feed is not called for that long.
void trial_watchdog_start(uint64_t patience_ns);
void trial_watchdog_feed(void);

// A captured stack for a debugger to compare (exact.c, compare_stacks.py)

enum { TRIAL_PUBLISHED_FRAMES = 2048 };

/// Fills the stack that the debugger reads, by its offsets; see exact.c.
void trial_publish_begin(pid_t thread, int round, bool is_frozen, bool is_complete, const char *scene);
/// There is no stack. \param is_named: for the reason that the thread is on another stack than the one given.
void trial_publish_refusal(bool is_named);
void trial_publish_frame(uint64_t address, bool by_frame_pointer);

/// Makes a running thread spin in a handler of SIGUSR1, wherever it is just now, and waits until it does.
/// \returns false where it does not, for a second.
bool trial_freeze(pid_t thread);
/// On the thread itself, once: libdispatch's threads, and those that they start, block most signals.
void trial_let_freeze(void);
void trial_thaw(void);
/// Stops the process for its debugger, by SIGTRAP.
void trial_call_debugger(void);

/// What a command prints; to be freed.
char *_Nullable trial_output_of(const char *command);

// A stack at each instruction (steps.c)

typedef struct trial_steps {
    uint64_t instructions;
    uint64_t without_table;  ///< Not whole, or not right, by what is marked so: code without an unwind table.
    uint64_t wrong;
    uint64_t guessed_wrongly;  ///< As of a thread that stands still, with two registers known: not right, and marked as a guess.
} trial_steps;

/// Runs it twice on a thread of its own, the second time an instruction at a time, `most` of them, and walks the stack at each.
/// One at a time. \returns false where the processor offers no such thing to a process.
bool trial_step_through(void (*run)(void *_Nullable context), void *_Nullable context, uint64_t most, trial_steps *steps);
/// What was found, and what should have been. Until the next run.
const char *trial_first_wrong_step(void);

// Functions without an unwind table (untabled.c)

typedef struct trial_untabled_tally {
    uint64_t walks;
    uint64_t wrong;   ///< And not marked so.
    uint64_t marked;  ///< Not right, and marked so: a frame found by the frame pointer or by a search, or the stack's end.
    uint64_t unsure;  ///< Right, but marked as if it might not be.
} trial_untabled_tally;

typedef struct trial_untabled {
    uint64_t functions, instructions, calls;
    trial_untabled_tally running, asleep;
    uint64_t children_lost;  ///< Processes that did not survive the function that they stepped through.
} trial_untabled;

/// Steps through one in `every` of the functions in a loaded library that have no unwind table and call another, and walks the stack at each
/// instruction and in each call. \returns false where the library or the means are missing.
bool trial_untabled_step_through(const char *library, size_t every, trial_untabled *result);
/// Until the next call.
const char *trial_untabled_first_wrong(void);

// What a running thread can be in the middle of (exact_*.c, exact.cpp). Each returns soon.

typedef struct trial_scene {
    const char *name;
    void (*run)(void);
} trial_scene;

extern const trial_scene trial_c_scenes[], trial_cpp_scenes[];
extern const size_t trial_c_scene_count, trial_cpp_scene_count;
/// \param language: 0 for C, 1 for C++.
trial_scene trial_scene_at(int language, size_t index);
/// For trial_c_scenes that load a module.
void trial_set_plugin_folder(const char *folder);

#pragma clang assume_nonnull end

#ifdef __cplusplus
}
#endif
