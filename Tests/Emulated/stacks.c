/// Captures threads in the functions of waits.c, on this machine, which may be emulated.
///
/// An emulator's /proc shows the emulator's own registers. So a sleeping thread reports its registers itself: a signal interrupts its
/// call, and the signal's context has the registers that /proc would show on a real machine, and the others for comparison. With all
/// registers the walk must find the functions that are known to be on the stack; with the program counter and the stack pointer alone it
/// must find the same. Running threads are captured as usual.
#include "session.h"
#include "walk.h"
#include "waits.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RUNNING_CAPTURES = 200, LOOKS_ASLEEP = 30 };

static stackcap_unwinder unwinder;
static struct stackcap_registers registers;
static uint64_t low, high;
static pid_t thread;
static bool may_miss;  ///< Frames may be missing: the functions have no unwind table, or no frame records.
static atomic_bool is_ready, is_taken, is_over;

// What a thread reports about itself.

static void tell(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    stackcap_registers_from_context(&registers, context);
    stackcap_copy_stack(&unwinder, registers.value[REGISTER_STACK_POINTER], low, high);
    atomic_store(&is_taken, true);
    while (!atomic_load(&is_over))
        ;
}

static void *run(void *function) {
    stackcap_own_stack(&low, &high);
    thread = stackcap_own_thread();
    atomic_store(&is_ready, true);
    descend(DEPTH, (void (*)(void))(uintptr_t)function);
    return NULL;
}

static pthread_t start(void (*function)(void)) {
    pthread_t handle;
    atomic_store(&is_ready, false), atomic_store(&is_taken, false), atomic_store(&is_over, false);
    waits_over = 0;
    if (pthread_create(&handle, NULL, run, (void *)(uintptr_t)function) != 0)
        abort();
    while (!atomic_load(&is_ready))
        usleep(100);
    return handle;
}

/// Waits until the thread sleeps: an emulator's /proc shows that. The emulator's own sleeps are short.
static bool falls_asleep(void) {
    stackcap_look look, last = {0};
    for (int i = 0, same = 0; i < 5000; i++, usleep(1000)) {
        bool sleeps = stackcap_look_at(thread, &look).status == STACKCAP_OK && look.state == STACKCAP_STATE_CALLING;
        same = sleeps && memcmp(&look, &last, sizeof look) == 0 ? same + 1 : 0;
        last = look;
        if (same == LOOKS_ASLEEP)
            return true;
    }
    return false;
}

// What the stack must be.

static bool is_in(uint64_t return_address, void (*function)(void)) {
    Dl_info found;
    return dladdr((void *)(uintptr_t)(return_address - 1), &found) && found.dli_saddr == (void *)(uintptr_t)function;
}

/// Whether the frames from `at` on are `descend`, as often as it was called, `run`, and two of the C library.
static bool is_start(const stackcap_frame *frames, size_t count, size_t at) {
    if (count != at + DEPTH + 3)
        return false;
    for (size_t i = at; i < at + DEPTH; i++)
        if (!is_in(frames[i].address, (void (*)(void))(uintptr_t)descend))
            return false;
    return true;
}

/// The number of frames inside the given callers, or −1 if the stack is wrong.
static long frames_below(const stackcap_frame *frames, size_t count, stackcap_end end, void (*const callers[])(void)) {
    if (end != STACKCAP_END_COMPLETE)
        return -1;
    for (size_t at = 0; at < count; at++) {
        size_t named = 0;
        while (callers[named] && at + named < count && is_in(frames[at + named].address + (at + named == 0), callers[named]))
            named++;
        if (!callers[named] && is_start(frames, count, at + named))
            return (long)at;
    }
    return -1;
}

static void print_frames(const char *title, const stackcap_frame *frames, size_t count) {
    printf("    %s:", title);
    for (size_t i = 0; i < count; i++) {
        Dl_info found = {0};
        dladdr((void *)(uintptr_t)(frames[i].address - 1), &found);
        printf(" %s", found.dli_sname ? found.dli_sname : "?");
        printf("(%c)", "rtfs"[frames[i].found]);
    }
    printf("\n");
}

// Sleeping threads.

/// Whether the frames are the same, except for some missing after the first one, for which the next one is marked.
static bool is_same(const stackcap_frame *all, size_t count, size_t missing) {
    for (size_t i = 0; i < unwinder.frame_count; i++)
        if (unwinder.frames[i].address != all[i == 0 ? 0 : i + missing].address)
            return false;
    return unwinder.frame_count + missing == count && unwinder.end == STACKCAP_END_COMPLETE &&
           (missing == 0 || unwinder.frames[1].found == STACKCAP_FOUND_FRAME_POINTER);
}

