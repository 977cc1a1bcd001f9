#include "internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

/// One session per signal number, made on the first open and kept: a late signal may look at it at any time.
static stackcap_session *_Nullable made[NSIG];
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

/// Populated, so that neither the handler nor a first capture under memory pressure waits for a page.
static void *_Nullable map(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void destroy(stackcap_session *session) {
    if (session->copy.bytes)
        munmap(session->copy.bytes, STACKCAP_MAX_COPY);
    if (session->pages.bytes)
        munmap(session->pages.bytes, (size_t)PAGE_SLOTS * PAGE_SIZE);
    free(session->frames);
    free(session);
}

static stackcap_session *_Nullable make(int signal) {
    stackcap_session *session = calloc(1, sizeof *session);
    if (!session)
        return NULL;
    session->signal = signal;
    session->mark = (uint32_t)(stackcap_now_ns() ^ (uintptr_t)session >> 4) | 1;
    session->reader.file = -1;
    session->copy.bytes = map(STACKCAP_MAX_COPY);
    session->pages.bytes = map((size_t)PAGE_SLOTS * PAGE_SIZE);
    session->frames = calloc(STACKCAP_MAX_FRAMES, sizeof *session->frames);
    bool complete = session->copy.bytes && session->pages.bytes && session->frames;
    if (complete && stackcap_unwinder_prepare(session) == 0)
        return session;
    destroy(session);
    return NULL;
}

static stackcap_outcome open_made(stackcap_session *session, bool read_through_file) {
    stackcap_reader_finish(&session->reader);
    int error = stackcap_reader_prepare(&session->reader, read_through_file);
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
        stackcap_reader_finish(&session->reader);
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
