/// A running thread copies its own stack on request: the request, the signal handler, and the wait.
///
/// The word of a request holds its number and whose turn it is. REQUESTED is left only by compare-and-swap, so a request is
/// either served or withdrawn, never both:
///
///     IDLE ──capturer──> REQUESTED ──handler──> COPYING ──handler──> DONE ──capturer──> (next request)
///                            └──────capturer──> WITHDRAWN ─────────────────capturer──> (next request)
///
/// A request can be left open beyond its deadline: a thread that gets no processor serves it when it runs. The request then
/// stays REQUESTED while nobody waits, and the next operation on the session settles it first.
///
/// While the word is COPYING, request and copy belong to the handler. The number prevents a handler that was delayed between
/// reading the word and its swap from serving a later request as its own.
#include "session.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum turn { IDLE, REQUESTED, COPYING, DONE, WITHDRAWN };
enum { TURN_BITS = 3 };

static enum turn turn_of(uint64_t word) {
    return (enum turn)(word & ((1 << TURN_BITS) - 1));
}

static uint64_t with_turn(uint64_t word, enum turn turn) {
    return (word >> TURN_BITS << TURN_BITS) | turn;
}

static _Atomic(stackcap_session *) sessions[NSIG];

// The handler. It may interrupt anything, on any thread: it uses only system calls and the session's own memory.

static bool is_marked(const stackcap_session *session, const siginfo_t *info) {
    return info->si_code == SI_QUEUE && (uint64_t)(uintptr_t)info->si_value.sival_ptr == (uint64_t)session->mark << 32;
}

/// If the user's signal queue is full (RLIMIT_SIGPENDING), the kernel still delivers our signal, but without a sender. It must
/// not be forwarded: the default action ends the process. The time limit prevents signals from outside a container, which look
/// the same, from being taken for ours indefinitely after one of ours was lost. The age is negative if another signal was sent after the
/// clock was read.
static bool lost_its_mark(const stackcap_session *session, const siginfo_t *info) {
    enum { LONGEST_WAY_NS = 1000000000 };
    return info->si_code == SI_USER && info->si_pid == 0 &&
           atomic_load_explicit(&session->sent, memory_order_relaxed) !=
               atomic_load_explicit(&session->arrived, memory_order_relaxed) &&
           (int64_t)(stackcap_now_ns() - atomic_load_explicit(&session->sent_ns, memory_order_relaxed)) < LONGEST_WAY_NS;
}

static void copy_own_stack(stackcap_session *session, const ucontext_t *context) {
    struct stackcap_request *request = &session->request;
    uint64_t began = stackcap_now_ns();
    request->copied_ns = began;
    stackcap_loader_read(&session->unwinder.loader);
    stackcap_registers_from_context(&request->registers, context);
    uint64_t stack_pointer = request->registers.value[REGISTER_STACK_POINTER];
    request->is_foreign = stack_pointer < request->low || stack_pointer >= request->high;
    request->copy_error = (request->is_foreign ? stackcap_copy_foreign_stack : stackcap_copy_stack)(
        &session->unwinder, stack_pointer, request->low, request->high);
    if (!request->copy_error)
        stackcap_async_glimpse(&session->unwinder, request->registers.value[REGISTER_ASYNC_CONTEXT]);
    session->unwinder.copy.held_ns = stackcap_now_ns() - began;
}

/// Answers the open request if it is for this thread. It does not matter whether our signal or the application's started the
/// handler: a pending signal absorbs the next one of its number, and the requested stack is this thread's current one.
/// \returns whether there was a request.
static bool serve(stackcap_session *session, const ucontext_t *context) {
    struct stackcap_request *request = &session->request;
    uint64_t word = atomic_load_explicit(&request->word, memory_order_acquire);  // pairs with publish()
    bool mine = turn_of(word) == REQUESTED &&
                atomic_load_explicit(&request->thread, memory_order_relaxed) == stackcap_own_thread();
    uint64_t copying = with_turn(word, COPYING);
    if (!mine || !atomic_compare_exchange_strong(&request->word, &word, copying))
        return false;
    copy_own_stack(session, context);
    // Pairs with the acquire in wait_until(): the copy is complete before it is seen as done.
    atomic_store_explicit(&request->word, with_turn(word, DONE), memory_order_release);
    return true;
}

/// Discarded signals are counted as arrived (see settle_account), so a handler that was delayed in the meantime counts nothing.
static void count_arrival(stackcap_session *session) {
    uint64_t arrived = atomic_load_explicit(&session->arrived, memory_order_relaxed);
    while (arrived < atomic_load_explicit(&session->sent, memory_order_relaxed) &&
           !atomic_compare_exchange_weak_explicit(&session->arrived, &arrived, arrived + 1, memory_order_relaxed,
                                                  memory_order_relaxed))
        continue;
}

