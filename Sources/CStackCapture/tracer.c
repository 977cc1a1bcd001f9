/// The tracer: the one thread that may stop threads of another process, and how the capturer gets answers from it.
///
///     capturer                     tracer
///     RESTS ──> WANTED ──────────> stop.c: seize, stop, copy, release
///     <──────────── ANSWERED ────  rest; or end, if the thread is not free by now, which releases it
///
/// The kernel can hold the tracer in any system call: PTRACE_SEIZE waits while another thread of the process is in execve(2),
/// which may wait for a file on a server that does not answer. The capturer waits for the answer until shortly after its
/// deadline. Until the answer arrives, nothing else may use the process object; if the capturer closes it before, the tracer
/// frees it.
#include "process.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>

// The tracer's part.

/// While a thread is stopped for us, we must not wait for a processor. If this is not permitted, the priority is not changed.
static void become_prompt(void) {
    struct sched_param lowest = {.sched_priority = 1};
    sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &lowest);
    prctl(PR_SET_TIMERSLACK, 1UL);
}

static bool has_request(const struct stackcap_tracer *tracer) {
    return tracer->turn == TRACER_WANTED || tracer->turn == TRACER_DISMISSED;
}

/// Waits for requests without a deadline, because nothing waits for an idle tracer.
static void *_Nullable trace(void *argument) {
    stackcap_process *process = argument;
    struct stackcap_tracer *tracer = &process->tracer;
    become_prompt();
    pthread_mutex_lock(&tracer->lock);
    do {
        while (!has_request(tracer) && !tracer->is_left)
            pthread_cond_wait(&tracer->changed, &tracer->lock);
        bool is_wanted = tracer->turn == TRACER_WANTED;
        pthread_mutex_unlock(&tracer->lock);
        bool is_free = is_wanted && stackcap_stop_serve(process);
        pthread_mutex_lock(&tracer->lock);
        tracer->leaves = !is_free || tracer->is_left;
        tracer->turn = TRACER_ANSWERED;
        pthread_cond_broadcast(&tracer->changed);
    } while (!tracer->leaves);
    bool owns = tracer->is_left;
    pthread_mutex_unlock(&tracer->lock);
    if (owns)
        stackcap_process_release(process);
    return NULL;
}

// The capturer's part.

/// How long after the request's deadline the answer may come: the tracer looks at the deadline itself, but may have to wait for a processor.
enum { GRACE_NS = 1000000000 };

void stackcap_tracer_prepare(struct stackcap_tracer *tracer) {
    pthread_mutex_init(&tracer->lock, NULL);
    pthread_cond_init(&tracer->changed, NULL);
}

void stackcap_tracer_free(struct stackcap_tracer *tracer) {
    pthread_cond_destroy(&tracer->changed);
    pthread_mutex_destroy(&tracer->lock);
}

/// Waits until the tracer has answered. A thread that ends with its answer is not joined: the thread sanitizer does not know the
/// call that joins a thread with a deadline.
/// \returns whether the tracer uses nothing of the process object any more.
static bool settle(struct stackcap_tracer *tracer, uint64_t deadline_ns) {
    struct timespec end = {(time_t)(deadline_ns / 1000000000), (long)(deadline_ns % 1000000000)};
    pthread_mutex_lock(&tracer->lock);
    for (int error = 0; has_request(tracer) && error == 0;)
        error = pthread_cond_clockwait(&tracer->changed, &tracer->lock, CLOCK_MONOTONIC, &end);
    bool has_answered = !has_request(tracer);
    if (has_answered && tracer->leaves)
        tracer->exists = false;
    pthread_mutex_unlock(&tracer->lock);
    return has_answered;
}

bool stackcap_tracer_is_held(struct stackcap_tracer *tracer) {
    return !settle(tracer, 0);
}

/// Started with all signals blocked: none of the application's handlers runs on it. \returns 0 or an errno.
static int start(stackcap_process *process) {
    if (process->tracer.exists)
        return 0;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    process->tracer.turn = TRACER_RESTS;
    process->tracer.leaves = false;
    pthread_t thread;
    int error = pthread_create(&thread, NULL, trace, process);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        pthread_detach(thread);
    process->tracer.exists = error == 0;
    return error;
}

/// Sends a request, and waits for the answer. \returns whether it came.
static bool ask(struct stackcap_tracer *tracer, int turn, uint64_t deadline_ns) {
    pthread_mutex_lock(&tracer->lock);
    tracer->turn = turn;
    pthread_cond_broadcast(&tracer->changed);
    pthread_mutex_unlock(&tracer->lock);
    return settle(tracer, deadline_ns > UINT64_MAX - GRACE_NS ? deadline_ns : deadline_ns + GRACE_NS);
}

stackcap_outcome stackcap_tracer_copy(stackcap_process *process, pid_t thread, bool wants_halted, uint64_t deadline_ns) {
    struct stackcap_tracer *tracer = &process->tracer;
    if (stackcap_tracer_is_held(tracer))
        return status_only(STACKCAP_NOT_STOPPED);
    int error = start(process);
    if (error)
        return (stackcap_outcome){STACKCAP_FAILED, error};
    tracer->thread = thread;
    tracer->wants_halted = wants_halted;
    tracer->deadline_ns = deadline_ns;
    return ask(tracer, TRACER_WANTED, deadline_ns) ? tracer->outcome : status_only(STACKCAP_NOT_STOPPED);
}

bool stackcap_tracer_finish(struct stackcap_tracer *tracer) {
    if (!stackcap_tracer_is_held(tracer) && tracer->exists)
        ask(tracer, TRACER_DISMISSED, stackcap_now_ns());
    if (!tracer->exists)
        return true;
    pthread_mutex_lock(&tracer->lock);
    bool is_over = tracer->turn == TRACER_ANSWERED && tracer->leaves;
    tracer->is_left = !is_over;
    pthread_cond_broadcast(&tracer->changed);
    // From the unlock on the tracer may free all this.
    pthread_mutex_unlock(&tracer->lock);
    return is_over;
}
