/// The quiet copy: the stack of a sleeping thread is copied without its help, and given up if the thread has run meanwhile.
///
/// The kernel counts a thread's time slices. As long as their number is the same, the thread has not run, and its stack is that of
/// one moment.
#include "session.h"

#include <fcntl.h>
#include <string.h>

static bool is_same_place(const stackcap_look *a, const stackcap_look *b) {
    return a->state == b->state && a->call == b->call && a->stack_pointer == b->stack_pointer &&
           a->program_counter == b->program_counter && memcmp(a->arguments, b->arguments, sizeof a->arguments) == 0;
}

/// If the kernel does not count time slices, this is unknown, and it may have run.
static bool has_run(const stackcap_look *since, const stackcap_look *now) {
    return since->schedule[2] == 0 || memcmp(since->schedule, now->schedule, sizeof now->schedule) != 0;
}

/// Samples until the thread is asleep again, but not for long.
static stackcap_outcome look_at_rest(int tasks, pid_t thread, stackcap_look *look) {
    enum { LOOKS_AT_REST = 16 };
    stackcap_outcome outcome;
    int looks = 0;
    do
        outcome = stackcap_look_in(tasks, thread, look);
    while (outcome.status == STACKCAP_OK && look->state == STACKCAP_STATE_RUNNING && ++looks < LOOKS_AT_REST);
    return outcome;
}

/// The fast check that usually suffices: a thread that has not run since is in the same place.
static bool has_not_run(int tasks, pid_t thread, const stackcap_look *since) {
    uint64_t schedule[3];
    return since->schedule[2] != 0 && stackcap_read_schedule(tasks, thread, schedule) == 0 &&
           memcmp(since->schedule, schedule, sizeof schedule) == 0;
}

/// Whether the thread did not move, or ran only inside the kernel, as fsync and large reads do while they sleep and wake. The
/// latter is accepted if the whole stack, read again, is unchanged, and the thread is in the same call before and after that.
static stackcap_outcome confirm_copy(stackcap_unwinder *unwinder, int tasks, pid_t thread, const stackcap_look *seen) {
    if (has_not_run(tasks, thread, seen))
        return (stackcap_outcome){STACKCAP_OK, 0};
    stackcap_look again;
    stackcap_outcome outcome = look_at_rest(tasks, thread, &again);
    if (outcome.status != STACKCAP_OK)
        return outcome;
    if (is_same_place(seen, &again) && !has_run(seen, &again))
        return (stackcap_outcome){STACKCAP_OK, 0};
    if (!is_same_place(seen, &again) || again.state != STACKCAP_STATE_CALLING || !stackcap_copy_holds(unwinder))
        return (stackcap_outcome){STACKCAP_MOVED, 0};
    stackcap_async_recheck_glimpses(unwinder);
    outcome = look_at_rest(tasks, thread, &again);
    if (outcome.status == STACKCAP_OK && !is_same_place(seen, &again))
        outcome.status = STACKCAP_MOVED;
    return outcome;
}

stackcap_outcome stackcap_copy_asleep(stackcap_unwinder *unwinder, int tasks, pid_t thread, uint64_t low, uint64_t high,
                                      const stackcap_look *seen) {
    bool is_foreign = seen->stack_pointer < low || seen->stack_pointer >= high;
    stackcap_loader_read(&unwinder->loader);
    int copy_error = is_foreign ? stackcap_copy_foreign_stack(unwinder, seen->stack_pointer, low, high)
                                : stackcap_copy_stack(unwinder, seen->stack_pointer, low, high);
    if (!copy_error)
        stackcap_async_glimpse(unwinder, 0);
    stackcap_outcome outcome = confirm_copy(unwinder, tasks, thread, seen);
    if (outcome.status != STACKCAP_OK)
        return outcome;
    if (copy_error)
        return (stackcap_outcome){is_foreign ? STACKCAP_OUT_OF_BOUNDS : STACKCAP_UNREADABLE, copy_error};
    stackcap_registers_unknown(&unwinder->registers, seen->program_counter, seen->stack_pointer);
    if (seen->state == STACKCAP_STATE_CALLING)
        stackcap_registers_add_arguments(&unwinder->registers, seen->arguments);
    unwinder->registers_are_guessed = true;
    unwinder->sleeper = (struct stackcap_sleeper){tasks, thread, *seen};
    unwinder->copy.held_ns = 0;
    return (stackcap_outcome){STACKCAP_OK, 0};
}

stackcap_outcome stackcap_copy_blocked(stackcap_session *session, pid_t thread, uint64_t low, uint64_t high,
                                       const stackcap_look *seen) {
    if (stackcap_handler_is_busy(session))
        return (stackcap_outcome){STACKCAP_STUCK, 0};  // the copy belongs to the handler
    int error = stackcap_reader_refresh(&session->unwinder.reader, false);
    if (error)
        return (stackcap_outcome){STACKCAP_UNREADABLE, error};
    return stackcap_copy_asleep(&session->unwinder, AT_FDCWD, thread, low, high, seen);
}

bool stackcap_sleeps_on(const stackcap_unwinder *unwinder) {
    const struct stackcap_sleeper *sleeper = &unwinder->sleeper;
    stackcap_look again;
    return stackcap_look_in(sleeper->tasks, sleeper->thread, &again).status == STACKCAP_OK &&
           is_same_place(&sleeper->seen, &again) && !has_run(&sleeper->seen, &again);
}
