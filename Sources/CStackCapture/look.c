/// What a thread does at one moment: /proc/PID/task/TID/syscall and schedstat. Each sample takes six system calls at most, and does
/// not affect the thread.
#include "look.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int stackcap_open_of_thread(int tasks, pid_t thread, const char *name) {
    char path[64];
    const char *own = tasks == AT_FDCWD ? "/proc/self/task/" : "";
    snprintf(path, sizeof path, "%s%d/%s", own, thread, name);
    return openat(tasks, path, O_RDONLY | O_CLOEXEC);
}

/// Reads a file of a thread into `text`, NUL-terminated. \returns 0 or an errno.
static int read_file(int tasks, pid_t thread, const char *name, char *text, size_t size) {
    int file = stackcap_open_of_thread(tasks, thread, name);
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

stackcap_outcome stackcap_look_failed(int error) {
    if (error == ENOENT || error == ESRCH)
        return (stackcap_outcome){STACKCAP_GONE, error};
    return (stackcap_outcome){STACKCAP_STATE_UNREADABLE, error};
}

int stackcap_read_schedule(int tasks, pid_t thread, uint64_t schedule[3]) {
    char text[256];
    int error = read_file(tasks, thread, "schedstat", text, sizeof text);
    return error ? error : take_numbers(text, schedule, 3) == 3 ? 0 : ENOTSUP;
}

stackcap_outcome stackcap_look_at(pid_t thread, stackcap_look *look) {
    return stackcap_look_in(AT_FDCWD, thread, look);
}

stackcap_outcome stackcap_look_in(int tasks, pid_t thread, stackcap_look *look) {
    char text[256];
    memset(look, 0, sizeof *look);
    int error = stackcap_read_schedule(tasks, thread, look->schedule);
    if (!error)
        error = read_file(tasks, thread, "syscall", text, sizeof text);
    if (error)
        return stackcap_look_failed(error);
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

void stackcap_thread_name(pid_t thread, char name[16]) {
    char text[32];
    if (read_file(AT_FDCWD, thread, "comm", text, sizeof text) != 0)
        text[0] = 0;
    text[strcspn(text, "\n")] = 0;
    strncpy(name, text, 15);
    name[15] = 0;
}
