/// Subjects for captures: threads that block, compute, cause heavy load or are frozen in ways that are known exactly. Only for
/// tests: an unexpected condition aborts.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma clang assume_nonnull begin

/// A thread, with the data that a capture needs.
typedef struct trial_thread {
    pid_t number;
    uint64_t low, high;
} trial_thread;

/// The calling thread. Allocates.
trial_thread trial_own_thread(void);

/// CLOCK_MONOTONIC.
uint64_t trial_now_ns(void);
/// CLOCK_THREAD_CPUTIME_ID.
uint64_t trial_own_cpu_ns(void);
/// Makes standard output line-buffered, also into pipes.
void trial_buffer_lines(void);

// Blocking calls (blocking*.c)

/// One blocking call, on a separate thread.
typedef struct trial_block trial_block;

typedef struct trial_block_end {
    bool as_expected;  ///< Result and error number are those of an undisturbed call.
    bool early;        ///< It returned before its time, or before it was released.
    int64_t result;
    int error;
    uint64_t lasted_ns;
} trial_block_end;

size_t trial_block_count(void);
const char *trial_block_name(size_t index);
/// Whether the call returns automatically after its time.
bool trial_block_is_timed(size_t index);
/// Whether the number is that of the system call as the kernel sees it. A page fault is not a call.
bool trial_block_is_call(size_t index, int64_t number);
bool trial_block_is_page_fault(size_t index);

/// Starts the thread. \returns NULL, with the reason in `error`, if the kernel or a sandbox does not allow the call.
trial_block *_Nullable trial_block_start(size_t index, uint64_t time_ns, int *error);
/// Adds this number of frames, of different sizes, between the thread's start and the call. Applies to the next start.
void trial_block_set_depth(int depth);
trial_thread trial_block_thread(const trial_block *block);
/// Waits until /proc shows that the thread is asleep in its call. \returns false at the deadline.
bool trial_block_await(trial_block *block, uint64_t deadline_ns);
bool trial_block_has_returned(const trial_block *block);
/// Releases the call if it needs to be released, joins the thread and frees everything.
trial_block_end trial_block_finish(trial_block *block);

// A thread that makes many short calls (callers.c)

typedef enum trial_caller_kind {
    TRIAL_CALLS_POLL,   ///< poll with a timeout of zero: it never sleeps, but returns EINTR if a signal is pending.
    TRIAL_CALLS_READ,   ///< read of a byte that is available.
    TRIAL_CALLS_SLEEP,  ///< nanosleep of a microsecond, with minimal timer slack.
    TRIAL_CALLS_EPOLL,  ///< epoll_wait with a timeout of zero.
    TRIAL_CALLS_PPOLL,  ///< ppoll with a timeout of zero.
    TRIAL_CALLS_SELECT, ///< select with a timeout of zero.
} trial_caller_kind;

typedef struct trial_caller trial_caller;

/// Starts a thread that makes `per_second` calls per second, if the calls take no time, and computes in between.
trial_caller *trial_caller_start(trial_caller_kind kind, uint64_t per_second);
trial_thread trial_caller_thread(const trial_caller *caller);
uint64_t trial_caller_calls(const trial_caller *caller);
/// Calls that returned EINTR.
uint64_t trial_caller_cut_short(const trial_caller *caller);
void trial_caller_finish(trial_caller *caller);

// A thread that watches its own clock (clock_reader.c)

typedef struct trial_clock_reader trial_clock_reader;

/// Starts a thread that only reads the clock, `frames` calls deep. It is bound to the given processor.
trial_clock_reader *trial_clock_reader_start(int frames, int processor);
trial_thread trial_clock_reader_thread(const trial_clock_reader *reader);
/// The longest time between two readings since the last call of this function. Resets it.
uint64_t trial_clock_reader_take_gap(trial_clock_reader *reader);
/// Waits until the thread has read the clock twice more.
void trial_clock_reader_await(const trial_clock_reader *reader);
/// The number of times that the thread was preempted.
uint64_t trial_clock_reader_preemptions(const trial_clock_reader *reader);
void trial_clock_reader_finish(trial_clock_reader *reader);

/// Starts a thread that sleeps forever, `frames` calls deep.
trial_thread trial_sleeper_start(int frames);
/// Run time, wait time and time slices of a thread: unchanged if it did not run.
void trial_schedule_of(pid_t thread, uint64_t numbers[_Nonnull 3]);

/// Binds the calling thread to one processor.
void trial_stay_on(int processor);

// What a signal's handler may do (handlers.c)

/// Called in the handler, with the interrupted context.
typedef void (*trial_handler)(void *context);

void trial_handler_nothing(void *context);
/// Unwinds with libunwind's unw_step. Must not be used if the thread may hold a lock.
void trial_handler_step(void *context);
/// The number of frames that trial_handler_step found in its last run.
int trial_handler_step_frames(void);
/// \returns false without libunwind.so.8.
bool trial_handler_step_prepare(void);

/// Makes a thread run a handler of SIGUSR2, and waits until it has run.
void trial_interrupt(pid_t thread, trial_handler handler);

/// Runs a program and discards its output. \returns its exit status, −1 if it does not start.
int trial_run_program(const char *_Nullable const *_Nonnull arguments, uint64_t *wall_ns, uint64_t *cpu_ns);

