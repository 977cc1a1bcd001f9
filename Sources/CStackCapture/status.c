/// What has become of a thread so far, and what it may do: /proc/PID/task/TID/status, and its CPU clock.
#include "look.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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
    int file = stackcap_open_of_thread(tasks, thread, "status"), error = 0;
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
    // In the thread's static TLS block: in a library that was loaded by dlopen(3), the first use of any other kind allocates, and a
    // thread that sleeps may hold malloc's lock.
    static _Thread_local struct {
        uint64_t looked_ns;
        bool is_filtered;
    } last __attribute__((tls_model("initial-exec")));
    uint64_t now = stackcap_now_ns();
    if (last.looked_ns == 0 || now - last.looked_ns > GOOD_FOR_NS) {
        struct status status;
        last.is_filtered = read_status(AT_FDCWD, stackcap_own_thread(), &status) != 0 || is_filtered(&status);
        last.looked_ns = now;
    }
    return last.is_filtered;
}

/// The CPU clock of any thread of this process, by thread id: the result of pthread_getcpuclockid, without a pthread_t.
static clockid_t cpu_clock(pid_t thread) {
    enum { PER_THREAD = 4, SCHEDULER = 2 };
    return (clockid_t)(~(unsigned)thread << 3 | PER_THREAD | SCHEDULER);
}

stackcap_outcome stackcap_read_progress(pid_t thread, stackcap_progress *progress) {
    struct timespec time;
    if (clock_gettime(cpu_clock(thread), &time) != 0)
        return stackcap_look_failed(ESRCH);  // EINVAL: no such thread
    progress->cpu_ns = (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
    struct status status;
    int error = read_status(AT_FDCWD, thread, &status);
    bool complete = !error && number_in(&status, "\nSigBlk:", 16, &progress->blocked) &&
                    number_in(&status, "\nvoluntary_ctxt_switches:", 10, &progress->sleeps);
    if (!complete)
        return stackcap_look_failed(error ? error : ENOTSUP);
    progress->is_filtered = is_filtered(&status);
    progress->is_strict = seccomp_mode(&status) == 1;
    return (stackcap_outcome){STACKCAP_OK, 0};
}

stackcap_outcome stackcap_count_sleeps(int tasks, pid_t thread, uint64_t *sleeps) {
    struct status status;
    int error = read_status(tasks, thread, &status);
    if (!error && !number_in(&status, "\nvoluntary_ctxt_switches:", 10, sleeps))
        error = ENOTSUP;
    return error ? stackcap_look_failed(error) : (stackcap_outcome){STACKCAP_OK, 0};
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