/// The signal that this thread is forwarding. In the thread's static TLS block: the first use of any other kind may allocate.
static _Thread_local struct {
    const void *context;
    uintptr_t frame;
} passing __attribute__((tls_model("initial-exec")));

/// An application may have read our action while it was installed, and installed its handler while it was not. Then its handler
/// forwards to ours, and ours to it, and ours is called again deeper in the stack for the same interruption. (A handler that
/// was left earlier by a jump may have had the same context, but not deeper.)
static bool came_round(const void *context, uintptr_t frame) {
    return context == passing.context && frame < passing.frame;
}

static void pass_on(stackcap_session *session, int signal, siginfo_t *info, void *context, uintptr_t frame) {
    const void *outer_context = passing.context;
    uintptr_t outer_frame = passing.frame;
    passing.context = context;
    passing.frame = frame;
    atomic_fetch_add_explicit(&session->chained, 1, memory_order_relaxed);
    stackcap_previous_call(&session->previous, signal, info, context);
    passing.context = outer_context;
    passing.frame = outer_frame;
}

static void on_signal(int signal, siginfo_t *info, void *context) {
    int saved_errno = errno;
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    stackcap_session *session = atomic_load_explicit(&sessions[signal], memory_order_acquire);
    bool ours = is_marked(session, info) || lost_its_mark(session, info);
    if (ours)
        stackcap_restart_looking_call(&session->unwinder.reader, context);
    bool served = serve(session, context);
    if (ours) {
        count_arrival(session);
        atomic_fetch_add_explicit(&session->late, served ? 0 : 1, memory_order_relaxed);
    } else if (!came_round(context, frame))
        pass_on(session, signal, info, context, frame);
    errno = saved_errno;
}

// The capturer's part.

/// \returns false while a handler of an earlier request still owns the copy.
static bool publish(struct stackcap_request *request, pid_t thread, uint64_t low, uint64_t high) {
    uint64_t word = atomic_load_explicit(&request->word, memory_order_acquire);
    if (turn_of(word) == COPYING)
        return false;
    atomic_store_explicit(&request->thread, thread, memory_order_relaxed);
    request->low = low;
    request->high = high;
    uint64_t next = ((word >> TURN_BITS) + 1) << TURN_BITS;
    atomic_store_explicit(&request->word, next | REQUESTED, memory_order_release);
    return true;
}

/// \returns whether the request was still open; if not, a handler has begun to serve it.
static bool withdraw(struct stackcap_request *request) {
    uint64_t word = atomic_load_explicit(&request->word, memory_order_acquire);
    return turn_of(word) == REQUESTED &&
           atomic_compare_exchange_strong(&request->word, &word, with_turn(word, WITHDRAWN));
}

static int send(stackcap_session *session, pid_t thread) {
    siginfo_t info;
    memset(&info, 0, sizeof info);
    info.si_code = SI_QUEUE;
    info.si_pid = session->unwinder.reader.process;
    info.si_uid = getuid();
    info.si_value.sival_ptr = (void *)((uintptr_t)session->mark << 32);
    atomic_store_explicit(&session->sent_ns, stackcap_now_ns(), memory_order_relaxed);
    atomic_fetch_add_explicit(&session->sent, 1, memory_order_relaxed);
    if (syscall(SYS_rt_tgsigqueueinfo, session->unwinder.reader.process, thread, session->signal, &info) == 0)
        return 0;
    atomic_fetch_sub_explicit(&session->sent, 1, memory_order_relaxed);
    return errno;
}

static bool exists(const stackcap_session *session, pid_t thread) {
    return syscall(SYS_tgkill, session->unwinder.reader.process, thread, 0) == 0;
}

/// Polls, at first without pauses: a wake-up call in the handler would double the pause of the target. Returns early if the
/// thread exits.
/// \returns whether the handler is done.
static bool wait_until(const stackcap_session *session, pid_t thread, uint64_t deadline_ns) {
    const struct stackcap_request *request = &session->request;
    uint64_t began = stackcap_now_ns();
    for (long rest_ns = 10000;;) {
        if (turn_of(atomic_load_explicit(&request->word, memory_order_acquire)) == DONE)
            return true;
        uint64_t now = stackcap_now_ns();
        if (now >= deadline_ns)
            return false;
        if (now - began < 50000) {
            atomic_signal_fence(memory_order_seq_cst);
            continue;
        }
        struct timespec rest = {0, rest_ns};
        nanosleep(&rest, NULL);
        if (!exists(session, thread))
            return turn_of(atomic_load_explicit(&request->word, memory_order_acquire)) == DONE;
        rest_ns = rest_ns < 320000 ? rest_ns * 2 : rest_ns;
    }
}

