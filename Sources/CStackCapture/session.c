#include "internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

/// One session per signal number, made on the first open and kept: a late signal may look at it at any time.
static stackcap_session *_Nullable made[NSIG];
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

static stackcap_session *_Nullable make(int signal) {
    stackcap_session *session = calloc(1, sizeof *session);
    if (!session)
        return NULL;
    session->signal = signal;
    session->mark = (uint32_t)(stackcap_now_ns() ^ (uintptr_t)session >> 4) | 1;
    if (stackcap_unwinder_prepare(&session->unwinder) == 0)
        return session;
    stackcap_unwinder_finish(&session->unwinder);
    free(session);
    return NULL;
}

static stackcap_outcome open_made(stackcap_session *session, bool read_through_file) {
    stackcap_reader_finish(&session->unwinder.reader);
    int error = stackcap_reader_prepare(&session->unwinder.reader, read_through_file);
    if (!error)
        error = stackcap_handler_install(session);
    if (error)
        return (stackcap_outcome){STACKCAP_FAILED, error};
    atomic_store(&session->open, true);
    return (stackcap_outcome){STACKCAP_OK, 0};
}

static stackcap_outcome open_locked(int signal, bool read_through_file, stackcap_session **out) {
    stackcap_session *session = made[signal];
    if (!session)
        session = made[signal] = make(signal);
    if (!session)
        return (stackcap_outcome){STACKCAP_FAILED, ENOMEM};
    if (atomic_load(&session->open))
        return (stackcap_outcome){STACKCAP_IN_USE, 0};
    *out = session;
    return open_made(session, read_through_file);
}

stackcap_outcome stackcap_open(int signal, bool read_through_file, stackcap_session **out) {
    *out = NULL;
    if (signal < 1 || signal >= NSIG || signal == SIGKILL || signal == SIGSTOP)
        return (stackcap_outcome){STACKCAP_FAILED, EINVAL};
    pthread_mutex_lock(&making);
    stackcap_outcome outcome = open_locked(signal, read_through_file, out);
    pthread_mutex_unlock(&making);
    return outcome;
}

bool stackcap_close(stackcap_session *session) {
    bool removed = stackcap_handler_remove(session);
    // A handler in the middle of its copy may still read through the file.
    if (!stackcap_handler_is_busy(session))
        stackcap_reader_finish(&session->unwinder.reader);
    // If the handler stays below someone else's, the session stays taken: a second open would chain it to itself.
    if (removed)
        atomic_store(&session->open, false);
    return removed;
}

stackcap_counters stackcap_read_counters(stackcap_session *session) {
    return (stackcap_counters){
        .sent = atomic_load(&session->sent),
        .late = atomic_load(&session->late),
        .chained = atomic_load(&session->chained),
        .calls_cut_short = atomic_load(&session->calls_cut_short),
    };
}
