#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LOOKS_AT_REST = 16 };

static int open_file(int tasks, pid_t thread, const char *name) {
    char path[64];
    const char *own = tasks == AT_FDCWD ? "/proc/self/task/" : "";
    snprintf(path, sizeof path, "%s%d/%s", own, thread, name);
    return openat(tasks, path, O_RDONLY | O_CLOEXEC);
}

/// Reads a file of a thread into `text`, NUL-terminated. \returns 0 or an errno.
static int read_file(int tasks, pid_t thread, const char *name, char *text, size_t size) {
    int file = open_file(tasks, thread, name);
    if (file < 0)
        return errno;
    ssize_t count = read(file, text, size - 1);
    int error = count < 0 ? errno : count == 0 ? ESRCH : 0;
    close(file);
    text[count < 0 ? 0 : count] = 0;
    return error;
}

/// Parses up to `most` numbers, decimal or 0x…, from a line. \returns the number parsed.
static size_t take_numbers(const char *text, uint64_t *numbers, size_t most) {
    size_t count = 0;
    while (count < most) {
        char *end;
        numbers[count] = strtoull(text, &end, 0);  // "-1" is returned as UINT64_MAX
        if (end == text)
            break;
        text = end;
        count++;
    }
    return count;
}

/// The line is "running", or "-1 SP PC", or "NUMBER six arguments SP PC": proc(5).
static bool parse_syscall(const char *text, stackcap_look *look) {
    look->call = -1;
    if (strncmp(text, "running", 7) == 0) {
        look->state = STACKCAP_STATE_RUNNING;
        return true;
    }
    uint64_t numbers[9];
    size_t count = take_numbers(text, numbers, 9);
    if (count != 3 && count != 9)
        return false;
    look->stack_pointer = numbers[count - 2];
    look->program_counter = numbers[count - 1];
    look->state = count == 9 ? STACKCAP_STATE_CALLING : STACKCAP_STATE_HALTED;
    if (count == 9) {
        look->call = (int64_t)numbers[0];
        memcpy(look->arguments, numbers + 1, sizeof look->arguments);
    }
    return true;
}

static stackcap_outcome outcome_of(int error) {
    if (error == ENOENT || error == ESRCH)
        return (stackcap_outcome){STACKCAP_GONE, error};
    return (stackcap_outcome){STACKCAP_STATE_UNREADABLE, error};
}

stackcap_outcome stackcap_look_at(pid_t thread, stackcap_look *look) {
    return stackcap_look_in(AT_FDCWD, thread, look);
}

stackcap_outcome stackcap_look_in(int tasks, pid_t thread, stackcap_look *look) {
    char text[256];
    memset(look, 0, sizeof *look);
    int error = read_file(tasks, thread, "schedstat", text, sizeof text);
    if (!error && take_numbers(text, look->schedule, 3) != 3)
        error = ENOTSUP;
    if (!error)
        error = read_file(tasks, thread, "syscall", text, sizeof text);
    if (error)
        return outcome_of(error);
    if (!parse_syscall(text, look))
        return (stackcap_outcome){STACKCAP_STATE_UNREADABLE, ENOTSUP};
    // io_uring's threads have the registers of the call that created them, except these two.
    if (look->state == STACKCAP_STATE_CALLING && look->stack_pointer == 0 && look->program_counter == 0)
        return (stackcap_outcome){STACKCAP_KERNEL_ONLY, 0};
    // A thread that has given up its kernel stack does not sleep: it is dead.
    if (look->state == STACKCAP_STATE_HALTED && look->stack_pointer == 0)
        return (stackcap_outcome){STACKCAP_GONE, ESRCH};
    return (stackcap_outcome){STACKCAP_OK, 0};
}

/// A thread's status, without the ends of long lines: the lists of groups and processors can be hundreds of kilobytes long, and
/// some of what we need is after them.
struct status {
    char text[16384];
};

/// Cuts all lines to what we need of them. \returns the new length. A line that continues after the text may be cut again.
static size_t cut_lines(char *text, size_t length) {
    enum { LONGEST = 128 };
    size_t kept = 0, column = 0;
    for (size_t at = 0; at < length; at++) {
        column = text[at] == '\n' ? 0 : column + 1;
        if (column <= LONGEST)
            text[kept++] = text[at];
    }
    return kept;
}

/// One read(2) unless the file is long: the kernel returns all that there is room for.
static int read_status(int tasks, pid_t thread, struct status *status) {
    enum { ROOM = sizeof status->text - 1 };
    int file = open_file(tasks, thread, "status"), error = 0;
    if (file < 0)
        return errno;
    size_t length = 0;
    for (bool is_full = true; is_full && length < ROOM && !error;) {
        ssize_t count = read(file, status->text + length, ROOM - length);
        error = count < 0 ? errno : 0;
        length += count < 0 ? 0 : (size_t)count;
        is_full = length == ROOM;
        if (is_full)
            length = cut_lines(status->text, length);
    }
    close(file);
    status->text[length] = 0;
    return error ? error : length == 0 ? ESRCH : 0;
}