/// If a call returned EINTR at the point that our signal interrupted, the signal cut it short. This happens to a thread that
/// entered the call between our last sample and the signal.
static void count_call_cut_short(stackcap_session *session) {
    uint8_t before[SYSTEM_CALL_LENGTH];
    int64_t result;
    uint64_t program_counter = session->unwinder.registers.value[REGISTER_PROGRAM_COUNTER];
    if (stackcap_peek(&session->unwinder, program_counter - sizeof before, before, sizeof before) &&
        stackcap_returned_from_call(&session->unwinder.registers, before, &result) && result == -EINTR)
        atomic_fetch_add_explicit(&session->calls_cut_short, 1, memory_order_relaxed);
}

static stackcap_outcome take_answer(stackcap_session *session) {
    const struct stackcap_request *request = &session->request;
    if (request->copy_error)
        return (stackcap_outcome){request->is_foreign ? STACKCAP_OUT_OF_BOUNDS : STACKCAP_UNREADABLE, request->copy_error};
    session->unwinder.registers = request->registers;
    session->unwinder.registers_are_guessed = false;
    stackcap_pages_forget(&session->unwinder.pages);
    if (request->high == UINT64_MAX)
        stackcap_bound_copy(&session->unwinder, session->unwinder.copy.inner.start + session->unwinder.copy.inner.length);
    count_call_cut_short(session);
    return (stackcap_outcome){STACKCAP_OK, 0};
}

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
    return installed_handler(session) == (uintptr_t)on_signal;
}

/// Whether signals still reach our handler. If not, a signal would run the application's handler, or end the process. If a
/// handler was installed over ours, we send signals only after it has forwarded one of its own to us.
static bool is_reached(stackcap_session *session) {
    uintptr_t handler = installed_handler(session);
    if (handler == (uintptr_t)on_signal)
        return true;
    if (handler != session->cover) {
        session->cover = handler;
        session->passed_before = atomic_load(&session->chained);
    }
    return is_function(handler) && atomic_load(&session->chained) > session->passed_before;
}

/// The covering handler has not forwarded this time: it must forward a signal again before we send.
static void doubt_cover(stackcap_session *session) {
    session->passed_before = atomic_load(&session->chained);
}

// Installing and removing the handler.

static bool is_ignored(const struct sigaction *action) {
    return handler_of(action) == (uintptr_t)SIG_IGN;
}

/// An application that read our action may have reinstalled it: our handler must not become its own previous one.
static void keep_previous(stackcap_session *session, const struct sigaction *action) {
    if (handler_of(action) != (uintptr_t)on_signal)
        stackcap_previous_keep(&session->previous, action);
}

