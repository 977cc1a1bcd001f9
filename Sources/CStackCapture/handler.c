/// The signal handler: the running thread copies its own stack, and the application's own signals are passed on.
///
/// It may interrupt anything, on any thread, while that thread holds any lock: it uses only system calls and the session's own
/// memory, its loops are bounded, and errno is as before when it returns. Whose turn it is to write the request and the copy is
/// described in request.c.
#include "session.h"

#include <errno.h>

/// By signal number. A session is never freed, so a late signal still finds it.
static _Atomic(stackcap_session *) sessions[NSIG];

void stackcap_handler_answer_for(stackcap_session *session) {
    atomic_store_explicit(&sessions[session->signal], session, memory_order_release);
}

// Whether a signal is ours.

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

/// Discarded signals are counted as arrived (stackcap_handler_forget_pending), so a handler that was delayed in the meantime counts nothing.
static void count_arrival(stackcap_session *session) {
    uint64_t arrived = atomic_load_explicit(&session->arrived, memory_order_relaxed);
    while (arrived < atomic_load_explicit(&session->sent, memory_order_relaxed) &&
           !atomic_compare_exchange_weak_explicit(&session->arrived, &arrived, arrived + 1, memory_order_relaxed,
                                                  memory_order_relaxed))
        continue;
}

// Serving a request.

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
    bool mine = stackcap_turn_of(word) == TURN_REQUESTED &&
                atomic_load_explicit(&request->thread, memory_order_relaxed) == stackcap_own_thread();
    uint64_t copying = stackcap_with_turn(word, TURN_COPYING);
    if (!mine || !atomic_compare_exchange_strong(&request->word, &word, copying))
        return false;
    copy_own_stack(session, context);
    // Pairs with the acquire in wait_until(): the copy is complete before it is seen as done.
    atomic_store_explicit(&request->word, stackcap_with_turn(word, TURN_DONE), memory_order_release);
    return true;
}

// Passing on a signal that is not ours.

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

void stackcap_handler_run(int signal, siginfo_t *info, void *context) {
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