/// Finds the number after "name:". \returns whether it is there.
static bool number_in(const struct status *status, const char *name, int base, uint64_t *value) {
    const char *line = strstr(status->text, name);
    if (line)
        *value = strtoull(line + strlen(name), NULL, base);
    return line != NULL;
}

/// seccomp(2)'s mode: 1 is the strict one, 2 a filter. Kernels without seccomp have no such line.
static uint64_t seccomp_mode(const struct status *status) {
    uint64_t mode = 0;
    return number_in(status, "\nSeccomp:", 10, &mode) ? mode : 0;
}

static bool is_filtered(const struct status *status) {
    return seccomp_mode(status) != 0;
}

bool stackcap_is_filtered(void) {
    enum { GOOD_FOR_NS = 10000000 };
    static _Thread_local uint64_t looked_ns;
    static _Thread_local bool filtered;
    uint64_t now = stackcap_now_ns();
    if (looked_ns == 0 || now - looked_ns > GOOD_FOR_NS) {
        struct status status;
        filtered = read_status(AT_FDCWD, stackcap_own_thread(), &status) != 0 || is_filtered(&status);
        looked_ns = now;
    }
    return filtered;
}

void stackcap_thread_name(pid_t thread, char name[16]) {
    char text[32];
    if (read_file(AT_FDCWD, thread, "comm", text, sizeof text) != 0)
        text[0] = 0;
    text[strcspn(text, "\n")] = 0;
    strncpy(name, text, 15);
    name[15] = 0;
}

/// The CPU clock of any thread of this process, by thread id: the result of pthread_getcpuclockid, without a pthread_t.
static clockid_t cpu_clock(pid_t thread) {
    enum { PER_THREAD = 4, SCHEDULER = 2 };
    return (clockid_t)(~(unsigned)thread << 3 | PER_THREAD | SCHEDULER);
}

stackcap_outcome stackcap_read_progress(pid_t thread, stackcap_progress *progress) {
    struct timespec time;
    if (clock_gettime(cpu_clock(thread), &time) != 0)
        return outcome_of(ESRCH);  // EINVAL: no such thread
    progress->cpu_ns = (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
    struct status status;
    int error = read_status(AT_FDCWD, thread, &status);
    bool complete = !error && number_in(&status, "\nSigBlk:", 16, &progress->blocked) &&
                    number_in(&status, "\nvoluntary_ctxt_switches:", 10, &progress->sleeps);
    if (!complete)
        return outcome_of(error ? error : ENOTSUP);
    progress->is_filtered = is_filtered(&status);
    progress->is_strict = seccomp_mode(&status) == 1;
    return (stackcap_outcome){STACKCAP_OK, 0};
}

stackcap_outcome stackcap_count_sleeps(int tasks, pid_t thread, uint64_t *sleeps) {
    struct status status;
    int error = read_status(tasks, thread, &status);
    if (!error && !number_in(&status, "\nvoluntary_ctxt_switches:", 10, sleeps))
        error = ENOTSUP;
    return error ? outcome_of(error) : (stackcap_outcome){STACKCAP_OK, 0};
}

pid_t stackcap_tracer_of(int tasks, pid_t thread) {
    struct status status;
    uint64_t tracer = 0;
    return read_status(tasks, thread, &status) == 0 && number_in(&status, "\nTracerPid:", 10, &tracer) ? (pid_t)tracer : 0;
}

bool stackcap_is_stopped(int tasks, pid_t thread) {
    struct status status;
    return read_status(tasks, thread, &status) == 0 && strstr(status.text, "\nState:\tT ") != NULL;
}

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
    stackcap_outcome outcome;
    int looks = 0;
    do
        outcome = stackcap_look_in(tasks, thread, look);
    while (outcome.status == STACKCAP_OK && look->state == STACKCAP_STATE_RUNNING && ++looks < LOOKS_AT_REST);
    return outcome;
}

/// The fast check that usually suffices: a thread that has not run since is in the same place.
static bool has_not_run(int tasks, pid_t thread, const stackcap_look *since) {
    char text[256];
    uint64_t schedule[3];
    return since->schedule[2] != 0 && read_file(tasks, thread, "schedstat", text, sizeof text) == 0 &&
           take_numbers(text, schedule, 3) == 3 && memcmp(since->schedule, schedule, sizeof schedule) == 0;
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
