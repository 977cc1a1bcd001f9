/// The application's own use of the signal: the handler installed before ours gets all signals that are not ours, as if we were
/// not there.
#include "session.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool is_same(const struct sigaction *a, const struct sigaction *b) {
    // The two kinds of handlers share a field; masks are compared in the kernel's format.
    return a->sa_flags == b->sa_flags && a->sa_sigaction == b->sa_sigaction &&
           memcmp(&a->sa_mask, &b->sa_mask, sizeof(uint64_t)) == 0;
}

void stackcap_previous_keep(struct stackcap_previous *previous, const struct sigaction *action) {
    const struct sigaction *current = atomic_load_explicit(&previous->action, memory_order_relaxed);
    // A handler that is still running may be reading the action kept last. That one is not written, whether the action has
    // changed or not.
    if (!current || !is_same(current, action)) {
        struct sigaction *other = current == &previous->kept[0] ? &previous->kept[1] : &previous->kept[0];
        *other = *action;
        atomic_store_explicit(&previous->action, other, memory_order_release);
    }
    atomic_store(&previous->is_spent, false);
}

void stackcap_previous_restore(const struct stackcap_previous *previous, struct sigaction *action) {
    *action = *atomic_load_explicit(&previous->action, memory_order_acquire);
    if (!atomic_load(&previous->is_spent))
        return;
    memset(action, 0, sizeof *action);
    action->sa_handler = SIG_DFL;
}

/// Even with SA_SIGINFO the action may be the default one, or none at all.
static bool is_function(const struct sigaction *action) {
    return action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN;
}

int stackcap_flags_over(const struct sigaction *action) {
    return is_function(action) ? action->sa_flags & (SA_RESTART | SA_ONSTACK | SA_NOCLDSTOP | SA_NOCLDWAIT)
                               : (SA_RESTART | SA_ONSTACK) | (action->sa_flags & (SA_NOCLDSTOP | SA_NOCLDWAIT));
}

/// signal(7). Signals that stop the process are not among them.
static bool default_is_nothing(int signal) {
    return signal == SIGCHLD || signal == SIGURG || signal == SIGWINCH || signal == SIGCONT;
}

/// The kernel drops a signal with its default action that is sent to the first process of a container: pid_namespaces(7).
static void act_by_default(int number) {
    if (default_is_nothing(number) || getpid() == 1)
        return;
    signal(number, SIG_DFL);
    syscall(SYS_tgkill, getpid(), stackcap_own_thread(), number);  // delivered when our handler returns
}

/// The mask that the kernel would have set for it: the interrupted code's, the handler's own sa_mask, and its own signal.
static sigset_t mask_for(const struct sigaction *action, int signal, const ucontext_t *context) {
    sigset_t mask;
    sigemptyset(&mask);
    memcpy(&mask, &context->uc_sigmask, sizeof(uint64_t));  // the kernel's mask has one word, whatever the C library's size
    sigorset(&mask, &mask, &action->sa_mask);
    if (!(action->sa_flags & SA_NODEFER))
        sigaddset(&mask, signal);
    return mask;
}

void stackcap_previous_call(struct stackcap_previous *previous, int signal, siginfo_t *info, void *context) {
    const struct sigaction *action = atomic_load_explicit(&previous->action, memory_order_acquire);
    if (action->sa_handler == SIG_IGN)
        return;
    bool is_once = action->sa_flags & (int)SA_RESETHAND;
    if (!is_function(action) || (is_once && atomic_exchange(&previous->is_spent, true)))
        return act_by_default(signal);
    sigset_t mask = mask_for(action, signal, context), ours;
    sigprocmask(SIG_SETMASK, &mask, &ours);
    if (action->sa_flags & SA_SIGINFO)
        action->sa_sigaction(signal, info, context);
    else
        action->sa_handler(signal);
    sigprocmask(SIG_SETMASK, &ours, NULL);
}
