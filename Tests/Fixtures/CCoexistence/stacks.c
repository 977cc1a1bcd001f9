/// Threads that run on a stack that is not their own.
#include "internal.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

static coexist_thread *subject;
static void (*act)(coexist_thread *);

enum { ALTERNATE = 64 * 1024, COROUTINE = 256 * 1024 };

/// Allocates memory with an inaccessible page before and after it.
static void *guarded(size_t size) {
    uint8_t *memory = mmap(NULL, size + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(memory != MAP_FAILED && mprotect(memory + 4096, size, PROT_READ | PROT_WRITE) == 0);
    return memory + 4096;
}

static void use_alternate_stack(void) {
    stack_t stack = {.ss_sp = guarded(ALTERNATE), .ss_size = ALTERNATE};
    require(sigaltstack(&stack, NULL) == 0);
}

static void handle(int signal) {
    (void)signal;
    act(subject);
    STAY(subject);
}

static void install(int signal, void (*handler)(int)) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_ONSTACK;
    sigaction(signal, &action, NULL);
}

static void interrupt_self(int signal) {
    syscall(SYS_tgkill, getpid(), subject->number, signal);
}

BODY static void act_in_handler(coexist_thread *thread, void (*body)(coexist_thread *)) {
    MARK(thread);
    subject = thread;
    act = body;
    use_alternate_stack();
    install(SIGUSR1, handle);
    interrupt_self(SIGUSR1);
    STAY(thread);
}

BODY void coexist_spin_on_alternate_stack(coexist_thread *thread) {
    MARK(thread);
    act_in_handler(thread, coexist_spin);
    STAY(thread);
}

BODY void coexist_wait_on_alternate_stack(coexist_thread *thread) {
    MARK(thread);
    act_in_handler(thread, coexist_wait);
    STAY(thread);
}

BODY static void interrupt_handler(coexist_thread *thread) {
    MARK(thread);
    act = coexist_spin;
    install(SIGUSR2, handle);
    interrupt_self(SIGUSR2);
    STAY(thread);
}

BODY void coexist_spin_nested(coexist_thread *thread) {
    MARK(thread);
    act_in_handler(thread, interrupt_handler);
    STAY(thread);
}

BODY static int descend(coexist_thread *thread, int depth) {
    volatile char frame[8192] = {0};
    if (depth > 0)
        return descend(thread, depth - 1) + frame[depth];
    act_in_handler(thread, coexist_spin);
    return frame[0];
}

BODY void coexist_spin_deep_below_alternate(coexist_thread *thread) {
    descend(thread, 50);
    STAY(thread);
}

static ucontext_t main_context, other_context;

static void enter_coroutine(void (*body)(void)) {
    require(getcontext(&other_context) == 0);
    other_context.uc_stack.ss_sp = guarded(COROUTINE);
    other_context.uc_stack.ss_size = COROUTINE;
    other_context.uc_link = &main_context;
    makecontext(&other_context, body, 0);
    swapcontext(&main_context, &other_context);
}

static void in_coroutine(void) {
    act(subject);
    STAY(subject);
}

static void act_in_coroutine(coexist_thread *thread, void (*body)(coexist_thread *)) {
    thread->mark_count = 0;  // a coroutine's stack ends where the coroutine was created
    subject = thread;
    act = body;
    enter_coroutine(in_coroutine);
}

void coexist_spin_on_coroutine(coexist_thread *thread) { act_in_coroutine(thread, coexist_spin); }
void coexist_wait_on_coroutine(coexist_thread *thread) { act_in_coroutine(thread, coexist_wait); }

BODY static void switch_back(void) {
    for (;;) {
        for (int i = 0; i < 500; i++)
            STAY(subject);
        swapcontext(&other_context, &main_context);
    }
}

void coexist_switch_coroutines(coexist_thread *thread) {
    thread->mark_count = 0;
    subject = thread;
    enter_coroutine(switch_back);
    ready(thread);
    while (!thread->released) {
        for (int i = 0; i < 500; i++)
            STAY(thread);
        swapcontext(&main_context, &other_context);
    }
}
