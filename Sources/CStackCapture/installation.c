/// Which handler has the signal: ours is installed over the application's, kept out of its way, and removed again.
///
/// The application may change the signal's action at any time. Therefore each change of ours looks at what it has replaced.
#include "session.h"

#include <errno.h>
#include <string.h>

// Which handler has the signal.

static uintptr_t handler_of(const struct sigaction *action) {
    return action->sa_flags & SA_SIGINFO ? (uintptr_t)action->sa_sigaction : (uintptr_t)action->sa_handler;
}

static bool is_function(uintptr_t handler) {
    return handler != (uintptr_t)SIG_DFL && handler != (uintptr_t)SIG_IGN;
}

static uintptr_t installed_handler(const stackcap_session *session) {
    struct sigaction current;
    return sigaction(session->signal, NULL, &current) == 0 ? handler_of(&current) : (uintptr_t)SIG_DFL;
}

static bool is_on_top(const stackcap_session *session) {
    return installed_handler(session) == (uintptr_t)stackcap_handler_run;
}

bool stackcap_handler_is_reached(stackcap_session *session) {
    uintptr_t handler = installed_handler(session);
    if (handler == (uintptr_t)stackcap_handler_run)
        return true;
    if (handler != session->cover) {
        session->cover = handler;
        session->passed_before = atomic_load(&session->chained);
    }
    return is_function(handler) && atomic_load(&session->chained) > session->passed_before;
}

void stackcap_handler_doubt_cover(stackcap_session *session) {
    session->passed_before = atomic_load(&session->chained);
}

// Installing and removing the handler.

static bool is_ignored(const struct sigaction *action) {
    return handler_of(action) == (uintptr_t)SIG_IGN;
}

/// An application that read our action may have reinstalled it: our handler must not become its own previous one.
static void keep_previous(stackcap_session *session, const struct sigaction *action) {
    if (handler_of(action) != (uintptr_t)stackcap_handler_run)
        stackcap_previous_keep(&session->previous, action);
}

static int put_over(stackcap_session *session, const struct sigaction *current) {
    struct sigaction found, action;
    keep_previous(session, current);
    stackcap_handler_answer_for(session);
    memset(&action, 0, sizeof action);
    action.sa_sigaction = stackcap_handler_run;
    action.sa_flags = SA_SIGINFO | stackcap_flags_over(current);
    // All signals: sigfillset(3) leaves out the C library's own two. By one of them a thread with asynchronous cancellation would
    // end in the middle of its copy, and the request would stay with it for ever.
    memset(&action.sa_mask, 0xff, sizeof action.sa_mask);
    if (sigaction(session->signal, &action, &found) != 0)
        return errno;
    if (handler_of(&found) != handler_of(current))  // another handler was installed in between
        keep_previous(session, &found);
    session->in_chain = true;
    return 0;
}

int stackcap_handler_put_in_place(stackcap_session *session) {
    struct sigaction current;
    return sigaction(session->signal, NULL, &current) == 0 ? put_over(session, &current) : errno;
}

int stackcap_handler_install(stackcap_session *session) {
    struct sigaction current;
    if (sigaction(session->signal, NULL, &current) != 0)
        return errno;
    // Below a handler that may forward signals to us, ours is already in place. Above it, the two would call each other.
    session->cover = handler_of(&current);
    stackcap_handler_doubt_cover(session);
    if (session->in_chain && is_function(session->cover))
        return 0;
    session->in_chain = false;
    // See stackcap_handler_ignore_again.
    return is_ignored(&current) ? 0 : put_over(session, &current);
}

/// Replaces our action, unless the application has installed its own in the meantime: that one stays.
/// \returns whether ours was replaced.
static bool replace(const stackcap_session *session, uintptr_t ours, const struct sigaction *action) {
    struct sigaction found;
    if (sigaction(session->signal, action, &found) != 0)
        return false;
    if (handler_of(&found) == ours)
        return true;
    sigaction(session->signal, &found, NULL);
    return false;
}

void stackcap_handler_forget_pending(stackcap_session *session) {
    atomic_store(&session->arrived, atomic_load(&session->sent));
}

/// Signals that were sent and have not arrived would reach the handler that we restore, and the default action ends the
/// process. Ignoring a signal discards pending instances of it on every thread (signal(7), POSIX 2.4.3).
static bool discard_pending(stackcap_session *session) {
    struct sigaction ignore;
    memset(&ignore, 0, sizeof ignore);
    ignore.sa_handler = SIG_IGN;
    if (!replace(session, (uintptr_t)stackcap_handler_run, &ignore))
        return false;
    stackcap_handler_forget_pending(session);
    return true;
}

void stackcap_handler_remove(stackcap_session *session) {
    struct sigaction previous;
    uintptr_t ours = (uintptr_t)stackcap_handler_run;
    if (!is_on_top(session))
        return;
    stackcap_previous_restore(&session->previous, &previous);
    if (!is_ignored(&previous) && atomic_load(&session->sent) != atomic_load(&session->arrived)) {
        if (!discard_pending(session))
            return;
        ours = (uintptr_t)SIG_IGN;
    }
    session->in_chain = !replace(session, ours, &previous);
    if (!session->in_chain && is_ignored(&previous))
        stackcap_handler_forget_pending(session);
}

/// An ignored signal interrupts no call, but with any handler it does, even one that forwards it to nobody: SA_RESTART does not
/// help a sleep. So if the application ignores the signal, ours is installed only while a request is open. Pending signals of
/// our own are discarded then, which is correct: nobody waits for them. A program that the application executes gets the signal
/// ignored, too.
void stackcap_handler_ignore_again(stackcap_session *session) {
    const struct sigaction *previous = atomic_load_explicit(&session->previous.action, memory_order_relaxed);
    if (session->in_chain && !session->request.left_open && previous && is_ignored(previous))
        stackcap_handler_remove(session);
}

void stackcap_handler_ignore_in_child(stackcap_session *session) {
    const struct sigaction *previous = atomic_load_explicit(&session->previous.action, memory_order_acquire);
    if (previous && is_ignored(previous) && is_on_top(session))
        session->in_chain = sigaction(session->signal, previous, NULL) != 0;
}
