/// What a host process does that a capture has to get along with. One scenario to a process: nothing here is undone or freed.
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

/// What it does.
typedef enum coexist_body {
    COEXIST_SPIN,
    COEXIST_SPIN_PINNED,  ///< All of these share one processor.
    COEXIST_WAIT,
    COEXIST_SLEEP,  ///< clock_nanosleep for an hour, which any signal that has a handler cuts short: SA_RESTART or not.
    COEXIST_SPIN_MASKED,
    COEXIST_TOGGLE_MASK,  ///< Blocks and unblocks every signal, all the time.
    COEXIST_EXIT_SOON,
    COEXIST_POLL_SIGNAL,  ///< Computes with SIGPROF blocked, and asks sigtimedwait for it now and then.
    COEXIST_SPIN_ON_ALTERNATE_STACK,
    COEXIST_WAIT_ON_ALTERNATE_STACK,
    COEXIST_SPIN_NESTED,  ///< A handler that interrupted a handler, both on the alternate stack.
    COEXIST_SPIN_DEEP_BELOW_ALTERNATE,  ///< 400 KiB deep when the handler struck.
    COEXIST_SPIN_ON_COROUTINE,
    COEXIST_WAIT_ON_COROUTINE,
    COEXIST_SWITCH_COROUTINES,  ///< Back and forth, all the time.
    COEXIST_VFORK,        ///< The child computes on the parent's stack, below it.
    COEXIST_POSIX_SPAWN,  ///< The child hangs in a file action.
    COEXIST_URING_WAIT,   ///< io_uring_enter, for a completion that does not come.
    COEXIST_SPIN_SANDBOXED,  ///< With process_vm_readv forbidden to this thread, on pain of death.
} coexist_body;

/// Starts a thread with no signal blocked, and waits until it is where it is to be captured.
coexist_thread *coexist_start(coexist_body body);

pid_t coexist_thread_number(const coexist_thread *thread);
uint64_t coexist_stack_low(const coexist_thread *thread);
uint64_t coexist_stack_high(const coexist_thread *thread);
size_t coexist_mark_count(const coexist_thread *thread);
uint64_t coexist_mark(const coexist_thread *thread, size_t index);
/// Whether the call that it was to sleep in has returned.
bool coexist_has_returned(const coexist_thread *thread);
/// Times it has gone round.
uint64_t coexist_rounds(const coexist_thread *thread);
/// Lets a thread end that can, and waits for it.
void coexist_finish(coexist_thread *thread);

uint64_t coexist_signals_taken(void);               ///< What COEXIST_POLL_SIGNAL found.

// Waits in the kernel (waits.c)

/// Makes a ring that a thread of the kernel polls. \returns that thread's number, 0 if the kernel has no io_uring for us.
pid_t coexist_uring_poller(void);

// Signals (signals.c)

typedef enum coexist_handler {
    COEXIST_PLAIN = 1,      ///< Takes the number only.
    COEXIST_INFO = 2,       ///< SA_SIGINFO.
    COEXIST_ONCE = 4,       ///< SA_RESETHAND.
    COEXIST_NO_DEFER = 8,   ///< SA_NODEFER.
    COEXIST_MASK = 16,      ///< With SIGUSR2 in its mask.
    COEXIST_IGNORE = 32,
} coexist_handler;

/// The application's handler for a signal, which counts.
void coexist_install(int signal, int kind);
uint64_t coexist_handled(void);
/// Whether the handler, when it last ran, had the signal blocked.
bool coexist_handler_blocked(int signal);
/// Whether it was given the sender's number and a context.
bool coexist_handler_had_info(void);
bool coexist_handler_is_ours(int signal);  ///< coexist_install's, or coexist_cover's.
bool coexist_handler_is_default(int signal);
bool coexist_handler_is_ignore(int signal);
bool coexist_handler_restarts(int signal);  ///< SA_RESTART is set on what is installed.

/// Puts a handler over the one that is installed, and has it called or not.
void coexist_cover(int signal, bool passes_on);
void coexist_uncover(int signal);

void coexist_send(pid_t thread, int signal);
/// Sends it, and returns when the thread has it no longer: handled, or ignored.
void coexist_send_and_wait(pid_t thread, int signal);
/// setitimer(ITIMER_PROF).
void coexist_profile(int interval_us);
/// timer_create, to one thread.
void coexist_profile_thread(pid_t thread, int interval_us);
/// Starts or ends gperftools' CPU profiler, if it is loaded. \returns false where it is not, and if there is no profile in the end.
bool coexist_gperftools(bool start);
/// RLIMIT_SIGPENDING: nothing can be queued any more.
void coexist_forbid_queueing(void);

// Sandboxes, tracers, forks (process.c)

enum { COEXIST_ERROR, COEXIST_TRAP, COEXIST_KILL };

/// Forbids a system call, to the calling thread or to all: seccomp(2). \returns whether that worked.
bool coexist_forbid(int call, int action, bool everywhere);
extern const int coexist_call_process_vm_readv, coexist_call_rt_tgsigqueueinfo;
/// Becomes nobody, and not dumpable. \returns whether that worked.
bool coexist_drop_rights(void);
/// Closes every descriptor but the first three and opens others in their place.
void coexist_replace_descriptors(void);
/// Has another process attach to the thread, stop it, and keep it so.
bool coexist_trace(pid_t thread);
/// Has another process stop this one for a while, again and again.
pid_t coexist_stop_now_and_then(void);
void coexist_end_child(pid_t process);
/// fork(2), and how the child ended: wait status, −1 if it hangs for ten seconds. The child calls `body` and exits with what it returns.
int coexist_in_child(int (*body)(void *_Nullable context), void *_Nullable context);
/// Runs a program, with one more environment entry, its output in `text`. \returns its wait status; −1 if it takes longer than a minute.
int coexist_run(const char *const _Nullable *_Nonnull arguments, const char *_Nullable entry, char *text, size_t size);

// C++ (exceptions.cpp)

/// Throws and catches, 20 frames apart. \returns nanoseconds for each, 0 if one was not caught.
uint64_t coexist_throw(int count);

#pragma clang assume_nonnull end

#ifdef __cplusplus
}
#endif