/// A frame may be missing if its function was called by address, or if a function has no unwind table or no frame record.
static const char *judge(const stackcap_frame *all, size_t count, bool right, bool by_name) {
    if (!right)
        return "WRONG with all registers";
    size_t missing = unwinder.frame_count < count ? count - unwinder.frame_count : 0;
    if (!is_same(all, count, missing))
        return "WRONG";
    if (missing == 0)
        return "equal";
    if (missing > 1 && !may_miss)
        return "WRONG: frames are missing";
    return by_name && !may_miss ? "WRONG: a frame is missing" : missing == 1 ? "one frame missing, marked" : "frames missing, marked";
}

/// A debugger stops here: see witness.py.
__attribute__((noinline)) void show_to_witness(const stackcap_frame *frames, size_t count) {
    __asm__ volatile("nop" ::"r"(frames), "r"(count) : "memory");
}

static bool capture_asleep(const struct wait *wait, bool by_name) {
    stackcap_frame all[64];
    void (*callers[])(void) = {wait->wait, by_name ? wait->call_by_name : NULL, NULL};
    pthread_t handle = start(by_name ? wait->call_by_name : wait->wait);
    bool slept = falls_asleep();
    pthread_kill(handle, SIGUSR1);
    while (!atomic_load(&is_taken))
        usleep(100);
    stackcap_pages_forget(&unwinder.pages);
    unwinder.registers = registers;
    stackcap_unwind_from_registers(&unwinder);
    size_t count = unwinder.frame_count < 64 ? unwinder.frame_count : 64;
    memcpy(all, unwinder.frames, count * sizeof *all);
    show_to_witness(all, count);
    bool right = frames_below(all, count, unwinder.end, callers) >= 1;
    stackcap_registers_unknown(&unwinder.registers, registers.value[REGISTER_PROGRAM_COUNTER], registers.value[REGISTER_STACK_POINTER]);
    stackcap_unwind_guessing(&unwinder);
    const char *verdict = slept ? judge(all, count, right, by_name) : "WRONG: does not sleep";
    printf("  %-13s called %s  %2zu frames  %s\n", wait->name, by_name ? "by name   " : "by address", count, verdict);
    bool good = strncmp(verdict, "WRONG", 5) != 0;
    if (!good || getenv("VERBOSE")) {
        print_frames("from all registers", all, count);
        print_frames("from two", unwinder.frames, unwinder.frame_count);
    }
    atomic_store(&is_over, true);
    return good;
}

// Running threads.

static bool capture_running(stackcap_session *session, const struct wait *spin) {
    void (*const callers[])(void) = {spin->wait, spin->call_by_name, NULL};
    pthread_t handle = start(spin->call_by_name);
    int right = 0, captured = 0;
    uint64_t before = waits_spins;
    while (waits_spins == before)
        usleep(100);
    for (int i = 0; i < RUNNING_CAPTURES; i++) {
        stackcap_unwound stack;
        stackcap_progress seen;
        if (stackcap_read_progress(thread, &seen).status != STACKCAP_OK ||
            stackcap_copy_running(session, thread, low, high, &seen, stackcap_now_ns() + 1000000000, false).status != STACKCAP_OK ||
            stackcap_unwind(session, &stack).status != STACKCAP_OK)
            continue;
        captured++;
        long below = frames_below(stack.frames, stack.count, stack.end, callers);
        bool is_right = below == 0 || (below == 1 && is_in(stack.frames[0].address + 1, (void (*)(void))(uintptr_t)waits_are_over));
        right += is_right;
        if (!is_right && captured == right + 1)
            print_frames("running", stack.frames, stack.count);
    }
    waits_over = 1;
    pthread_join(handle, NULL);
    printf("  %-13s running: %d of %d captures, %d right\n", spin->name, captured, RUNNING_CAPTURES, right);
    return captured >= RUNNING_CAPTURES / 2 && right == captured;
}

int main(int count, char **arguments) {
    may_miss = count > 1 && strcmp(arguments[1], "may-miss") == 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    int bad = 0;
    stackcap_session *session;
    if (stackcap_open(SIGPROF, false, &session).status != STACKCAP_OK || stackcap_unwinder_prepare(&unwinder) != 0 ||
        stackcap_reader_prepare(&unwinder.reader, false) != 0)
        return 2;
    waits_prepare();
    struct sigaction action = {.sa_sigaction = tell, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < 2; i++)
        bad += !capture_running(session, &spins[i]);
    for (int i = 0; i < wait_count; i++)
        for (int by_name = 1; by_name >= 0; by_name--)
            bad += !capture_asleep(&waits[i], by_name);
    printf("%d wrong\n", bad);
    signal(SIGTERM, SIG_IGN);
    kill(0, SIGTERM);
    _exit(bad != 0);
}