// Loads under which captures are taken (storms*.c)

/// The work that the storm's threads execute repeatedly, below TRIAL_STORM_DEPTH
/// calls of trial_storm_descend. The function of the work has `load_` in its name.
typedef enum trial_load {
    TRIAL_LOAD_MALLOC,
    TRIAL_LOAD_RELOAD,   ///< dlopen and dlclose of plugin0…3.so in the folder, at the same address.
    TRIAL_LOAD_ITERATE,  ///< dl_iterate_phdr.
    TRIAL_LOAD_THROW,    ///< C++ exceptions through five frames.
    TRIAL_LOAD_STDIO,
    TRIAL_LOAD_LOCKS,    ///< One mutex shared by all threads.
    TRIAL_LOAD_FORK,
    TRIAL_LOAD_SIGNALS,  ///< The application's own signals, including SIGPROF.
    TRIAL_LOAD_DOZE,     ///< Short sleeps at changing depths.
    TRIAL_LOAD_CHURN,    ///< Threads that end immediately after they have begun.
    TRIAL_LOAD_UNTABLED, ///< Calls of code without an unwind table, consisting of little more than its first and last instructions.
    TRIAL_LOAD_CUSTOM,   ///< The given function.
} trial_load;

enum { TRIAL_STORM_DEPTH = 6, TRIAL_STORM_THREADS = 2 };

typedef struct trial_storm trial_storm;

/// Returns soon; it is called repeatedly until the storm is over.
typedef void (*trial_work)(void);

trial_storm *trial_storm_start(trial_load load, const char *folder, trial_work _Nullable work);
/// For TRIAL_LOAD_CHURN: a thread that was alive a moment ago.
trial_thread trial_storm_thread(trial_storm *storm, int index);
uint64_t trial_storm_rounds(const trial_storm *storm);
void trial_storm_finish(trial_storm *storm);

/// Installs the application's handler of SIGPROF, like one that was installed before the capturer's.
void trial_handle_prof(void);
void trial_throw_once(void);

/// Ends the process with a message and status 3 if trial_watchdog_feed is not called for that time.
void trial_watchdog_start(uint64_t patience_ns);
void trial_watchdog_feed(void);

// A captured stack for a debugger to compare (exact.c, compare_stacks.py)

enum { TRIAL_PUBLISHED_FRAMES = 2048 };

/// Fills the stack that the debugger reads by offset; see exact.c.
void trial_publish_begin(pid_t thread, int round, bool is_frozen, bool is_complete, const char *scene);
/// Publishes that there is no stack. \param is_named: whether the
/// reason is that the thread is on another stack than the given one.
void trial_publish_refusal(bool is_named);
void trial_publish_frame(uint64_t address, bool by_frame_pointer);

/// Makes a running thread spin in a handler of SIGUSR1, wherever it is currently executing, and waits until it does. \returns
/// false if it does not within a second.
bool trial_freeze(pid_t thread);
/// Called once on the thread itself: libdispatch's threads, and the threads they start, block most signals.
void trial_let_freeze(void);
void trial_thaw(void);
/// Stops the process for its debugger, by SIGTRAP.
void trial_call_debugger(void);

/// The output of a command; to be freed.
char *_Nullable trial_output_of(const char *command);

// A stack at each instruction (steps.c)

typedef struct trial_steps {
    uint64_t instructions;
    uint64_t without_table;  ///< Incomplete or wrong, and marked because of code without an unwind table.
    uint64_t wrong;
    uint64_t guessed_wrongly;  ///< Walked like a stalled thread, with two registers known: wrong, and marked as a guess.
} trial_steps;

/// Runs the function twice on a separate thread, the second time single-stepping, `most` instructions, and walks the stack at
/// each. Only one call at a time. \returns false if the processor does not allow a process to single-step.
bool trial_step_through(void (*run)(void *_Nullable context), void *_Nullable context, uint64_t most, trial_steps *steps);
/// Work for it: calls a function whose unwind row is wrong. Nothing on another processor.
void trial_run_misdescribed(void);
/// The stack found and the expected stack. Valid until the next run.
const char *trial_first_wrong_step(void);

// Functions without an unwind table (untabled.c)

typedef struct trial_untabled_tally {
    uint64_t walks;
    uint64_t wrong;   ///< Wrong, and not marked.
    uint64_t marked;  ///< Wrong, and marked: a frame found by the frame pointer or by a search, or the stack's end.
    uint64_t unsure;  ///< Right, but marked as possibly wrong.
} trial_untabled_tally;

typedef struct trial_untabled {
    uint64_t functions, instructions, calls;
    trial_untabled_tally running, asleep;
    uint64_t children_lost;  ///< Child processes that crashed in the function that they stepped through.
} trial_untabled;

/// Steps through one in `every` of the functions in a loaded library that have no unwind table and call another function, and
/// walks the stack at each instruction and in each call. \returns false if the library or the required support is missing.
bool trial_untabled_step_through(const char *library, size_t every, trial_untabled *result);
/// Valid until the next call.
const char *trial_untabled_first_wrong(void);

// What is read of the heap beside a stack (glimpses.c)

/// In how many of some thousand cases it was kept although it has changed, or given up although it has not.
size_t trial_wrong_glimpses(void);

// Code that a running thread can be executing (exact_*.c, exact.cpp). Each function returns soon.

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
