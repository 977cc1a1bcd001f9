/// Capturing threads of this process by a signal: session.c, request.c, handler.c, installation.c, previous.c.
#pragma once

#include "look.h"

#include <signal.h>
#include <stdatomic.h>

#pragma clang assume_nonnull begin

// request.c

/// Whose turn it is to write a request and the copy: see request.c.
enum stackcap_turn { TURN_IDLE, TURN_REQUESTED, TURN_COPYING, TURN_DONE, TURN_WITHDRAWN };

/// The turn is in the lower bits of a request's word, the request's number in the others.
enum { TURN_BITS = 3 };

static inline enum stackcap_turn stackcap_turn_of(uint64_t word) {
    return (enum stackcap_turn)(word & ((1 << TURN_BITS) - 1));
}

static inline uint64_t stackcap_with_turn(uint64_t word, enum stackcap_turn turn) {
    return (word >> TURN_BITS << TURN_BITS) | turn;
}

/// The capturing thread's request and the handler's answer. `word` says whose turn it is.
struct stackcap_request {
    _Atomic uint64_t word;
    _Atomic pid_t thread;
    uint64_t low, high;
    struct stackcap_registers registers;
    int copy_error;
    bool is_foreign;  ///< The thread is on a stack other than its own.
    uint64_t copied_ns;  ///< When it was served.
    pid_t left_open;  ///< The thread whose request nobody waits for, to be found by its next capture; 0 for none. The capturer's.
};

// previous.c

/// The handler that was installed before ours.
struct stackcap_previous {
    _Atomic(const struct sigaction *) action;
    struct sigaction kept[2];
    atomic_bool is_spent;  ///< It was installed to be called once (SA_RESETHAND), and was called.
};

/// Not in a handler.
void stackcap_previous_keep(struct stackcap_previous *previous, const struct sigaction *action);

/// The action to install when ours is removed.
void stackcap_previous_restore(const struct stackcap_previous *previous, struct sigaction *action);

/// The flags of the previous action that apply when the kernel delivers to our handler. They keep the application's choice of
/// what its signal does to system calls, and on which stack it runs.
int stackcap_flags_over(const struct sigaction *action);

/// Acts as the kernel would have without our handler. In the handler.
void stackcap_previous_call(struct stackcap_previous *previous, int signal, siginfo_t *info, void *context);

struct stackcap_session {
    int signal;
    uint32_t mark;  ///< Contained in every signal we send, to distinguish them from the application's own.
    bool open;
    pid_t process;  ///< The process that opened it. A forked child inherits a session that no thread there can close.
    bool in_chain;  ///< Our handler is installed, or another handler may forward signals to it.
    uintptr_t cover;         ///< The handler seen over ours,
    uint64_t passed_before;  ///< … and the number of forwarded signals when it was first seen there.
    struct stackcap_previous previous;

    struct stackcap_request request;
    stackcap_unwinder unwinder;

    _Atomic uint64_t sent_ns;  ///< When the last one was sent.
    _Atomic uint64_t sent, arrived, late, chained, calls_cut_short;
};

// request.c

/// Whether a handler has begun to serve a request and not finished: the copy is then its own.
bool stackcap_handler_is_busy(const struct stackcap_session *session);
/// In a forked child, where no thread is left that could answer.
void stackcap_request_forget(struct stackcap_session *session);

// handler.c

/// The signal handler: an SA_SIGINFO action. Async-signal-safe, allocates nothing, takes no lock, keeps errno. Only for a
/// signal that a session answers for.
void stackcap_handler_run(int signal, siginfo_t *info, void *context);
/// From now on the handler finds this session when its signal arrives. Not in a handler.
void stackcap_handler_answer_for(struct stackcap_session *session);

// installation.c. Not in a handler, like all that the capturer calls. These allocate nothing, take no lock, and change errno.

/// Installs the signal handler, unless the application ignores the signal: then each capture does. \returns 0 or an errno.
int stackcap_handler_install(struct stackcap_session *session);
/// Installs it for one capture, above the application's current handler. \returns 0 or an errno.
int stackcap_handler_put_in_place(struct stackcap_session *session);
/// Removes it, unless another handler has replaced ours; ours then stays below that one.
void stackcap_handler_remove(struct stackcap_session *session);
/// After a capture: removes it if the application ignores the signal, unless a request was left open.
void stackcap_handler_ignore_again(struct stackcap_session *session);
/// In a forked child, immediately: the request that replaced an ignored signal belongs to its parent. Otherwise the signal
/// would stay handled in the child, and would not be ignored in a program that it executes. Async-signal-safe.
void stackcap_handler_ignore_in_child(struct stackcap_session *session);
/// Whether signals still reach our handler. If not, a signal would run the application's handler, or end the process. If a
/// handler was installed over ours, we send signals only after it has forwarded one of its own to us.
bool stackcap_handler_is_reached(struct stackcap_session *session);
/// The covering handler has not forwarded this time: it must forward a signal again before we send.
void stackcap_handler_doubt_cover(struct stackcap_session *session);
/// None of our signals is pending any more: those that have not arrived will not.
void stackcap_handler_forget_pending(struct stackcap_session *session);

// registers_*.c

/// Makes a call that our signal has cut short start again when the handler returns, if it is one that never waits: poll and
/// select with a zero timeout, as event loops make them. Even these return EINTR when a signal is pending. A call that waits is
/// not changed: a signal of the application may have been meant to end it. Async-signal-safe; changes errno.
void stackcap_restart_looking_call(const struct stackcap_reader *reader, ucontext_t *context);

#pragma clang assume_nonnull end
