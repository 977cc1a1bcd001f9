#include "CStalls.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

struct stall {
    stall_kind kind;
    int depth;
    uint64_t time_ns;
    char path[4096];
    pthread_t handle;
    pid_t thread;
    uint64_t low, high;
    atomic_bool ready, released;
    _Atomic uint64_t rounds, dozer_state, cut_short;
    int pipe[2];
    pthread_mutex_t lock;
    stall_end end;
};

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static struct timespec in_timespec(uint64_t ns) {
    return (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
}

static void require(bool met) {
    if (!met)
        abort();
}

// The stalls. Tests search for their names in captured stacks.

__attribute__((noinline)) static int64_t stall_in_nanosleep(stall *s) {
    struct timespec time = in_timespec(s->time_ns);
    return nanosleep(&time, NULL);
}

__attribute__((noinline)) static int64_t stall_in_poll(stall *s) {
    struct pollfd wanted = {s->pipe[0], POLLIN, 0};
    return poll(&wanted, 1, (int)(s->time_ns / 1000000));
}

__attribute__((noinline)) static int64_t stall_in_epoll(stall *s) {
    int file = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(file, EPOLL_CTL_ADD, s->pipe[0], &event);
    int result = epoll_wait(file, &event, 1, (int)(s->time_ns / 1000000));
    int error = errno;
    close(file);
    errno = error;
    return result;
}

__attribute__((noinline)) static int64_t stall_in_semaphore(stall *s) {
    sem_t semaphore;
    sem_init(&semaphore, 0, 0);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct timespec until = in_timespec((uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec + s->time_ns);
    return sem_timedwait(&semaphore, &until);
}

__attribute__((noinline)) static int64_t stall_in_receive(stall *s) {
    int pair[2];
    require(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    struct timeval time = {(time_t)(s->time_ns / 1000000000), (suseconds_t)(s->time_ns % 1000000000 / 1000)};
    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    char byte;
    ssize_t result = recv(pair[0], &byte, 1, 0);
    int error = errno;
    close(pair[0]), close(pair[1]);
    errno = error;
    return result;
}

__attribute__((noinline)) static int64_t stall_in_read(stall *s) {
    char byte;
    return read(s->pipe[0], &byte, 1);
}

__attribute__((noinline)) static int64_t stall_in_lock(stall *s) {
    return pthread_mutex_lock(&s->lock);
}

__attribute__((noinline)) static int64_t stall_in_fsync(stall *s) {
    FILE *stream = tmpfile();
    require(stream != NULL);
    static char block[1 << 20];
    while (!s->released) {
        // Another process may fill the file system for a moment; what has been written before is synchronised then.
        require(pwrite(fileno(stream), block, sizeof block, (off_t)(s->rounds % 64) << 20) > 0 || errno == ENOSPC);
        fsync(fileno(stream));
        s->rounds++;
    }
    fclose(stream);
    return 0;
}

__attribute__((noinline)) static int64_t stall_in_spin(stall *s) {
    while (!atomic_load_explicit(&s->released, memory_order_relaxed))
        atomic_store_explicit(&s->rounds, s->rounds + 1, memory_order_relaxed);
    return 0;
}

__attribute__((noinline)) static int64_t stall_in_allocate(stall *s) {
    void *kept[256] = {0};
    for (unsigned random = 1; !s->released; s->rounds++) {
        random = random * 1103515245 + 12345;
        void **slot = &kept[random >> 16 & 255];
        free(*slot);
        *slot = malloc(16 + (random >> 8 & (s->rounds % 64 ? 4095 : 0xfffff)));
    }
    for (int i = 0; i < 256; i++)
        free(kept[i]);
    return 0;
}

__attribute__((noinline)) static int64_t stall_in_reload(stall *s) {
    for (; !s->released; s->rounds++) {
        char file[sizeof s->path + 16];
        snprintf(file, sizeof file, "%s/plugin%d.so", s->path, (int)(s->rounds & 3));
        void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
        require(handle != NULL);
        int (*run)(int) = (int (*)(int))(uintptr_t)dlsym(handle, "plugin_run");
        require(run != NULL && run(12) >= 0);
        dlclose(handle);
    }
    return 0;
}

static int count_object(struct dl_phdr_info *info, size_t size, void *count) {
    (void)info, (void)size;
    ++*(long *)count;
    return 0;
}

__attribute__((noinline)) static int64_t stall_in_iterate(stall *s) {
    long count = 0;
    for (; !s->released; s->rounds++)
        dl_iterate_phdr(count_object, &count);
    return count;
}

static int hold_loader(struct dl_phdr_info *info, size_t size, void *context) {
    (void)info, (void)size;
    stall_in_read(context);
    return 1;
}

__attribute__((noinline)) static int64_t stall_in_loader(stall *s) {
    return dl_iterate_phdr(hold_loader, s);
}

__attribute__((noinline)) static int64_t stall_at(stall *s);

/// Like the function below, with frames of 8 KiB.
__attribute__((noinline)) static int64_t stall_descend_widely(stall *s, int depth) {
    volatile char frame[8192] = {0};
    int64_t result = depth == 0 ? stall_at(s) : stall_descend_widely(s, depth - 1);
    return result + frame[depth & 15];
}

/// One frame per call, without tail calls.
__attribute__((noinline)) static int64_t stall_descend(stall *s, int depth) {
    volatile char frame[16] = {0};
    int64_t result = depth == 0 ? stall_at(s) : stall_descend(s, depth - 1);
    return result + frame[depth & 15];
}

__attribute__((noinline)) static void doze_once(stall *s, uint64_t round) {
    struct timespec time = {0, 200000 + (long)(round % 7) * 300000};
    struct pollfd wanted = {s->pipe[0], POLLIN, 0};
    int result = round & 1 ? nanosleep(&time, NULL) : ppoll(&wanted, 1, &time, NULL);
    if (result < 0 && errno == EINTR)
        s->cut_short++;
}

/// With frames of different sizes, so that a confusion of two frames is detected.
__attribute__((noinline)) static int doze_below(stall *s, uint64_t round, int depth) {
    volatile char frame[72] = {0};
    if (depth == 0)
        doze_once(s, round);
    else
        doze_below(s, round, depth - 1);
    return frame[depth] + depth;
}

__attribute__((noinline)) static int64_t stall_in_doze(stall *s) {
    for (uint64_t round = 0; !s->released; round++) {
        int depth = (int)(round * 7919 % 41);
        atomic_store(&s->dozer_state, round << 6 | (uint64_t)depth);
        doze_below(s, round, depth);
        s->rounds++;
    }
    return 0;
}

__attribute__((noinline)) static int64_t swing_at_bottom(stall *s) {
    struct timespec time = {0, s->kind == STALL_SWING ? 3000000 : 100000};
    return nanosleep(&time, NULL);
}

__attribute__((noinline)) static int64_t stall_swing_left(stall *s, int depth) {
    volatile char frame[2048] = {0};
    int64_t result = depth == 0 ? swing_at_bottom(s) : stall_swing_left(s, depth - 1);
    return result + frame[depth & 15];
}

__attribute__((noinline)) static int64_t stall_swing_right(stall *s, int depth) {
    volatile char frame[2048] = {0};
    int64_t result = depth == 0 ? swing_at_bottom(s) : stall_swing_right(s, depth - 1);
    return result - frame[depth & 15];
}

__attribute__((noinline)) static int64_t stall_in_swing(stall *s) {
    int64_t result = 0;
    int depth = s->kind == STALL_SWING ? 400 : 200;
    for (; !s->released; s->rounds++)
        result += s->rounds & 1 ? stall_swing_left(s, depth) : stall_swing_right(s, depth);
    return result;
}

/// Code without an unwind table, but with a frame pointer: calls its first argument with its second. On x86-64 it returns as code of V8
/// does that removes its arguments from the stack; here there are none.
static const unsigned char bare_code[] = {
#if defined(__x86_64__)
    0x55, 0x48, 0x89, 0xe5,              // push %rbp; mov %rsp, %rbp
    0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7,  // mov %rdi, %rax; mov %rsi, %rdi
    0xff, 0xd0, 0xc9, 0x31, 0xd2, 0x59,  // call *%rax; leave; xor %edx, %edx; pop %rcx
    0x48, 0x01, 0xd4, 0x51, 0xc3,        // add %rdx, %rsp; push %rcx; ret
#elif defined(__aarch64__)
    0xfd, 0x7b, 0xbf, 0xa9, 0xfd, 0x03, 0x00, 0x91,  // stp x29, x30, [sp, #-16]!; mov x29, sp
    0xe8, 0x03, 0x00, 0xaa, 0xe0, 0x03, 0x01, 0xaa,  // mov x8, x0; mov x0, x1
    0x00, 0x01, 0x3f, 0xd6, 0xfd, 0x7b, 0xc1, 0xa8,  // blr x8; ldp x29, x30, [sp], #16
    0xc0, 0x03, 0x5f, 0xd6,                          // ret
#endif
};

__attribute__((noinline)) static int64_t call_through_bare_code(stall *s, int64_t (*function)(stall *)) {
    void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(code != MAP_FAILED);
    memcpy(code, bare_code, sizeof bare_code);
    require(mprotect(code, 4096, PROT_READ | PROT_EXEC) == 0);
    __builtin___clear_cache(code, (char *)code + sizeof bare_code);
    int64_t (*call)(int64_t (*)(stall *), stall *) = (int64_t (*)(int64_t (*)(stall *), stall *))(uintptr_t)code;
    int64_t result = call(function, s);
    munmap(code, 4096);
    return result;
}

__attribute__((noinline)) static int64_t stall_in_bare_spin(stall *s) {
    return call_through_bare_code(s, stall_in_spin) + 1;
}

__attribute__((noinline)) static int64_t stall_in_bare_read(stall *s) {
    return call_through_bare_code(s, stall_in_read) + 1;
}

#if defined(__x86_64__)
// Functions with damaged rows, which call their first argument with their second.
#define BELOW_ROW(name, instruction)                             \
    __asm__(".pushsection .text\n"                               \
            ".type " #name ", %function\n"                       \
            #name ": .cfi_startproc\n"                           \
            ".cfi_escape " instruction "\n"                      \
            "subq $8, %rsp\n"                                    \
            "movq %rdi, %rax\n"                                  \
            "movq %rsi, %rdi\n"                                  \
            "call *%rax\n"                                       \
            "addq $8, %rsp\n"                                    \
            "ret\n"                                              \
            ".cfi_endproc\n"                                     \
            ".size " #name ", .-" #name "\n"                     \
            ".popsection\n");                                    \
    extern int64_t name(int64_t (*function)(stall *), stall *s) __attribute__((visibility("hidden")));

// DW_CFA_def_cfa_expression: where the caller's frame is shall be computed. DW_OP_skip −3: by a jump to itself.
BELOW_ROW(stall_below_endless_row, "0x0f, 3, 0x2f, 0xfd, 0xff")
// lit1, const1u 63, shl, lit1, neg, div: by the smallest number divided by −1, which traps.
BELOW_ROW(stall_below_dividing_row, "0x0f, 7, 0x31, 0x08, 63, 0x24, 0x31, 0x1f, 0x1b")
// DW_CFA_register: %rbx is in a register that does not exist.
BELOW_ROW(stall_below_register_row, "0x09, 3, 0xff, 0xff, 0xff, 0xff, 0x0f")
// DW_CFA_val_offset, which libunwind 1.6 skips; its operands are the same DW_CFA_register then.
BELOW_ROW(stall_below_unknown_row, "0x14, 0x09, 3, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0")

__attribute__((noinline)) static int64_t stall_in_endless_row(stall *s) {
    return stall_below_endless_row(stall_in_spin, s) + 1;
}

__attribute__((noinline)) static int64_t stall_in_dividing_row(stall *s) {
    return stall_below_dividing_row(stall_in_spin, s) + 1;
}

__attribute__((noinline)) static int64_t stall_in_register_row(stall *s) {
    return stall_below_register_row(stall_in_spin, s) + 1;
}

__attribute__((noinline)) static int64_t stall_in_unknown_row(stall *s) {
    return stall_below_unknown_row(stall_in_spin, s) + 1;
}

extern int64_t stall_below_cut_row(int64_t (*function)(stall *), stall *s) __attribute__((visibility("hidden")));  // cut_row.c

__attribute__((noinline)) static int64_t stall_in_cut_row(stall *s) {
    return stall_below_cut_row(stall_in_spin, s) + 1;
}
#else
static int64_t stall_in_unknown_row(stall *s) {
    return stall_in_spin(s);
}

static int64_t stall_in_cut_row(stall *s) {
    return stall_in_spin(s);
}

static int64_t stall_in_endless_row(stall *s) {
    return stall_in_spin(s);
}

static int64_t stall_in_dividing_row(stall *s) {
    return stall_in_spin(s);
}

static int64_t stall_in_register_row(stall *s) {
    return stall_in_spin(s);
}
#endif

static _Thread_local stall *struck;

__attribute__((noinline)) static void stall_read_in_handler(int signal) {
    (void)signal;
    stall_in_read(struck);
}

__attribute__((noinline)) static int64_t stall_in_handler(stall *s) {
    struct sigaction action, previous;
    memset(&action, 0, sizeof action);
    action.sa_handler = stall_read_in_handler;
    sigaction(SIGUSR2, &action, &previous);
    struck = s;
    syscall(SYS_tgkill, getpid(), s->thread, SIGUSR2);
    sigaction(SIGUSR2, &previous, NULL);
    return 0;
}

#if defined(__x86_64__)
/// The handler returns through code without an unwind table, as in programs with musl: the C library's function has no such choice.
__attribute__((noinline)) static int64_t stall_in_bare_handler(stall *s) {
    static const unsigned char bare_return[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};  // mov $SYS_rt_sigreturn, %rax; syscall
    char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(code != MAP_FAILED);
    memcpy(code + 64, bare_return, sizeof bare_return);
    require(mprotect(code, 4096, PROT_READ | PROT_EXEC) == 0);
    struct {
        void (*handler)(int);
        unsigned long flags;
        void *restorer;
        uint64_t mask;
    } action = {.handler = stall_read_in_handler, .flags = 0x04000000, .restorer = code + 64};  // SA_RESTORER
    struct sigaction previous;
    sigaction(SIGUSR2, NULL, &previous);
    require(syscall(SYS_rt_sigaction, SIGUSR2, &action, NULL, sizeof action.mask) == 0);
    struck = s;
    syscall(SYS_tgkill, getpid(), s->thread, SIGUSR2);
    sigaction(SIGUSR2, &previous, NULL);
    munmap(code, 4096);
    return 0;
}
#else
static int64_t stall_in_bare_handler(stall *s) {
    return stall_in_handler(s);
}
#endif

// Two functions directly after each other, so that the byte before the second one's first instruction, a trap, is the first one's.
__asm__(".pushsection .text\n"
        ".type stall_before_trap, %function\n"
        "stall_before_trap: .cfi_startproc\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size stall_before_trap, .-stall_before_trap\n"
        ".type stall_traps, %function\n"
        "stall_traps: .cfi_startproc\n"
#if defined(__x86_64__)
        "ud2\n"
#elif defined(__aarch64__)
        "udf #0\n"
#endif
        "ret\n"
        ".cfi_endproc\n"
        ".size stall_traps, .-stall_traps\n"
        ".popsection\n");
extern void stall_traps(void) __attribute__((visibility("hidden")));

/// Reads, and continues after the trap.
__attribute__((noinline)) static void stall_read_in_trap(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    stall_in_read(struck);
    ucontext_t *interrupted = context;
#if defined(__x86_64__)
    interrupted->uc_mcontext.gregs[REG_RIP] += 2;
#elif defined(__aarch64__)
    interrupted->uc_mcontext.pc += 4;
#endif
}

__attribute__((noinline)) static int64_t stall_in_trap(stall *s) {
    struct sigaction action, previous;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = stall_read_in_trap;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGILL, &action, &previous);
    struck = s;
    stall_traps();
    sigaction(SIGILL, &previous, NULL);
    return 0;
}

#if defined(__x86_64__)
/// As the first thread may do, whose stack has no page yet below its stack pointer. No signal may arrive there.
__attribute__((noinline)) static int64_t stall_at_edge(stall *s) {
    enum { PAGE = 4096, INSIDE = 64 };
    char byte, *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    require(pages != MAP_FAILED && mprotect(pages, PAGE, PROT_NONE) == 0);
    int64_t result;
    __asm__ volatile("movq %%rsp, %%rbx\n"
                     "movq %[edge], %%rsp\n"
                     "syscall\n"
                     "movq %%rbx, %%rsp\n"
                     : "=a"(result)
                     : "a"((int64_t)SYS_read), "D"((int64_t)s->pipe[0]), "S"(&byte), "d"(INT64_C(1)), [edge] "r"(pages + PAGE + INSIDE)
                     : "rbx", "rcx", "r11", "memory");
    munmap(pages, 2 * PAGE);
    return result;
}
#else
static int64_t stall_at_edge(stall *s) {
    return stall_in_read(s);
}
#endif

static int64_t (*const functions[])(stall *) = {
    [STALL_NANOSLEEP] = stall_in_nanosleep, [STALL_POLL] = stall_in_poll,         [STALL_EPOLL] = stall_in_epoll,
    [STALL_SEMAPHORE] = stall_in_semaphore, [STALL_RECEIVE] = stall_in_receive,   [STALL_READ] = stall_in_read,
    [STALL_LOCK] = stall_in_lock,           [STALL_FSYNC] = stall_in_fsync,       [STALL_SPIN] = stall_in_spin,
    [STALL_SPIN_MASKED] = stall_in_spin,    [STALL_ALLOCATE] = stall_in_allocate, [STALL_RELOAD] = stall_in_reload,
    [STALL_ITERATE] = stall_in_iterate,     [STALL_HOLD_LOADER] = stall_in_loader, [STALL_DOZE] = stall_in_doze,
    [STALL_SWING] = stall_in_swing,         [STALL_QUICK_SWING] = stall_in_swing,
    [STALL_BARE_SPIN] = stall_in_bare_spin, [STALL_BARE_READ] = stall_in_bare_read,
    [STALL_HANDLER] = stall_in_handler,     [STALL_TRAP] = stall_in_trap,          [STALL_ENDLESS_ROW] = stall_in_endless_row,
    [STALL_BARE_HANDLER] = stall_in_bare_handler, [STALL_DIVIDING_ROW] = stall_in_dividing_row,
    [STALL_REGISTER_ROW] = stall_in_register_row, [STALL_CUT_ROW] = stall_in_cut_row,
    [STALL_UNKNOWN_ROW] = stall_in_unknown_row, [STALL_EDGE] = stall_at_edge,
    [STALL_LEFT] = stall_in_read,           [STALL_RIGHT] = stall_in_read,
};

__attribute__((noinline)) static int64_t stall_at(stall *s) {
    uint64_t began = now_ns();
    errno = 0;
    atomic_store(&s->ready, true);
    int64_t result = functions[s->kind](s);
    s->end.error = errno;
    s->end.lasted_ns = now_ns() - began;
    return result;
}

// The threads of the stalls.

static void note_identity(stall *s) {
    pthread_attr_t attributes;
    void *low;
    size_t size;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &low, &size);
    pthread_attr_destroy(&attributes);
    s->low = (uintptr_t)low;
    s->high = s->low + size;
    s->thread = (pid_t)syscall(SYS_gettid);
}

__attribute__((noinline)) static int64_t stall_from_left(stall *s) {
    volatile int64_t result = stall_descend(s, s->depth);
    return result;
}

__attribute__((noinline)) static int64_t stall_from_right(stall *s) {
    volatile int64_t result = stall_descend(s, s->depth);
    return result + 1;
}

// Without a frame of its own: stacks go directly from `run` to the chosen function.
__attribute__((always_inline)) static inline int64_t stall_from(stall *s) {
    switch (s->kind) {
    case STALL_LEFT: return stall_from_left(s);
    case STALL_RIGHT: return stall_from_right(s);
    default: return s->depth < 0 ? stall_descend_widely(s, -s->depth) : stall_descend(s, s->depth);
    }
}

static void *run(void *context) {
    stall *s = context;
    note_identity(s);
    sigset_t all;
    sigfillset(&all);
    // The mask is not inherited from the starting thread: dispatch threads block most signals.
    pthread_sigmask(s->kind == STALL_SPIN_MASKED ? SIG_BLOCK : SIG_UNBLOCK, &all, NULL);
    s->end.result = stall_from(s);
    pthread_sigmask(SIG_UNBLOCK, &all, NULL);  // what is pending arrives here
    return NULL;
}

static void *run_briefly(void *context) {
    stall *s = context;
    note_identity(s);
    atomic_store(&s->ready, true);
    static atomic_int threads;
    for (volatile int i = atomic_fetch_add(&threads, 1) % 97 * 10000; i > 0; i--) {}
    return NULL;
}

/// There can be hundreds of threads that need no pipe.
static bool needs_pipe(stall_kind kind) { return kind != STALL_LOCK && kind != STALL_SPIN; }

static bool spins(stall_kind kind) {
    return kind == STALL_SPIN || kind == STALL_SPIN_MASKED || kind == STALL_BARE_SPIN || kind == STALL_ENDLESS_ROW ||
           kind == STALL_DIVIDING_ROW || kind == STALL_REGISTER_ROW || kind == STALL_CUT_ROW || kind == STALL_UNKNOWN_ROW;
}

static stall *start(stall *s, void *(*body)(void *)) {
    s->pipe[0] = s->pipe[1] = -1;
    require(!needs_pipe(s->kind) || pipe2(s->pipe, O_CLOEXEC) == 0);
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_lock(&s->lock);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (s->depth > 10000)
        pthread_attr_setstacksize(&attributes, (size_t)s->depth * 256);
    require(pthread_create(&s->handle, &attributes, body, s) == 0);
    pthread_attr_destroy(&attributes);
    while (!atomic_load(&s->ready))
        sched_yield();
    // It is ready just before it spins.
    while (spins(s->kind) && atomic_load(&s->rounds) == 0)
        sched_yield();
    return s;
}

stall *stall_start(stall_kind kind, int depth, uint64_t time_ns, const char *path) {
    stall *s = calloc(1, sizeof *s);
    require(s != NULL);
    s->kind = kind;
    s->depth = depth;
    s->time_ns = time_ns;
    strncpy(s->path, path ? path : "", sizeof s->path - 1);
    return start(s, run);
}

stall *stall_start_brief(void) {
    stall *s = calloc(1, sizeof *s);
    require(s != NULL);
    return start(s, run_briefly);
}

pid_t stall_thread(const stall *s) { return s->thread; }
uint64_t stall_stack_low(const stall *s) { return s->low; }
uint64_t stall_stack_high(const stall *s) { return s->high; }
uint64_t stall_rounds(const stall *s) { return s->rounds; }
uint64_t stall_dozer_state(const stall *s) { return atomic_load(&s->dozer_state); }

stall_end stall_finish(stall *s) {
    s->released = true;
    pthread_mutex_unlock(&s->lock);
    if (functions[s->kind] == stall_in_read || s->kind == STALL_HOLD_LOADER || s->kind == STALL_BARE_READ ||
        s->kind == STALL_HANDLER || s->kind == STALL_BARE_HANDLER || s->kind == STALL_TRAP || s->kind == STALL_EDGE)
        require(write(s->pipe[1], "", 1) == 1);
    pthread_join(s->handle, NULL);
    stall_end end = s->end;
    end.rounds = s->rounds;
    end.cut_short = s->cut_short;
    if (needs_pipe(s->kind))
        close(s->pipe[0]), close(s->pipe[1]);
    free(s);
    return end;
}

// Signals, as an application uses them.

static _Atomic uint64_t counted;

static void count_signal(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info, (void)context;
    counted++;
}

void stall_count_signals(int signal) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = count_signal;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaction(signal, &action, NULL);
}

