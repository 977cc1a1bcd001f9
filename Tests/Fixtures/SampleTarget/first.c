/// A thread that stays on a function's first instruction, where the frame pointer is still that of the caller's frame.
#include "target.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
void spin_first(void);
void call_first(void);
__asm__(".text\n.p2align 4\n.type spin_first, @function\nspin_first: .cfi_startproc\n"
        "1: jmp 1b\n.cfi_endproc\n.size spin_first, . - spin_first\n"
        ".p2align 4\n.type call_first, @function\ncall_first: .cfi_startproc\n"
        "push %rbp\n.cfi_def_cfa_offset 16\n.cfi_offset 6, -16\nmov %rsp, %rbp\n.cfi_def_cfa_register 6\n"
        "call spin_first\npop %rbp\n.cfi_def_cfa 7, 8\nret\n.cfi_endproc\n.size call_first, . - call_first\n");

/// Three functions like those of a just-in-time compiler, each of which calls the next.
static void (*make_code(void))(void) {
    static const unsigned char code[] = {
        0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x20,        // push %rbp; mov %rsp, %rbp; sub $32, %rsp
        0xe8, 0x13, 0x00, 0x00, 0x00,                          // call the second
        0x48, 0x89, 0xec, 0x5d, 0xc3,                          // mov %rbp, %rsp; pop %rbp; ret
        0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc,
        0x55, 0x48, 0x89, 0xe5, 0x56, 0x57,                    // push %rbp; mov %rsp, %rbp; push %rsi; push %rdi
        0xe8, 0x15, 0x00, 0x00, 0x00,                          // call the third
        0xc9, 0xc3,                                            // leave; ret
        0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc,
        0x75, 0xfe, 0xc3,                                      // jne .; ret: jumps because of the subtraction
    };
    void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    memcpy(memory, code, sizeof code);
    mprotect(memory, 4096, PROT_READ | PROT_EXEC);
    return (void (*)(void))(uintptr_t)memory;
}

__attribute__((noinline)) static int call_code(void (*code)(void)) {
    puts("READY");
    fflush(stdout);
    // The generated code stays at its address as long as this is the case.
    __asm__ volatile("call *%0" ::"r"(code) : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "cc", "memory");
    return 1;
}

static void *sealed;

__attribute__((noinline)) static void wait_sealed(void) {
    mprotect(sealed, 4096, PROT_READ);
    puts("READY");
    fflush(stdout);
    getchar();
    mprotect(sealed, 4096, PROT_READ | PROT_EXEC);
    for (;;)
        pause();
}

int wait_in_sealed_code(void) {
    // push %rbp; mov %rsp, %rbp; call *%rdi; leave; ret
    static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0xc9, 0xc3};
    sealed = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (sealed == MAP_FAILED)
        return 1;
    memcpy(sealed, code, sizeof code);
    mprotect(sealed, 4096, PROT_READ | PROT_EXEC);
    ((void (*)(void (*)(void)))(uintptr_t)sealed)(wait_sealed);
    __asm__ volatile("" ::: "memory");  // no tail call
    return 0;
}

int stand_first(bool is_made) {
    void (*code)(void) = is_made ? make_code() : call_first;
    return code ? call_code(code) : 1;
}
#else
int stand_first(bool is_made) {
    (void)is_made;
    return 64;
}

int wait_in_sealed_code(void) {
    return 64;
}
#endif
