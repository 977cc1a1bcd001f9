/// Walks a thread's stack at each instruction that it executes. The expected stack is derived from the calls and returns
/// themselves: each call is recorded with the location of its return address, until the stack pointer has passed that location.
#include "CTrials.h"
#include "walk.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unwind.h>

#if defined(__x86_64__)
enum {
    MOST_CALLS = 1024,
    TRAP_FLAG = 0x100,
    LONGEST_INSTRUCTION = 15,
    RETURN_BYTES = 8,
    MOST_TOLD = 24,
};

/// One run of a piece of work. Only its thread writes here.
static struct {
    void (*run)(void *);
    void *context;
    uint64_t most, halted_every, low, high;
    stackcap_unwinder unwinder;
    struct call {
        uint64_t slot, return_address;
    } calls[MOST_CALLS];  ///< Outermost first.
    size_t call_count, first_count;
    uint64_t address, stack_pointer;  ///< Before the instruction.
    trial_steps steps;
    uint64_t found[MOST_TOLD], true_calls[MOST_TOLD];  ///< The stack at the first error, innermost first, terminated by 0.
} trace;

/// The result of the walk at the first instruction is assumed to be correct: the rest is compared with it.
static void learn_calls(void) {
    const stackcap_unwinder *unwinder = &trace.unwinder;
    for (size_t i = unwinder->frame_count - 1; i > 0; i--) {
        const stackcap_frame *frame = stackcap_frame_at(unwinder, i);
        trace.calls[trace.call_count++] = (struct call){frame->stack_pointer - RETURN_BYTES, frame->address};
    }
    trace.first_count = trace.call_count;
}

/// Records the call or the return that the instruction made.
static void note_call(uint64_t address, uint64_t stack_pointer) {
    while (trace.call_count > 0 && trace.calls[trace.call_count - 1].slot < stack_pointer)
        trace.call_count--;
    uint64_t pushed;
    if (stack_pointer != trace.stack_pointer - RETURN_BYTES)
        return;
    memcpy(&pushed, (void *)(uintptr_t)stack_pointer, sizeof pushed);
    bool is_call = pushed > trace.address && pushed <= trace.address + LONGEST_INSTRUCTION && address != pushed;
    if (is_call && trace.call_count == MOST_CALLS)
        abort();
    if (is_call)
        trace.calls[trace.call_count++] = (struct call){stack_pointer, pushed};
}

/// Whether the code belongs to the exception runtime.
static bool is_of_exceptions(uint64_t address) {
    Dl_info own, runtime;
    return dladdr((void *)(uintptr_t)address, &own) && dladdr((void *)_Unwind_RaiseException, &runtime) &&
           own.dli_fbase == runtime.dli_fbase;
}

/// Whether the frames from `from` on are the outermost calls, and their number is equal.
static bool are_calls(size_t from) {
    const stackcap_unwinder *unwinder = &trace.unwinder;
    for (size_t i = unwinder->frame_count, call = 0; i > from; i--, call++) {
        const stackcap_frame *frame = stackcap_frame_at(unwinder, i - 1);
        if (call == trace.call_count || frame->address != trace.calls[call].return_address ||
            frame->stack_pointer - RETURN_BYTES != trace.calls[call].slot)
            return false;
    }
    return true;
}

/// When an exception is about to be handled, the runtime has overwritten its return address: it returns to the handler then, and
/// its caller can no longer be determined.
static bool is_about_to_handle(void) {
    size_t first = 1;
    while (first < trace.unwinder.frame_count && is_of_exceptions(stackcap_frame_at(&trace.unwinder, first - 1)->address))
        first++;
    return first > 1 && first < trace.unwinder.frame_count && (are_calls(first) || are_calls(first + 1));
}

static bool is_without_table(void) {
    bool found = trace.unwinder.end == STACKCAP_END_NO_TABLE;
    for (size_t i = 0; i < trace.unwinder.frame_count; i++)
        found |= stackcap_frame_at(&trace.unwinder, i)->found == STACKCAP_FOUND_FRAME_POINTER;
    return found;
}

static void keep_wrong(void) {
    for (size_t i = 0; i < trace.unwinder.frame_count && i < MOST_TOLD - 1; i++)
        trace.found[i] = stackcap_frame_at(&trace.unwinder, i)->address;
    for (size_t i = 0; i < trace.call_count && i < MOST_TOLD - 1; i++)
        trace.true_calls[i] = trace.calls[trace.call_count - 1 - i].return_address;
}

static bool is_right(void) {
    const stackcap_unwinder *unwinder = &trace.unwinder;
    bool is_whole = unwinder->frame_count == trace.call_count + 1 && are_calls(1);
    return unwinder->end == STACKCAP_END_COMPLETE && (is_whole || is_about_to_handle());
}

static void judge(void) {
    if (is_right())
        return;
    if (is_without_table())
        trace.steps.without_table++;
    else if (trace.steps.wrong++ == 0)
        keep_wrong();
}

