/// Another process, accessed through its files in /proc.
#include "process.h"
#include "walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static stackcap_outcome outcome_of(int error) {
    switch (error) {
    case 0:
        return status_only(STACKCAP_OK);
    case ENOENT:
    case ESRCH:
        return (stackcap_outcome){STACKCAP_GONE, error};
    case EPERM:
    case EACCES:
        return (stackcap_outcome){STACKCAP_REFUSED, error};
    default:
        return (stackcap_outcome){STACKCAP_FAILED, error};
    }
}

// Opening. If a step fails, the caller closes what is open.

/// \returns 0 or an errno.
static int open_in(int directory, const char *name, int flags, int *file) {
    *file = openat(directory, name, flags | O_CLOEXEC);
    return *file < 0 ? errno : 0;
}

// A process's first thread may end before the others. Its files then show a process without memory; the other threads' files
// still have it.

static bool has_memory(int thread) {
    char byte;
    int file;
    if (open_in(thread, "maps", O_RDONLY, &file) != 0)
        return false;
    ssize_t count = read(file, &byte, 1);
    close(file);
    return count == 1;
}

/// Opens the files of any other living thread. \returns −1 if there is none.
static int open_living(const stackcap_process *process) {
    int file, thread = -1;
    if (open_in(process->directory, "task", O_RDONLY | O_DIRECTORY, &file) != 0)
        return -1;
    DIR *list = fdopendir(file);
    if (!list)
        close(file);
    for (struct dirent *entry; list && thread < 0 && (entry = readdir(list));) {
        if (atoi(entry->d_name) <= 0 || open_in(process->tasks, entry->d_name, O_PATH | O_DIRECTORY, &thread) != 0 ||
            has_memory(thread))
            continue;
        close(thread);
        thread = -1;
    }
    if (list)
        closedir(list);
    return thread;
}

/// Selects the files through which the process's memory is read: its first thread's, or another's if that has ended. \returns 0
/// or ESRCH.
static int choose_thread(stackcap_process *process) {
    if (process->living >= 0)
        close(process->living);
    bool first_lives = has_memory(process->directory);
    process->living = first_lives ? -1 : open_living(process);
    process->modules.directory = process->living < 0 ? process->directory : process->living;
    return first_lives || process->living >= 0 ? 0 : ESRCH;
}

static int read_modules(stackcap_process *process, int (*read)(struct stackcap_modules *)) {
    int error = read(&process->modules);
    bool may_live = error == ESRCH || error == ENOENT;
    return may_live && choose_thread(process) == 0 ? read(&process->modules) : error;
}

/// Whether the program is for this processor, with our word length.
static stackcap_outcome check_program(const stackcap_process *process) {
    Elf64_Ehdr header;
    int file;
    int error = open_in(process->modules.directory, "exe", O_RDONLY, &file);
    if (error)
        return outcome_of(error);
    ssize_t count = pread(file, &header, sizeof header, 0);
    close(file);
    bool fits = count == sizeof header && header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_machine == ELF_MACHINE;
    return status_only(fits ? STACKCAP_OK : STACKCAP_OTHER_ARCHITECTURE);
}

/// By the process's number while its first thread lives, otherwise through the open file.
static int prepare_reader(stackcap_process *process) {
    return stackcap_reader_prepare_other(&process->unwinder.reader, process->process, process->memory, process->read_through_file,
                                         stackcap_modules_start(&process->modules));
}

static void close_memory(stackcap_process *process) {
    if (process->memory >= 0)
        close(process->memory);
    process->memory = -1;
}

/// Opens the memory of the program that runs now, and reads its mappings. If that fails, or it is a program for another processor,
/// no memory is open, and the next refresh does this again.
static stackcap_outcome take_program(stackcap_process *process) {
    close_memory(process);
    stackcap_indexes_free(&process->modules);
    choose_thread(process);  // if there is none, the next steps report it
    int error = open_in(process->modules.directory, "mem", O_RDONLY, &process->memory);
    if (!error)
        error = read_modules(process, stackcap_modules_read);
    if (!error)
        error = prepare_reader(process);
    stackcap_outcome outcome = error ? outcome_of(error) : check_program(process);
    if (outcome.status == STACKCAP_OK)
        process->counters.programs++;
    else
        close_memory(process);
    return outcome;
}

static stackcap_outcome open_files(stackcap_process *process) {
    char path[32];
    snprintf(path, sizeof path, "/proc/%d", process->process);
    int error = open_in(AT_FDCWD, path, O_PATH | O_DIRECTORY, &process->directory);
    if (!error)
        error = open_in(process->directory, "task", O_PATH | O_DIRECTORY, &process->tasks);
    if (error)
        return outcome_of(error);
    return take_program(process);
}

