/// Capturing threads of this process by a signal: session.c, request.c, previous.c.
#pragma once

#include "look.h"

#include <signal.h>
#include <stdatomic.h>

#pragma clang assume_nonnull begin

// request.c

/// The capturing thread's request and the handler's answer. `word` says whose turn it is: see request.c.
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

/// Installs the signal handler. \returns 0 or an errno.
int stackcap_handler_install(struct stackcap_session *session);
/// Removes it, unless another handler has replaced ours; ours then stays below that one.
void stackcap_handler_remove(struct stackcap_session *session);
bool stackcap_handler_is_busy(const struct stackcap_session *session);
/// In a forked child, immediately: the request that replaced an ignored signal belongs to its parent. Otherwise the signal
/// would stay handled in the child, and would not be ignored in a program that it executes.
void stackcap_handler_ignore_in_child(struct stackcap_session *session);
/// In a forked child, where no thread is left that could answer.
void stackcap_request_forget(struct stackcap_session *session);

/// Makes a call that our signal has cut short start again when the handler returns, if it is one that never waits: poll and
/// select with a zero timeout, as event loops make them. Even these return EINTR when a signal is pending. A call that waits is
/// not changed: a signal of the application may have been meant to end it. Async-signal-safe; changes errno.
void stackcap_restart_looking_call(const struct stackcap_reader *reader, ucontext_t *context);

#pragma clang assume_nonnull end