static int put_over(stackcap_session *session, const struct sigaction *current) {
    struct sigaction found, action;
    keep_previous(session, current);
    atomic_store_explicit(&sessions[session->signal], session, memory_order_release);
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_signal;
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

/// For a capture: above the application's current handler.
static int put_in_place(stackcap_session *session) {
    struct sigaction current;
    return sigaction(session->signal, NULL, &current) == 0 ? put_over(session, &current) : errno;
}

int stackcap_handler_install(stackcap_session *session) {
    struct sigaction current;
    if (sigaction(session->signal, NULL, &current) != 0)
        return errno;
    // Below a handler that may forward signals to us, ours is already in place. Above it, the two would call each other.
    session->cover = handler_of(&current);
    doubt_cover(session);
    if (session->in_chain && is_function(session->cover))
        return 0;
    session->in_chain = false;
    // See ignore_again().
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

/// None of our signals is pending any more.
static void settle_account(stackcap_session *session) {
    atomic_store(&session->arrived, atomic_load(&session->sent));
}

/// Signals that were sent and have not arrived would reach the handler that we restore, and the default action ends the
/// process. Ignoring a signal discards pending instances of it on every thread (signal(7), POSIX 2.4.3).
static bool discard_pending(stackcap_session *session) {
    struct sigaction ignore;
    memset(&ignore, 0, sizeof ignore);
    ignore.sa_handler = SIG_IGN;
    if (!replace(session, (uintptr_t)on_signal, &ignore))
        return false;
    settle_account(session);
    return true;
}

void stackcap_handler_remove(stackcap_session *session) {
    struct sigaction previous;
    uintptr_t ours = (uintptr_t)on_signal;
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
        settle_account(session);
}

/// An ignored signal interrupts no call, but with any handler it does, even one that forwards it to nobody: SA_RESTART does not
/// help a sleep. So if the application ignores the signal, ours is installed only while a request is open. Pending signals of
/// our own are discarded then, which is correct: nobody waits for them. A program that the application executes gets the signal
/// ignored, too.
static void ignore_again(stackcap_session *session) {
    const struct sigaction *previous = atomic_load_explicit(&session->previous.action, memory_order_relaxed);
    if (session->in_chain && !session->request.left_open && previous && is_ignored(previous))
        stackcap_handler_remove(session);
}

void stackcap_handler_ignore_in_child(stackcap_session *session) {
    const struct sigaction *previous = atomic_load_explicit(&session->previous.action, memory_order_acquire);
    if (previous && is_ignored(previous) && is_on_top(session))
        session->in_chain = sigaction(session->signal, previous, NULL) != 0;
}

/// The last sample and the signal: no other work may come between them.
static stackcap_outcome look_and_send(stackcap_session *session, pid_t thread) {
    stackcap_look look;
    stackcap_outcome outcome = stackcap_look_at(thread, &look);
    if (outcome.status != STACKCAP_OK)
        return outcome;
    if (look.state != STACKCAP_STATE_RUNNING)
        return (stackcap_outcome){STACKCAP_MOVED, 0};
    int error = send(session, thread);
    if (error)
        return (stackcap_outcome){error == ESRCH ? STACKCAP_GONE : STACKCAP_FAILED, error};
    return (stackcap_outcome){STACKCAP_OK, 0};
}

/// Requests the copy, when our handler is known to be reached.
static stackcap_outcome have_copied(stackcap_session *session, pid_t thread, uint64_t low, uint64_t high,
                                    uint64_t deadline_ns, bool stays_open) {
    struct stackcap_request *request = &session->request;
    if (!publish(request, thread, low, high))
        return (stackcap_outcome){STACKCAP_STUCK, 0};
    stackcap_outcome outcome = look_and_send(session, thread);
    // Even a request without a signal may be served by a late signal of an earlier one; its answer is then just as valid.
    if (outcome.status != STACKCAP_OK && withdraw(request))
        return outcome;
    if (wait_until(session, thread, deadline_ns))
        return take_answer(session);
    if (stays_open && exists(session, thread)) {
        request->left_open = thread;
        return (stackcap_outcome){STACKCAP_NOT_DELIVERED, 0};
    }
    if (withdraw(request)) {
        doubt_cover(session);
        return (stackcap_outcome){exists(session, thread) ? STACKCAP_NOT_DELIVERED : STACKCAP_GONE, 0};
    }
    return wait_until(session, thread, 0) ? take_answer(session) : (stackcap_outcome){STACKCAP_STUCK, 0};
}

stackcap_outcome stackcap_copy_running(stackcap_session *session, pid_t thread, uint64_t low, uint64_t high,
                                       const stackcap_progress *seen, uint64_t deadline_ns, bool stays_open) {
    if (seen->is_strict)
        return (stackcap_outcome){STACKCAP_REFUSED, EPERM};
    if (stackcap_handler_is_busy(session))
        return (stackcap_outcome){STACKCAP_STUCK, 0};
    int error = stackcap_reader_refresh(&session->unwinder.reader, seen->is_filtered);
    if (error)
        return (stackcap_outcome){STACKCAP_UNREADABLE, error};
    if (!session->in_chain && (error = put_in_place(session)) != 0)
        return (stackcap_outcome){STACKCAP_FAILED, error};
    stackcap_outcome outcome = is_reached(session)
                                   ? have_copied(session, thread, low, high, deadline_ns, stays_open)
                                   : (stackcap_outcome){STACKCAP_IN_USE, 0};
    ignore_again(session);
    return outcome;
}

void stackcap_settle(stackcap_session *session) {
    struct stackcap_request *request = &session->request;
    pid_t thread = request->left_open;
    if (!thread)
        return;
    request->left_open = 0;
    if (withdraw(request))
        doubt_cover(session);
    else  // A handler that has begun needs microseconds, once it has a processor.
        wait_until(session, thread, stackcap_now_ns() + 1000000);
    ignore_again(session);
}

stackcap_outcome stackcap_take_left_open(stackcap_session *session, pid_t thread, uint64_t *copied_ns) {
    struct stackcap_request *request = &session->request;
    if (!thread || request->left_open != thread)
        return (stackcap_outcome){STACKCAP_NOT_DELIVERED, 0};
    stackcap_settle(session);
    if (turn_of(atomic_load_explicit(&request->word, memory_order_acquire)) != DONE)
        return (stackcap_outcome){STACKCAP_NOT_DELIVERED, 0};
    *copied_ns = request->copied_ns;
    return take_answer(session);
}

bool stackcap_handler_is_busy(const stackcap_session *session) {
    return turn_of(atomic_load_explicit(&session->request.word, memory_order_acquire)) == COPYING;
}

void stackcap_request_forget(stackcap_session *session) {
    session->request.left_open = 0;
    settle_account(session);  // a forked child inherits no pending signals
    uint64_t word = atomic_load_explicit(&session->request.word, memory_order_acquire);
    atomic_store_explicit(&session->request.word, with_turn(word, IDLE), memory_order_release);
    ignore_again(session);
}
