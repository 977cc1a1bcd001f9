/// Stops, copies and releases a running thread of another process. All of this happens on the tracer's thread (tracer.c).
///
///     tracer                                               the thread
///     PTRACE_SEIZE: does not stop it                       runs on
///     sample once more: asleep? ─ yes ─> end, which releases it
///     PTRACE_INTERRUPT ──────────────────────────────────> stops
///     wait; registers, stack → the copy
///     PTRACE_DETACH ─────────────────────────────────────> runs on
///     answer
#include "process.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/// The thread's own files in /proc, kept open so that sampling is fast.
struct stackcap_thread_files {
    int call, schedule;
};

/// \param file the thread's /proc/PID/task/TID/syscall.
static bool is_running(int file) {
    static const char running[] = "running";
    char text[sizeof running];
    ssize_t count = pread(file, text, sizeof running - 1, 0);
    return count == sizeof running - 1 && memcmp(text, running, sizeof running - 1) == 0;
}

/// Whether it is stopped outside of system calls.
static bool is_halted(int file) {
    char text[3];
    return pread(file, text, sizeof text, 0) == sizeof text && memcmp(text, "-1 ", sizeof text) == 0;
}

/// Whether the thread has stopped or ended by now. Consumes no event: the end of a child of ours is for its waiter to collect.
/// \returns 0 or an errno.
static int peek_state(pid_t thread, siginfo_t *info) {
    info->si_pid = 0;
    int options = WSTOPPED | WEXITED | WNOHANG | WNOWAIT | __WALL | __WNOTHREAD;
    return waitid(P_PID, (id_t)thread, info, options) == 0 || errno == EINTR ? 0 : errno;
}

/// Pauses between two samples, so that a thread is not stopped for longer than a small part of the time that we waited for it.
static void rest_after(uint64_t waited_ns) {
    enum { SHORTEST_NS = 10000, LONGEST_NS = 320000 };
    uint64_t wanted = waited_ns / 32 < LONGEST_NS ? waited_ns / 32 : LONGEST_NS;
    struct timespec rest = {0, wanted > SHORTEST_NS ? (long)wanted : SHORTEST_NS};
    nanosleep(&rest, NULL);
}

/// Polls, at first without pauses: the thread is stopped until the stop is noticed.
/// \param running_ns is set to the last moment at which it was not stopped yet.
static stackcap_status wait_for_stop(pid_t thread, uint64_t deadline_ns, siginfo_t *info, uint64_t *running_ns) {
    uint64_t began = stackcap_now_ns();
    for (uint64_t now = began;; *running_ns = now) {
        now = stackcap_now_ns();
        // An error: by execve(2) it has become its process's only thread, with another id.
        if (peek_state(thread, info) != 0)
            return STACKCAP_GONE;
        if (info->si_pid == thread)
            return info->si_code == CLD_TRAPPED ? STACKCAP_OK : STACKCAP_GONE;
        if (now >= deadline_ns)
            return STACKCAP_NOT_STOPPED;
        if (now - began >= 30000)
            rest_after(now - began);
    }
}

/// Copies the registers and stack of the stopped thread.
static stackcap_outcome copy_stopped(stackcap_process *process, pid_t thread) {
    stackcap_user_registers user;
    struct iovec place = {&user, sizeof user};
    if (ptrace(PTRACE_GETREGSET, thread, (void *)NT_PRSTATUS, &place) != 0)
        return status_only(STACKCAP_GONE);
    if (place.iov_len != sizeof user)
        return status_only(STACKCAP_OTHER_ARCHITECTURE);
    stackcap_unwinder *unwinder = &process->unwinder;
    stackcap_registers_from_user(&unwinder->registers, &user);
    unwinder->registers_are_guessed = false;
    if (stackcap_mend_cut_call(&user) && ptrace(PTRACE_SETREGSET, thread, (void *)NT_PRSTATUS, &place) == 0)
        process->counters.calls_mended++;
    uint64_t stack_pointer = unwinder->registers.value[REGISTER_STACK_POINTER], low, high;
    if (!stackcap_modules_bounds(&process->modules, stack_pointer, &low, &high))
        return status_only(STACKCAP_OUT_OF_BOUNDS);
    int error = stackcap_copy_stack(unwinder, stack_pointer, low, high);
    if (!error)
        stackcap_async_glimpse(unwinder, unwinder->registers.value[REGISTER_ASYNC_CONTEXT]);
    return (stackcap_outcome){error ? STACKCAP_UNREADABLE : STACKCAP_OK, error};
}

/// How long the thread has waited for processors so far, and how often it got one; 0 if the kernel does not count it.
static struct stackcap_waits read_waits(int file) {
    char text[96] = "", *at = text;
    ssize_t count = pread(file, text, sizeof text - 1, 0);
    if (count > 0)
        strtoull(text, &at, 10);
    struct stackcap_waits waits = {.waited_ns = strtoull(at, &at, 10)};
    waits.turns = strtoull(at, &at, 10);
    return waits;
}