stackcap_outcome stackcap_process_open(pid_t pid, bool read_through_file, stackcap_process **opened) {
    *opened = NULL;
    stackcap_process *process = calloc(1, sizeof *process);
    if (!process)
        return outcome_of(ENOMEM);
    process->process = pid;
    process->directory = process->tasks = process->memory = process->living = -1;
    process->read_through_file = read_through_file;
    stackcap_tracer_prepare(&process->tracer);
    stackcap_outcome outcome = outcome_of(stackcap_unwinder_prepare(&process->unwinder));
    process->unwinder.modules = &process->modules;
    stackcap_pages_forget_all(&process->unwinder.pages);  // the unwinder has initialised itself with our own modules
    if (outcome.status == STACKCAP_OK)
        outcome = open_files(process);
    if (outcome.status == STACKCAP_OK)
        *opened = process;
    else
        stackcap_process_close(process);
    return outcome;
}

void stackcap_process_close(stackcap_process *process) {
    if (stackcap_tracer_finish(&process->tracer))
        stackcap_process_release(process);
}

void stackcap_process_release(stackcap_process *process) {
    stackcap_tracer_free(&process->tracer);
    stackcap_unwinder_finish(&process->unwinder);
    stackcap_modules_finish(&process->modules);
    int files[] = {process->directory, process->tasks, process->memory, process->living};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (files[i] >= 0)
            close(files[i]);
    free(process);
}

int stackcap_process_directory(const stackcap_process *process) {
    return process->directory;
}

// Following the process's changes.

/// Whether the opened memory is still in use. A read from memory that belongs to no process any more returns 0 bytes, whereas
/// an unmapped address is an error.
static bool is_same_program(const stackcap_process *process) {
    char byte;
    return process->memory >= 0 && pread(process->memory, &byte, 1, 0) != 0;
}

/// Whether memory can still be read by the process's number: not if its first thread has ended.
static bool reads(const stackcap_process *process) {
    char byte;
    const struct stackcap_reader *reader = &process->unwinder.reader;
    return reader->file >= 0 || stackcap_read_live(reader, stackcap_modules_start(&process->modules), &byte, 1) == 1;
}

stackcap_outcome stackcap_process_refresh(stackcap_process *process) {
    if (stackcap_tracer_is_held(&process->tracer))
        return status_only(STACKCAP_NOT_STOPPED);
    if (!is_same_program(process))
        return take_program(process);
    int error = read_modules(process, stackcap_modules_keep_up);
    return outcome_of(error || reads(process) ? error : prepare_reader(process));
}

// Capturing.

stackcap_outcome stackcap_process_look(stackcap_process *process, pid_t thread, stackcap_look *look) {
    return stackcap_look_in(process->tasks, thread, look);
}

stackcap_outcome stackcap_process_count_sleeps(stackcap_process *process, pid_t thread, uint64_t *sleeps) {
    return stackcap_count_sleeps(process->tasks, thread, sleeps);
}

/// The stack around the stack pointer. Reads the maps again if it is not there: a stack may be new, or have grown.
static bool find_stack(stackcap_process *process, uint64_t stack_pointer, uint64_t *low, uint64_t *high) {
    if (stackcap_modules_bounds(&process->modules, stack_pointer, low, high))
        return true;
    return read_modules(process, stackcap_modules_read) == 0 &&
           stackcap_modules_bounds(&process->modules, stack_pointer, low, high);
}

stackcap_outcome stackcap_process_copy_blocked(stackcap_process *process, pid_t thread, const stackcap_look *seen) {
    uint64_t low, high;
    if (stackcap_tracer_is_held(&process->tracer))
        return status_only(STACKCAP_NOT_STOPPED);
    if (!find_stack(process, seen->stack_pointer, &low, &high))
        return status_only(STACKCAP_OUT_OF_BOUNDS);
    return stackcap_copy_asleep(&process->unwinder, process->tasks, thread, low, high, seen);
}

static stackcap_outcome copy_by_tracer(stackcap_process *process, pid_t thread, bool is_halted, uint64_t deadline_ns) {
    stackcap_outcome outcome = stackcap_tracer_copy(process, thread, is_halted, deadline_ns);
    if (outcome.status != STACKCAP_OUT_OF_BOUNDS || read_modules(process, stackcap_modules_read) != 0)
        return outcome;  // otherwise: a stack may be new, or have grown
    return stackcap_tracer_copy(process, thread, is_halted, deadline_ns);
}

stackcap_outcome stackcap_process_copy_stopped(stackcap_process *process, pid_t thread, uint64_t deadline_ns) {
    return copy_by_tracer(process, thread, false, deadline_ns);
}

stackcap_outcome stackcap_process_copy_halted(stackcap_process *process, pid_t thread, uint64_t deadline_ns) {
    if (!stackcap_is_stopped(process->tasks, thread))
        return status_only(STACKCAP_MOVED);
    return copy_by_tracer(process, thread, true, deadline_ns);
}

stackcap_outcome stackcap_process_unwind(stackcap_process *process, stackcap_unwound *unwound) {
    process->unwinder.copy.made_ns = stackcap_now_ns();
    stackcap_outcome outcome = stackcap_unwind_copy(&process->unwinder, unwound);
    stackcap_tracer_count_wait(process);
    return is_same_program(process) ? outcome : status_only(STACKCAP_REPLACED);
}

stackcap_process_counters stackcap_process_read_counters(const stackcap_process *process) {
    return process->counters;
}
