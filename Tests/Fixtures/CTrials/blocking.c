#include "blocking.h"
#include <CStackCapture.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void trial_require(bool met, const char *what) {
    if (met)
        return;
    fprintf(stderr, "trial: not met: %s (errno %d)\n", what, errno);
    abort();
}

uint64_t trial_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t trial_own_cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void trial_buffer_lines(void) { setvbuf(stdout, NULL, _IOLBF, 0); }

trial_thread trial_own_thread(void) {
    uint64_t low, high;
    require(stackcap_own_stack(&low, &high) == 0);
    return (trial_thread){stackcap_own_thread(), low, high};
}

static const struct blocking_call *call_at(size_t index) {
    if (index < trial_timed_call_count)
        return &trial_timed_calls[index];
    index -= trial_timed_call_count;
    if (index < trial_descriptor_call_count)
        return &trial_descriptor_calls[index];
    return &trial_process_calls[index - trial_descriptor_call_count];
}

size_t trial_block_count(void) {
    return trial_timed_call_count + trial_descriptor_call_count + trial_process_call_count;
}
const char *trial_block_name(size_t index) { return call_at(index)->name; }
bool trial_block_is_timed(size_t index) { return !call_at(index)->release; }
bool trial_block_is_page_fault(size_t index) { return call_at(index)->number == -1; }

static bool is_call(const struct blocking_call *call, int64_t number) {
    return number == call->number || (call->or_number && number == call->or_number);
}
bool trial_block_is_call(size_t index, int64_t number) { return is_call(call_at(index), number); }

static int depth_wanted;
void trial_block_set_depth(int depth) { depth_wanted = depth; }

/// Frames of different sizes, known only at run time.
__attribute__((noinline)) static int64_t block_below(trial_block *block, int depth) {
    volatile char frame[16 + depth % 5 * 48];
    frame[0] = (char)depth;
    int64_t result = depth == 0 ? block->call->run(block) : block_below(block, depth - 1);
    return frame[0] == (char)depth ? result : -1;
}

__attribute__((noinline)) static void *trial_block_thread_main(void *context) {
    trial_block *block = context;
    block->thread = trial_own_thread();
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_UNBLOCK, &all, NULL);
    block->began_ns = trial_now_ns();
    atomic_store(&block->started, true);
    block->result = block_below(block, depth_wanted);
    block->ended_ns = trial_now_ns();
    atomic_store(&block->returned, true);
    return NULL;
}

trial_block *trial_block_start(size_t index, uint64_t time_ns, int *error) {
    trial_block *block = calloc(1, sizeof *block);
    require(block != NULL);
    block->call = call_at(index);
    block->time_ns = time_ns;
    for (int i = 0; i < 4; i++)
        block->file[i] = -1;
    *error = block->call->prepare ? block->call->prepare(block) : 0;
    if (*error) {
        trial_close_files(block);
        free(block);
        return NULL;
    }
    require(pthread_create(&block->handle, NULL, trial_block_thread_main, block) == 0);
    while (!atomic_load(&block->started))
        sched_yield();
    return block;
}

trial_thread trial_block_thread(const trial_block *block) { return block->thread; }
bool trial_block_has_returned(const trial_block *block) { return atomic_load(&block->returned); }

/// \returns the number of the system call in which the thread sleeps, −1 for a page fault, −2 while it runs.
static long call_of(pid_t thread) {
    char path[64], text[256] = {0};
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", thread);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -2;
    ssize_t count = read(file, text, sizeof text - 1);
    close(file);
    return count <= 0 || text[0] == 'r' ? -2 : strtol(text, NULL, 0);
}

bool trial_block_await(trial_block *block, uint64_t deadline_ns) {
    for (int seen = 0; seen < 2;) {
        if (trial_now_ns() > deadline_ns || trial_block_has_returned(block))
            return false;
        struct timespec rest = {0, 1000000};
        nanosleep(&rest, NULL);
        seen = is_call(block->call, call_of(block->thread.number)) ? seen + 1 : 0;
    }
    return true;
}

static bool is_early(const trial_block *block) {
    // Deadlines on the wall clock may be up to a millisecond early while that clock is being adjusted.
    if (!block->call->release)
        return block->ended_ns + 1000000 < block->began_ns + block->time_ns;
    return block->ended_ns < block->released_ns;
}

trial_block_end trial_block_finish(trial_block *block) {
    const struct blocking_call *call = block->call;
    block->released_ns = trial_now_ns();
    if (call->release)
        call->release(block);
    pthread_join(block->handle, NULL);
    trial_block_end end = {
        .as_expected = block->result == call->result && (call->result >= 0 || block->error == call->error),
        .early = is_early(block),
        .result = block->result,
        .error = block->result < 0 ? block->error : 0,
        .lasted_ns = block->ended_ns - block->began_ns,
    };
    if (call->clean)
        call->clean(block);
    trial_close_files(block);
    free(block);
    return end;
}

void trial_close_files(trial_block *block) {
    for (int i = 0; i < 4; i++)
        if (block->file[i] >= 0)
            close(block->file[i]);
}

static void do_nothing(int signal) { (void)signal; }

void trial_handle_usr2(void) { signal(SIGUSR2, do_nothing); }
