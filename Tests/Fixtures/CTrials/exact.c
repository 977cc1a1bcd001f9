#include "blocking.h"

#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/// compare_stacks.py reads this by offset: release builds have no debug information.
struct trial_published {
    int32_t thread, round, count, is_frozen, is_complete, is_refused;  ///< 0: not; 1: with a name; 2: otherwise
    char scene[64];
    uint64_t addresses[TRIAL_PUBLISHED_FRAMES];
    uint8_t by_frame_pointer[TRIAL_PUBLISHED_FRAMES];
} trial_published_stack;
_Static_assert(offsetof(struct trial_published, scene) == 24 && offsetof(struct trial_published, addresses) == 88, "as the script has it");

void trial_publish_begin(pid_t thread, int round, bool is_frozen_thread, bool is_complete, const char *scene) {
    struct trial_published *stack = &trial_published_stack;
    stack->thread = thread, stack->round = round, stack->count = 0;
    stack->is_frozen = is_frozen_thread, stack->is_complete = is_complete, stack->is_refused = 0;
    memset(stack->scene, 0, sizeof stack->scene);
    strncpy(stack->scene, scene, sizeof stack->scene - 1);
}

void trial_publish_refusal(bool is_named) { trial_published_stack.is_refused = is_named ? 1 : 2; }

void trial_publish_frame(uint64_t address, bool by_frame_pointer) {
    struct trial_published *stack = &trial_published_stack;
    if (stack->count == TRIAL_PUBLISHED_FRAMES)
        return;
    stack->addresses[stack->count] = address;
    stack->by_frame_pointer[stack->count++] = by_frame_pointer;
}

trial_scene trial_scene_at(int language, size_t index) { return language ? trial_cpp_scenes[index] : trial_c_scenes[index]; }

static atomic_bool is_frozen, may_thaw;

/// It does not move the stack pointer, so its caller's frame is the same at each of its instructions.
static void trial_frozen(int signal) {
    (void)signal;
    atomic_store(&is_frozen, true);
    while (!atomic_load_explicit(&may_thaw, memory_order_relaxed)) {}
    atomic_store(&is_frozen, false);
}

bool trial_freeze(pid_t thread) {
    signal(SIGUSR1, trial_frozen);
    atomic_store(&may_thaw, false);
    uint64_t deadline = trial_now_ns() + 1000000000;
    if (syscall(SYS_tgkill, getpid(), thread, SIGUSR1) != 0)
        return false;
    while (!atomic_load(&is_frozen)) {
        if (trial_now_ns() > deadline) {
            atomic_store(&may_thaw, true);  // a later signal returns immediately
            return false;
        }
        sched_yield();
    }
    return true;
}

void trial_let_freeze(void) {
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR1);
    sigaddset(&wanted, SIGUSR2);
    pthread_sigmask(SIG_UNBLOCK, &wanted, NULL);
}

void trial_thaw(void) {
    atomic_store(&may_thaw, true);
    while (atomic_load(&is_frozen))
        sched_yield();
}

void trial_call_debugger(void) {
    signal(SIGTRAP, SIG_IGN);  // if there is no debugger
    raise(SIGTRAP);
}

/// Does not use popen: a thread that is frozen in it would hold its lock.
char *trial_output_of(const char *command) {
    size_t size = 1 << 20, length = 0;
    ssize_t count;
    char *text = malloc(size);
    int ends[2];
    require(text && pipe2(ends, O_CLOEXEC) == 0);
    pid_t child = vfork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        execl("/bin/sh", "sh", "-c", command, NULL);
        _exit(127);
    }
    close(ends[1]);
    require(child > 0);
    while ((count = read(ends[0], text + length, size - 1 - length)) > 0)
        length += (size_t)count;
    close(ends[0]);
    require(waitpid(child, NULL, 0) == child);
    text[length] = 0;
    return text;
}