uint64_t stall_counted_signals(void) { return counted; }
void stall_send_own(pid_t thread, int signal) { syscall(SYS_tgkill, getpid(), thread, signal); }
void stall_reset_signal(int number) { signal(number, SIG_DFL); }

stall_handler stall_installed(int signal) {
    struct sigaction action;
    sigaction(signal, NULL, &action);
    if (action.sa_flags & SA_SIGINFO)
        return action.sa_sigaction == count_signal ? STALL_HANDLER_COUNTS : STALL_HANDLER_OTHER;
    return action.sa_handler == SIG_DFL ? STALL_HANDLER_DEFAULT : STALL_HANDLER_OTHER;
}

static atomic_bool frozen;

static void freeze(int signal) {
    (void)signal;
    for (atomic_store(&frozen, true);;) {}
}

void stall_freeze(pid_t thread) {
    signal(SIGUSR1, freeze);
    syscall(SYS_tgkill, getpid(), thread, SIGUSR1);
    while (!atomic_load(&frozen))
        sched_yield();
}

void stall_mask(int signal, bool blocked) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    pthread_sigmask(blocked ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

const char *stall_file_of(const char *symbol) {
    Dl_info info;
    void *address = dlsym(RTLD_DEFAULT, symbol);
    return address && dladdr(address, &info) ? info.dli_fname : NULL;
}

// Malloc's lock.

enum { MAX_WAITING = 64 };
static int hold_pipe[2];
static _Atomic pid_t held, waiting[MAX_WAITING];
static atomic_int waiting_count;
static _Atomic uint64_t allocations;
static atomic_bool is_locked, released;

/// Stops the thread where it is, which may be inside of malloc, until it is released.
__attribute__((noinline)) static void hold_here(int signal) {
    (void)signal;
    int saved = errno;
    char byte;
    held = (pid_t)syscall(SYS_gettid);
    ssize_t count = read(hold_pipe[0], &byte, 1);
    (void)count;
    held = 0;
    errno = saved;
}

/// One thread will be stopped; the others show whether it holds the lock.
static void *allocate_until_released(void *context) {
    void *volatile kept[16] = {0};
    if (context)
        waiting[waiting_count++] = (pid_t)syscall(SYS_gettid);
    for (unsigned i = 0; !released; i++) {
        free(kept[i & 15]);
        kept[i & 15] = malloc(32 + (i * 7919 & 2047));
        if (context)
            atomic_fetch_add(&allocations, 1);
    }
    return NULL;
}

static void rest(long milliseconds) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static void let_go(void) {
    require(write(hold_pipe[1], "", 1) == 1);
    while (held)
        rest(1);
}

/// Whether the thread waits for a lock, as far as /proc shows it. Allocates nothing.
static bool waits_for_lock(pid_t thread) {
    char path[64], text[32] = {0};
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", thread);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    require(file >= 0);
    ssize_t count = read(file, text, sizeof text - 1);
    close(file);
    return count > 0 && strtol(text, NULL, 10) == SYS_futex;
}

static bool all_wait(int waiting_threads) {
    int count = 0;
    // A thread is counted before it has entered its number.
    while (count < waiting_count && waiting[count] != 0 && waits_for_lock(waiting[count]))
        count++;
    return count == waiting_threads;
}

/// When the thread itself waits for the lock, or after two minutes.
static void *release_when_awaited(void *thread) {
    while (!is_locked)
        rest(1);
    uint64_t until = now_ns() + UINT64_C(120000000000);
    for (int seen = 0; seen < 2 && now_ns() < until;) {
        rest(5);
        seen = waits_for_lock(*(pid_t *)thread) ? seen + 1 : 0;
    }
    released = true;
    let_go();
    return NULL;
}

/// Starting a thread allocates as well.
static pthread_t start_all(int waiting_threads, pid_t *caller) {
    pthread_t holder, other;
    require(pthread_create(&other, NULL, release_when_awaited, caller) == 0);
    require(pthread_create(&holder, NULL, allocate_until_released, NULL) == 0);
    for (int i = 0; i < waiting_threads; i++)
        require(pthread_create(&other, NULL, allocate_until_released, &allocations) == 0);
    return holder;
}

pid_t stall_hold_malloc(int waiting_threads) {
    static pid_t caller;
    caller = (pid_t)syscall(SYS_gettid);
    require(waiting_threads <= MAX_WAITING && pipe2(hold_pipe, O_CLOEXEC) == 0);
    signal(SIGUSR1, hold_here);
    stall_mask(SIGUSR1, false);
    pthread_t holder = start_all(waiting_threads, &caller);
    for (;;) {
        pthread_kill(holder, SIGUSR1);
        while (!held)
            rest(1);
        rest(50);
        uint64_t before = allocations;
        // Several times: on a busy machine none of them may get a processor for a while.
        for (int i = 0; i < 4 && allocations == before; i++)
            rest(150);
        if (allocations == before && all_wait(waiting_threads))
            break;
        let_go();
    }
    is_locked = true;
    return held;
}