static uint64_t lesser(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

void stackcap_tracer_count_wait(stackcap_process *process) {
    struct stackcap_tracer *tracer = &process->tracer;
    stackcap_look look;
    if (!tracer->has_let_go)
        return;
    tracer->has_let_go = false;
    if (stackcap_look_in(process->tasks, tracer->thread, &look).status != STACKCAP_OK)
        return;
    uint64_t since = stackcap_now_ns() - tracer->let_go_ns, waited = look.schedule[1] - tracer->waits.waited_ns;
    bool waits_still = look.schedule[2] != 0 && look.schedule[2] == tracer->waits.turns;
    process->counters.waited_ns += waits_still ? since : lesser(waited, since);
}

static void count_stop(stackcap_process *process, uint64_t held_ns) {
    stackcap_process_counters *counters = &process->counters;
    process->unwinder.copy.held_ns = held_ns;
    counters->stops++;
    counters->held_ns += held_ns;
    counters->longest_held_ns = held_ns > counters->longest_held_ns ? held_ns : counters->longest_held_ns;
}

/// The thread is stopped at the latest from the moment when this was seen, and at the earliest from the last moment when it was
/// not: this whole time counts as held. Before that it ran, or waited for a processor, which it would also have done without
/// us.
/// \returns whether the thread is free; if not, the end of the tracer's thread frees it.
static bool stop_and_copy(stackcap_process *process, struct stackcap_thread_files files, stackcap_outcome *outcome) {
    struct stackcap_tracer *tracer = &process->tracer;
    struct stackcap_waits before = read_waits(files.schedule);
    uint64_t began = stackcap_now_ns(), running = began;
    siginfo_t info;
    *outcome = status_only(STACKCAP_GONE);
    if (ptrace(PTRACE_INTERRUPT, tracer->thread, 0, 0) != 0)
        return false;
    outcome->status = wait_for_stop(tracer->thread, tracer->deadline_ns, &info, &running);
    process->counters.given_up += outcome->status == STACKCAP_NOT_STOPPED;
    if (outcome->status != STACKCAP_OK)
        return false;
    *outcome = copy_stopped(process, tracer->thread);
    tracer->waits = read_waits(files.schedule);
    // A pending signal may have stopped the thread instead of our event: then the signal has to be passed on to it.
    long signal = info.si_status >> 8 == 0 ? info.si_status : 0;
    bool is_free = ptrace(PTRACE_DETACH, tracer->thread, 0, signal) == 0;
    tracer->let_go_ns = stackcap_now_ns();
    tracer->has_let_go = is_free;
    count_stop(process, tracer->let_go_ns - running);
    process->counters.waited_ns += lesser(tracer->waits.waited_ns - before.waited_ns, running - began);
    return is_free;
}

/// Attaches to the thread, without stopping it. If an earlier tracer of ours held the thread and has just ended, the kernel refuses
/// the next tracer until it has released the thread. \returns 0 or an errno; ETIMEDOUT if a tracer of ours has it until the deadline.
static int seize(const stackcap_process *process) {
    const struct stackcap_tracer *tracer = &process->tracer;
    uint64_t began = stackcap_now_ns();
    for (bool was_ours = true;;) {
        if (ptrace(PTRACE_SEIZE, tracer->thread, 0, 0) == 0)
            return 0;
        int error = errno;
        pid_t other = error == EPERM ? stackcap_tracer_of(process->tasks, tracer->thread) : 0;
        bool is_ours = other != 0 && tgkill(getpid(), other, 0) == 0;
        // The other tracer may have released the thread since the refusal, and ended since its number was read: then one more
        // attempt decides.
        if (error != EPERM || (!is_ours && !was_ours))
            return error;
        uint64_t now = stackcap_now_ns();
        if (now > tracer->deadline_ns)
            return is_ours ? ETIMEDOUT : error;
        was_ours = is_ours;
        rest_after(now - began);
    }
}

/// Whether the kernel has held the tracer for so long that nothing waits for a stop any more.
static bool seized_too_late(stackcap_process *process) {
    bool is_late = stackcap_now_ns() > process->tracer.deadline_ns;
    process->counters.given_up += is_late;
    return is_late;
}

/// For a thread that is seized, which does not stop it. \returns whether it is free.
static bool stop_if_wanted(stackcap_process *process, struct stackcap_thread_files files) {
    struct stackcap_tracer *tracer = &process->tracer;
    if (seized_too_late(process))
        tracer->outcome = status_only(STACKCAP_NOT_STOPPED);
    else if (tracer->wants_halted ? is_halted(files.call) : is_running(files.call))
        return stop_and_copy(process, files, &tracer->outcome);
    else
        tracer->outcome = status_only(STACKCAP_MOVED);
    return false;
}

/// \param error why the thread was not seized, an errno.
static stackcap_outcome not_seized(stackcap_process *process, int error) {
    process->counters.given_up += error == ETIMEDOUT;
    if (error == ETIMEDOUT)
        return status_only(STACKCAP_NOT_STOPPED);
    return (stackcap_outcome){error == ESRCH ? STACKCAP_GONE : STACKCAP_REFUSED, error};
}

bool stackcap_stop_serve(stackcap_process *process) {
    struct stackcap_tracer *tracer = &process->tracer;
    struct stackcap_thread_files files = {.schedule = stackcap_open_of_thread(process->tasks, tracer->thread, "schedstat")};
    files.call = stackcap_open_of_thread(process->tasks, tracer->thread, "syscall");
    int unopened = files.call < 0 ? errno : 0;
    bool is_free = true;
    tracer->has_let_go = false;
    int error = unopened ? ESRCH : seize(process);
    if (unopened == EMFILE || unopened == ENFILE)
        tracer->outcome = (stackcap_outcome){STACKCAP_FAILED, unopened};
    else if (error)
        tracer->outcome = not_seized(process, error);
    else
        is_free = stop_if_wanted(process, files);
    if (files.call >= 0)
        close(files.call);
    if (files.schedule >= 0)
        close(files.schedule);
    return is_free;
}