/// Walks the stack like that of a thread that is stalled here without a system call: in a page fault, or frozen. The kernel
/// provides two of its registers, and frames that depend on guesses of the others must be marked.
static void judge_halted(uint64_t address, uint64_t stack_pointer) {
    stackcap_unwinder *unwinder = &trace.unwinder;
    stackcap_registers_unknown(&unwinder->registers, address, stack_pointer);
    unwinder->start = unwinder->registers;
    unwinder->registers_are_guessed = true;
    unwinder->sleeper.seen.state = STACKCAP_STATE_HALTED;
    unwinder->scanned_count = 0;
    stackcap_unwind_guessing(unwinder);
    unwinder->registers_are_guessed = false;
    if (is_right()) {
        unwinder->scanned_count = 0;
        return;
    }
    bool is_guessed = unwinder->scanned_count > 0 || is_without_table() || unwinder->end != STACKCAP_END_COMPLETE;
    unwinder->scanned_count = 0;
    trace.steps.guessed_wrongly += is_guessed;
    if (!is_guessed && trace.steps.wrong++ == 0)
        keep_wrong();
}

/// Called on the thread after each instruction.
static void step(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    stackcap_unwinder *unwinder = &trace.unwinder;
    ucontext_t *interrupted = context;
    stackcap_registers_from_context(&unwinder->registers, interrupted);
    uint64_t address = unwinder->registers.value[REGISTER_PROGRAM_COUNTER];
    uint64_t stack_pointer = unwinder->registers.value[REGISTER_STACK_POINTER];
    stackcap_pages_forget(&unwinder->pages);
    stackcap_copy_stack(unwinder, stack_pointer, trace.low, trace.high);
    stackcap_unwind_from_registers(unwinder);
    if (trace.steps.instructions++ == 0)
        learn_calls();
    else {
        note_call(address, stack_pointer);
        if (trace.call_count > trace.first_count) {  // otherwise in run_stepping, which moves the stack pointer itself
            judge();
            if (trace.steps.instructions % trace.halted_every == 0)
                judge_halted(address, stack_pointer);
        }
    }
    trace.address = address;
    trace.stack_pointer = stack_pointer;
    if (trace.steps.instructions == trace.most)
        interrupted->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
}

/// The first run is not stepped, so that the loader has no more work.
/// The red zone is not used: frames of this function end below it.
__attribute__((noinline)) static void run_stepping(void) {
    trace.run(trace.context);
    __asm__ volatile("sub $128, %%rsp; pushf; orq %0, (%%rsp); popf; add $128, %%rsp" ::"i"(TRAP_FLAG) : "memory", "cc");
    trace.run(trace.context);
    __asm__ volatile("sub $128, %%rsp; pushf; andq %0, (%%rsp); popf; add $128, %%rsp" ::"i"(~TRAP_FLAG) : "memory", "cc");
}

static void *begin(void *unused) {
    stackcap_own_stack(&trace.low, &trace.high);
    run_stepping();
    return unused;
}

bool trial_step_through(void (*run)(void *), void *context, uint64_t most, trial_steps *steps) {
    static bool is_prepared;
    if (!is_prepared && (stackcap_unwinder_prepare(&trace.unwinder) != 0 || stackcap_reader_prepare(&trace.unwinder.reader, false) != 0))
        abort();
    is_prepared = true;
    trace.run = run;
    trace.context = context;
    trace.most = most;
    trace.halted_every = most > 10000 ? 50 : 5;  // a search takes much longer than a walk
    trace.call_count = 0;
    trace.steps = (trial_steps){0};
    memset(trace.found, 0, sizeof trace.found);
    memset(trace.true_calls, 0, sizeof trace.true_calls);
    trace.unwinder.walk_until_ns = UINT64_MAX;
    struct sigaction action = {.sa_sigaction = step, .sa_flags = SA_SIGINFO}, before;
    sigaction(SIGTRAP, &action, &before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 8 << 20);
    pthread_t thread;
    if (pthread_create(&thread, &attributes, begin, NULL) != 0)
        abort();
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    sigaction(SIGTRAP, &before, NULL);
    *steps = trace.steps;
    return true;
}

static char *tell(char *to, const char *end, const uint64_t *addresses) {
    for (; *addresses && end - to > 200; addresses++) {
        Dl_info place = {0};
        dladdr((void *)(uintptr_t)*addresses, &place);
        const char *name = place.dli_sname ? place.dli_sname : place.dli_fname ? place.dli_fname : "?";
        uint64_t start = (uintptr_t)(place.dli_sname ? place.dli_saddr : place.dli_fbase);
        to += snprintf(to, (size_t)(end - to), " %.100s+%llx", name, (unsigned long long)(*addresses - start));
    }
    return to;
}

const char *trial_first_wrong_step(void) {
    static char text[8192];
    char *const end = text + sizeof text;
    char *to = tell(text, end - sizeof text / 2, trace.found);
    to += snprintf(to, (size_t)(end - to), "; the calls are:");
    tell(to, end, trace.true_calls);
    return text;
}
#else
bool trial_step_through(void (*run)(void *), void *context, uint64_t most, trial_steps *steps) {
    (void)run, (void)context, (void)most, (void)steps;
    return false;
}

const char *trial_first_wrong_step(void) {
    return "";
}
#endif
