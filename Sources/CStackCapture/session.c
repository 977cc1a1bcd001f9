/// Opening and closing a session: its buffers, and what a forked child makes of those that it inherits. A session is made once for each
/// signal, and never freed.
#include "session.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

/// One session per signal number, made on the first open and kept: a late signal may read it at any time.
static stackcap_session *_Nullable made[NSIG];
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

static stackcap_outcome make(int signal) {
    stackcap_session *session = calloc(1, sizeof *session);
    if (!session)
        return (stackcap_outcome){STACKCAP_FAILED, ENOMEM};
    session->signal = signal;
    session->mark = (uint32_t)(stackcap_now_ns() ^ (uintptr_t)session >> 4) | 1;
    int error = stackcap_unwinder_prepare(&session->unwinder);
    if (!error) {
        made[signal] = session;
        return (stackcap_outcome){STACKCAP_OK, 0};
    }
    stackcap_unwinder_finish(&session->unwinder);
    free(session);
    return (stackcap_outcome){error == ENOMEM ? STACKCAP_FAILED : STACKCAP_UNREADABLE, error};
}

static stackcap_outcome open_made(stackcap_session *session, bool read_through_file) {
    // A handler in the middle of its copy may still be reading: what it reads through stays, as in stackcap_close.
    int error = stackcap_handler_is_busy(session) ? 0 : stackcap_reader_prepare(&session->unwinder.reader, read_through_file);
    if (error)
        return (stackcap_outcome){STACKCAP_UNREADABLE, error};
    error = stackcap_handler_install(session);
    if (error)
        return (stackcap_outcome){STACKCAP_FAILED, error};
    session->open = true;
    return (stackcap_outcome){STACKCAP_OK, 0};
}

static stackcap_outcome open_locked(int signal, bool read_through_file, stackcap_session **out) {
    stackcap_outcome outcome = made[signal] ? (stackcap_outcome){STACKCAP_OK, 0} : make(signal);
    if (outcome.status != STACKCAP_OK)
        return outcome;
    stackcap_session *session = made[signal];
    bool is_inherited = session->process != getpid();
    if (session->open && !is_inherited)
        return (stackcap_outcome){STACKCAP_IN_USE, 0};
    if (is_inherited)
        stackcap_request_forget(session);
    session->open = false;
    session->process = getpid();
    outcome = open_made(session, read_through_file);
    if (outcome.status == STACKCAP_OK)
        *out = session;
    return outcome;
}

/// Another thread may have been opening a session, or capturing, when this process was forked.
static void set_right_in_child(void) {
    pthread_mutex_init(&making, NULL);
    for (int signal = 1; signal < NSIG; signal++)
        if (made[signal])
            stackcap_handler_ignore_in_child(made[signal]);
}

static void watch_forks(void) {
    pthread_atfork(NULL, NULL, set_right_in_child);
}

stackcap_outcome stackcap_open(int signal, bool read_through_file, stackcap_session **out) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    *out = NULL;
    if (signal < 1 || signal >= NSIG || signal == SIGKILL || signal == SIGSTOP)
        return (stackcap_outcome){STACKCAP_FAILED, EINVAL};
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&making);
    stackcap_outcome outcome = open_locked(signal, read_through_file, out);
    pthread_mutex_unlock(&making);
    return outcome;
}

void stackcap_close(stackcap_session *session) {
    pthread_mutex_lock(&making);
    stackcap_settle(session);
    stackcap_handler_remove(session);
    // A handler in the middle of its copy may still read through the file.
    if (!stackcap_handler_is_busy(session))
        stackcap_reader_finish(&session->unwinder.reader);
    session->open = false;
    pthread_mutex_unlock(&making);
}

bool stackcap_read_memory(stackcap_session *session, uint64_t address, void *to, size_t length) {
    struct stackcap_reader *reader = &session->unwinder.reader;
    // The handler also reads through it: it may change only while no handler runs.
    if (stackcap_handler_is_busy(session) || stackcap_reader_refresh(reader, false) != 0)
        return false;
    return stackcap_read_live(reader, address, to, length) == (ssize_t)length;
}

stackcap_counters stackcap_read_counters(stackcap_session *session) {
    return (stackcap_counters){
        .sent = atomic_load(&session->sent),
        .late = atomic_load(&session->late),
        .chained = atomic_load(&session->chained),
        .calls_cut_short = atomic_load(&session->calls_cut_short),
    };
}
