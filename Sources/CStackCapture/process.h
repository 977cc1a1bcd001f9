/// Capturing threads of another process: process.c, tracer.c, stop.c.
#pragma once

#include "CStackCaptureProcess.h"
#include "look.h"

#include <pthread.h>

#pragma clang assume_nonnull begin

/// An outcome without an errno.
static inline stackcap_outcome status_only(stackcap_status status) {
    return (stackcap_outcome){status, 0};
}

/// How long a thread has waited for processors in its lifetime.
struct stackcap_waits {
    uint64_t waited_ns, turns;
};

/// The one thread that may stop threads of the other process. The kernel ties a stopped thread to the thread that stopped it,
/// and releases it when that thread ends: however a stop fails, ending this thread cleans up.
struct stackcap_tracer {
    bool exists;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum { TRACER_RESTS, TRACER_WANTED, TRACER_ANSWERED, TRACER_DISMISSED } turn;
    bool leaves;   ///< The thread ends with this answer, and uses nothing of this from then on. The kernel then releases what it holds.
    bool is_left;  ///< The capturer has closed the process while the thread had a request: the thread frees it.
    pid_t thread;
    bool wants_halted;
    uint64_t deadline_ns;
    stackcap_outcome outcome;
    bool has_let_go;  ///< A thread was stopped and released for this answer, at this time; its wait until then:
    uint64_t let_go_ns;
    struct stackcap_waits waits;
};

struct stackcap_process {
    pid_t process;
    int directory;  ///< /proc/PID: stays this process's, even if its number is reused later.
    int tasks;      ///< /proc/PID/task.
    int living;     ///< /proc/PID/task/TID of another thread, once the first one has ended; otherwise −1.
    int memory;     ///< /proc/PID/mem. Bound to the program that ran when it was opened: reads nothing once another one runs.
    bool read_through_file;
    stackcap_unwinder unwinder;
    struct stackcap_modules modules;
    struct stackcap_tracer tracer;
    stackcap_process_counters counters;
};

// stop.c

/// Stops, copies and releases the thread that the tracer's request names, and puts the outcome there. On the tracer's thread: the
/// kernel may hold it in any system call. Allocates nothing; takes no lock; changes errno.
/// \returns whether the thread is free; if not, the end of the tracer's thread frees it.
bool stackcap_stop_serve(stackcap_process *process);
/// Counts how long the released thread has waited for a processor since then. Call it once, and soon: the thread also waits for
/// its own reasons.
void stackcap_tracer_count_wait(stackcap_process *process);

// tracer.c

/// Stops, copies and releases, on the tracer's thread. See stackcap_process_copy_stopped.
/// \param wants_halted a thread that a signal has stopped outside of system calls, instead of a running one.
stackcap_outcome stackcap_tracer_copy(stackcap_process *process, pid_t thread, bool wants_halted, uint64_t deadline_ns);
void stackcap_tracer_prepare(struct stackcap_tracer *tracer);
void stackcap_tracer_free(struct stackcap_tracer *tracer);
/// Whether the kernel still holds the tracer for a request that has been given up: then it alone may use the process object.
bool stackcap_tracer_is_held(struct stackcap_tracer *tracer);
/// Dismisses the tracer. \returns false if it is held: then it frees the process object when the kernel lets it go.
bool stackcap_tracer_finish(struct stackcap_tracer *tracer);

// process.c

/// Closes and frees all of it. Only the capturer or the tracer still uses it.
void stackcap_process_release(stackcap_process *process);

#pragma clang assume_nonnull end
