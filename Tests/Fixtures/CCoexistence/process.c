/// Sandboxes, tracers, forks.
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

const int coexist_call_process_vm_readv = SYS_process_vm_readv;
const int coexist_call_rt_tgsigqueueinfo = SYS_rt_tgsigqueueinfo;

bool coexist_forbid(int call, int action, bool everywhere) {
    const unsigned answers[] = {SECCOMP_RET_ERRNO | EPERM, SECCOMP_RET_TRAP, SECCOMP_RET_KILL_PROCESS};
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),  // seccomp_data.nr
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, answers[action]),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, everywhere ? SECCOMP_FILTER_FLAG_TSYNC : 0, &program) == 0;
}

BODY void coexist_spin_sandboxed(coexist_thread *thread) {
    MARK(thread);
    require(coexist_forbid(SYS_process_vm_readv, COEXIST_KILL, false));
    coexist_spin(thread);
    STAY(thread);
}

bool coexist_has_strict_mode(void) { return prctl(PR_GET_SECCOMP) == 0; }

BODY void coexist_spin_strict(coexist_thread *thread) {
    MARK(thread);
    require(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
    coexist_spin(thread);
    STAY(thread);
}

bool coexist_drop_rights(void) {
    return setgid(65534) == 0 && setuid(65534) == 0 && prctl(PR_SET_DUMPABLE, 0) == 0;
}

bool coexist_be_dumpable(void) { return prctl(PR_SET_DUMPABLE, 1) == 0; }

void coexist_replace_descriptors(void) {
    require(close_range(3, ~0U, 0) == 0);
    for (int i = 0; i < 100; i++)
        require(open("/proc/self/exe", O_RDONLY) >= 3);
}

static void await(int file) {
    char byte;
    require(read(file, &byte, 1) == 1);
}

bool coexist_trace(pid_t thread) {
    int told[2];
    require(pipe(told) == 0);
    pid_t tracer = fork();
    if (tracer == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int status;
        bool stopped = ptrace(PTRACE_SEIZE, thread, 0, 0) == 0 && ptrace(PTRACE_INTERRUPT, thread, 0, 0) == 0 &&
                       waitpid(thread, &status, __WALL) == thread;
        require(write(told[1], "", 1) == 1);
        while (stopped)
            pause();
        _exit(1);
    }
    await(told[0]);
    return kill(tracer, 0) == 0;
}

static int stopping[2];

/// It ends after it has let this process continue: killed, it could leave it stopped for ever.
pid_t coexist_stop_now_and_then(void) {
    require(pipe(stopping) == 0);
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(stopping[1]);
        struct timespec time = {0, 5000000};
        struct pollfd closed = {stopping[0], 0, 0};
        do {
            kill(parent, SIGSTOP);
            nanosleep(&time, NULL);
            kill(parent, SIGCONT);
        } while (poll(&closed, 1, 5) == 0);
        _exit(0);
    }
    close(stopping[0]);
    return child;
}

void coexist_stop_no_more(pid_t stopper) {
    close(stopping[1]);
    waitpid(stopper, NULL, 0);
}

static void end_child(pid_t process) {
    kill(process, SIGKILL);
    waitpid(process, NULL, 0);
}

/// Waits for the child, and kills it after the time.
static int wait_for(pid_t child, int milliseconds) {
    struct timespec rest = {0, 1000000};
    int status;
    for (int i = 0; i < milliseconds; i++) {
        if (waitpid(child, &status, WNOHANG) == child)
            return status;
        nanosleep(&rest, NULL);
    }
    end_child(child);
    return -1;
}

int coexist_in_child(int (*body)(void *), void *context) {
    pid_t child = fork();
    if (child == 0)
        _exit(body(context));
    return wait_for(child, 10000);
}

int coexist_in_first_process(int (*body)(void *), void *context) {
    enum { NO_NAMESPACE = 77 };
    pid_t child = fork();
    if (child == 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0)
            _exit(NO_NAMESPACE);
        pid_t first = fork();
        if (first == 0)
            _exit(body(context));
        require(first > 0);
        int status = wait_for(first, 60000);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128);
    }
    int status = wait_for(child, 90000);
    if (!WIFEXITED(status) || WEXITSTATUS(status) == 128)
        return -1;
    return WEXITSTATUS(status) == NO_NAMESPACE ? COEXIST_NO_NAMESPACE : WEXITSTATUS(status);
}

static void put_entry(char *const *_Nonnull environment, const char *entry, const char **out) {
    size_t count = 0;
    for (; environment[count] && count < 1000; count++)
        out[count] = environment[count];
    out[count] = entry;
    out[count + 1] = NULL;
}

/// Reads until the end of the output, or for a minute.
static void collect(int file, char *text, size_t size) {
    struct pollfd readable = {file, POLLIN, 0};
    size_t used = 0;
    while (poll(&readable, 1, 60000) == 1) {
        char rest[65536];
        ssize_t count = read(file, rest, sizeof rest);
        if (count <= 0)
            break;
        size_t part = (size_t)count < size - 1 - used ? (size_t)count : size - 1 - used;
        memcpy(text + used, rest, part);
        used += part;
    }
    text[used] = 0;
}

int coexist_run(const char *const *arguments, const char *entry, char *text, size_t size) {
    extern char **environ;
    static const char *environment[1002];
    int out[2];
    pid_t child;
    posix_spawn_file_actions_t actions;
    put_entry(environ, entry, environment);
    require(pipe2(out, O_CLOEXEC) == 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    posix_spawn_file_actions_adddup2(&actions, out[1], 2);
    require(posix_spawn(&child, "/proc/self/exe", &actions, NULL, (char *const *)(uintptr_t)arguments,
                        (char *const *)(uintptr_t)environment) == 0);
    close(out[1]);
    collect(out[0], text, size);
    close(out[0]);
    return wait_for(child, 5000);
}
