/// Things that a host process does and that a capture must tolerate. One scenario per process: nothing is undone or freed.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma clang assume_nonnull begin

// Threads (threads.c)

enum { COEXIST_MAX_MARKS = 16 };

/// A thread, and the return addresses that its stack must show while it is captured, outermost first.
typedef struct coexist_thread coexist_thread;

/// What the thread does.
typedef enum coexist_body {
    COEXIST_SPIN,
    COEXIST_SPIN_PINNED,  ///< All of these share one processor.
    COEXIST_WAIT,
    COEXIST_SLEEP,  ///< clock_nanosleep for an hour, which any signal with a handler interrupts, with or without SA_RESTART.
    COEXIST_SPIN_MASKED,
    COEXIST_SPIN_CANCELLED,  ///< Has been cancelled, and reaches no cancellation point (pthreads(7)).
    COEXIST_TOGGLE_MASK,  ///< Blocks and unblocks every signal, continuously.
    COEXIST_EXIT_SOON,
    COEXIST_POLL_SIGNAL,  ///< Computes with SIGPROF blocked, and polls for it with sigtimedwait now and then.
    COEXIST_SPIN_ON_ALTERNATE_STACK,
    COEXIST_WAIT_ON_ALTERNATE_STACK,
    COEXIST_SPIN_NESTED,  ///< A handler that interrupted a handler, both on the alternate stack.
    COEXIST_SPIN_DEEP_BELOW_ALTERNATE,  ///< 400 KiB deep when the handler was called.
    COEXIST_SPIN_ON_COROUTINE,
    COEXIST_WAIT_ON_COROUTINE,
    COEXIST_SWITCH_COROUTINES,  ///< Back and forth, continuously.
    COEXIST_VFORK,        ///< The child computes on the parent's stack, below it.
    COEXIST_POSIX_SPAWN,  ///< The child hangs in a file action.
    COEXIST_URING_WAIT,   ///< io_uring_enter, for a completion that never happens.
    COEXIST_SPIN_STRICT,     ///< In seccomp's strict mode, in which any call but read, write, sigreturn and exit ends the thread.
    COEXIST_SPIN_SANDBOXED,  ///< With process_vm_readv forbidden to this thread; a call kills it.
} coexist_body;

/// Starts a thread with no signal blocked, and waits until it has reached the place where it will be captured.
coexist_thread *coexist_start(coexist_body body);

pid_t coexist_thread_number(const coexist_thread *thread);
uint64_t coexist_stack_low(const coexist_thread *thread);
uint64_t coexist_stack_high(const coexist_thread *thread);
size_t coexist_mark_count(const coexist_thread *thread);
uint64_t coexist_mark(const coexist_thread *thread, size_t index);
/// Whether the call in which it sleeps has returned.
bool coexist_has_returned(const coexist_thread *thread);
/// The number of completed rounds.
uint64_t coexist_rounds(const coexist_thread *thread);
/// Ends a thread that can end, and waits for it.
void coexist_finish(coexist_thread *thread);

uint64_t coexist_signals_taken(void);               ///< The number of signals that COEXIST_POLL_SIGNAL received.

// Waits in the kernel (waits.c)

/// Creates a ring that a kernel thread polls. \returns the number of that thread, 0 if io_uring is not available.
pid_t coexist_uring_poller(void);

// Signals (signals.c)

typedef enum coexist_handler {
    COEXIST_PLAIN = 1,      ///< Takes only the signal number.
    COEXIST_INFO = 2,       ///< SA_SIGINFO.
    COEXIST_ONCE = 4,       ///< SA_RESETHAND.
    COEXIST_NO_DEFER = 8,   ///< SA_NODEFER.
    COEXIST_MASK = 16,      ///< With SIGUSR2 in its mask.
    COEXIST_IGNORE = 32,
    COEXIST_DEFAULT = 64,   ///< The default action, with the other flags.
} coexist_handler;

/// Installs the application's handler for a signal, which counts its calls.
void coexist_install(int signal, int kind);
uint64_t coexist_handled(void);
/// Whether the handler had the signal blocked during its last call.
bool coexist_handler_blocked(int signal);
/// Whether the handler received the sender's number and a context.
bool coexist_handler_had_info(void);
bool coexist_handler_is_ours(int signal);  ///< The handler of coexist_install or coexist_cover.
bool coexist_handler_is_default(int signal);
bool coexist_handler_is_ignore(int signal);
bool coexist_handler_restarts(int signal);  ///< The installed action has SA_RESTART.

/// Whether the kernel blocks every signal while the installed handler runs, including the C library's own, 32 and 33.
bool coexist_handler_blocks_all(int signal);

/// Installs a handler over the current one, and forwards signals to it if `passes_on`.
void coexist_cover(int signal, bool passes_on);
void coexist_uncover(int signal);

void coexist_send(pid_t thread, int signal);
/// Sends it, and returns when it is no longer pending for the thread: handled, or ignored.
void coexist_send_and_wait(pid_t thread, int signal);
/// setitimer(ITIMER_PROF).
void coexist_profile(int interval_us);
/// timer_create, for one thread.
void coexist_profile_thread(pid_t thread, int interval_us);
/// Starts or stops gperftools' CPU profiler, if it is loaded. \returns false if it is not loaded, or no profile was written.
bool coexist_gperftools(bool start);
/// Sets RLIMIT_SIGPENDING, so that no signal can be queued any more.
void coexist_forbid_queueing(void);

// Sandboxes, tracers, forks (process.c)

enum { COEXIST_ERROR, COEXIST_TRAP, COEXIST_KILL };

/// Forbids a system call, for the calling thread or for all: seccomp(2). \returns whether that succeeded.
bool coexist_forbid(int call, int action, bool everywhere);
/// Whether a thread can enter seccomp's strict mode: not under a filter.
bool coexist_has_strict_mode(void);
extern const int coexist_call_process_vm_readv, coexist_call_rt_tgsigqueueinfo;
/// Changes to the user nobody, and makes the process not dumpable. \returns whether that succeeded.
bool coexist_drop_rights(void);
/// As a process may do that has changed its user. \returns whether it may.
bool coexist_be_dumpable(void);
/// Closes every descriptor except the first three, and opens others with the same numbers.
void coexist_replace_descriptors(void);
/// Makes another process attach to the thread, stop it, and keep it stopped.
bool coexist_trace(pid_t thread);
/// Starts another process that repeatedly stops this one for a while.
pid_t coexist_stop_now_and_then(void);
/// Ends that process, of which there is one at a time, and waits for its end.
void coexist_stop_no_more(pid_t stopper);
/// fork(2). \returns the child's wait status, −1 if it hangs for ten seconds. The child calls `body` and exits with its result.
int coexist_in_child(int (*body)(void *_Nullable context), void *_Nullable context);
enum { COEXIST_NO_NAMESPACE = -2 };
/// The same in a process with number 1, as in a container. \returns the body's result, −1 if it hangs or ends otherwise;
/// COEXIST_NO_NAMESPACE if such a process is not permitted.
int coexist_in_first_process(int (*body)(void *_Nullable context), void *_Nullable context);
/// Runs a program with one additional environment entry and stores its output
/// in `text`. \returns its wait status; −1 if it takes longer than a minute.
int coexist_run(const char *const _Nullable *_Nonnull arguments, const char *_Nullable entry, char *text, size_t size);

// C++ (exceptions.cpp)

/// Throws and catches, 20 frames apart. \returns nanoseconds per exception, 0 if one was not caught.
uint64_t coexist_throw(int count);

#pragma clang assume_nonnull end

#ifdef __cplusplus
}
#endif
