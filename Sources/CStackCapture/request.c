/// A running thread copies its own stack on request: the request, the wait, and the answer. handler.c serves it.
///
/// The word of a request holds its number and whose turn it is (TURN_…). REQUESTED is left only by compare-and-swap, so a request is
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

static enum stackcap_turn turn_now(const struct stackcap_request *request) {
    return stackcap_turn_of(atomic_load_explicit(&request->word, memory_order_acquire));
}

/// \returns false while a handler of an earlier request still owns the copy.
static bool publish(struct stackcap_request *request, pid_t thread, uint64_t low, uint64_t high) {
    uint64_t word = atomic_load_explicit(&request->word, memory_order_acquire);
    if (stackcap_turn_of(word) == TURN_COPYING)
        return false;
    atomic_store_explicit(&request->thread, thread, memory_order_relaxed);
    request->low = low;
    request->high = high;
    uint64_t next = ((word >> TURN_BITS) + 1) << TURN_BITS;
    atomic_store_explicit(&request->word, next | TURN_REQUESTED, memory_order_release);
    return true;
}

/// \returns whether the request was still open; if not, a handler has begun to serve it.
static bool withdraw(struct stackcap_request *request) {
    uint64_t word = atomic_load_explicit(&request->word, memory_order_acquire);
    return stackcap_turn_of(word) == TURN_REQUESTED &&
           atomic_compare_exchange_strong(&request->word, &word, stackcap_with_turn(word, TURN_WITHDRAWN));
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
        if (turn_now(request) == TURN_DONE)
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
            return turn_now(request) == TURN_DONE;
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
        stackcap_handler_doubt_cover(session);
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
    if (!session->in_chain && (error = stackcap_handler_put_in_place(session)) != 0)
        return (stackcap_outcome){STACKCAP_FAILED, error};
    stackcap_outcome outcome = stackcap_handler_is_reached(session)
                                   ? have_copied(session, thread, low, high, deadline_ns, stays_open)
                                   : (stackcap_outcome){STACKCAP_IN_USE, 0};
    stackcap_handler_ignore_again(session);
    return outcome;
}

void stackcap_settle(stackcap_session *session) {
    struct stackcap_request *request = &session->request;
    pid_t thread = request->left_open;
    if (!thread)
        return;
    request->left_open = 0;
    if (withdraw(request))
        stackcap_handler_doubt_cover(session);
    else  // A handler that has begun needs microseconds, once it has a processor.
        wait_until(session, thread, stackcap_now_ns() + 1000000);
    stackcap_handler_ignore_again(session);
}

stackcap_outcome stackcap_take_left_open(stackcap_session *session, pid_t thread, uint64_t *copied_ns) {
    struct stackcap_request *request = &session->request;
    if (!thread || request->left_open != thread)
        return (stackcap_outcome){STACKCAP_NOT_DELIVERED, 0};
    stackcap_settle(session);
    if (turn_now(request) != TURN_DONE)
        return (stackcap_outcome){STACKCAP_NOT_DELIVERED, 0};
    *copied_ns = request->copied_ns;
    return take_answer(session);
}

bool stackcap_handler_is_busy(const stackcap_session *session) {
    return turn_now(&session->request) == TURN_COPYING;
}

void stackcap_request_forget(stackcap_session *session) {
    session->request.left_open = 0;
    stackcap_handler_forget_pending(session);  // a forked child inherits no pending signals
    uint64_t word = atomic_load_explicit(&session->request.word, memory_order_acquire);
    atomic_store_explicit(&session->request.word, stackcap_with_turn(word, TURN_IDLE), memory_order_release);
    stackcap_handler_ignore_again(session);
}
