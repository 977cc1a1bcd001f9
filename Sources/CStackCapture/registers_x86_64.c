#if defined(__x86_64__)

/// x86-64's registers, its calls and frames as machine code, and the calls that a signal or a stop has cut short.
#include "session.h"
#include "walk.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/user.h>

_Static_assert(REGISTER_FRAME_POINTER == UNW_X86_64_RBP && REGISTER_STACK_POINTER == UNW_X86_64_RSP &&
                   REGISTER_PROGRAM_COUNTER == UNW_X86_64_RIP,
               "our order of registers is libunwind's");

/// Maps libunwind's number to the index in the kernel's context.
static const int context_index[REGISTER_COUNT] = {
    [UNW_X86_64_RAX] = REG_RAX, [UNW_X86_64_RDX] = REG_RDX, [UNW_X86_64_RCX] = REG_RCX, [UNW_X86_64_RBX] = REG_RBX,
    [UNW_X86_64_RSI] = REG_RSI, [UNW_X86_64_RDI] = REG_RDI, [UNW_X86_64_RBP] = REG_RBP, [UNW_X86_64_RSP] = REG_RSP,
    [UNW_X86_64_R8] = REG_R8,   [UNW_X86_64_R9] = REG_R9,   [UNW_X86_64_R10] = REG_R10, [UNW_X86_64_R11] = REG_R11,
    [UNW_X86_64_R12] = REG_R12, [UNW_X86_64_R13] = REG_R13, [UNW_X86_64_R14] = REG_R14, [UNW_X86_64_R15] = REG_R15,
    [UNW_X86_64_RIP] = REG_RIP,
};

void stackcap_registers_from_context(struct stackcap_registers *registers, const ucontext_t *context) {
    for (int i = 0; i < REGISTER_COUNT; i++)
        registers->value[i] = (uint64_t)context->uc_mcontext.gregs[context_index[i]];
}

void stackcap_registers_from_user(struct stackcap_registers *registers, const stackcap_user_registers *user) {
    uint64_t *value = registers->value;
    value[UNW_X86_64_RAX] = user->rax, value[UNW_X86_64_RDX] = user->rdx, value[UNW_X86_64_RCX] = user->rcx;
    value[UNW_X86_64_RBX] = user->rbx, value[UNW_X86_64_RSI] = user->rsi, value[UNW_X86_64_RDI] = user->rdi;
    value[UNW_X86_64_RBP] = user->rbp, value[UNW_X86_64_RSP] = user->rsp, value[UNW_X86_64_R8] = user->r8;
    value[UNW_X86_64_R9] = user->r9, value[UNW_X86_64_R10] = user->r10, value[UNW_X86_64_R11] = user->r11;
    value[UNW_X86_64_R12] = user->r12, value[UNW_X86_64_R13] = user->r13, value[UNW_X86_64_R14] = user->r14;
    value[UNW_X86_64_R15] = user->r15, value[UNW_X86_64_RIP] = user->rip;
}

/// Calls that were measured to return EINTR for a stop, which means that nothing has happened yet: they can be repeated
/// unchanged. Sockets do so if they have a timeout. A read that returns EINTR has taken no data: read(2). Not included: connect and
/// close, which have begun; a write that is partly done.
static const uint16_t repeatable[] = {
    SYS_epoll_wait, SYS_epoll_pwait, SYS_epoll_pwait2, SYS_semop,   SYS_semtimedop,   SYS_rt_sigtimedwait, SYS_read,           SYS_readv,
    SYS_recvfrom,   SYS_recvmsg,     SYS_recvmmsg,     SYS_accept,  SYS_accept4,      SYS_io_getevents,    SYS_io_pgetevents,  SYS_io_uring_enter,
};

static bool is_repeatable(uint64_t call) {
    for (size_t i = 0; i < sizeof repeatable / sizeof *repeatable; i++)
        if (repeatable[i] == call)
            return true;
    return false;
}

bool stackcap_mend_cut_call(stackcap_user_registers *user) {
    enum { RESTART_UNLESS_HANDLED = 514 };  // the kernel's ERESTARTNOHAND
    if ((int64_t)user->rax != -EINTR || !is_repeatable(user->orig_rax))
        return false;
    user->rax = (unsigned long long)-RESTART_UNLESS_HANDLED;
    return true;
}

void stackcap_registers_add_arguments(struct stackcap_registers *registers, const uint64_t arguments[6]) {
    static const int order[6] = {UNW_X86_64_RDI, UNW_X86_64_RSI, UNW_X86_64_RDX, UNW_X86_64_R10, UNW_X86_64_R8, UNW_X86_64_R9};
    for (int i = 0; i < 6; i++)
        registers->value[order[i]] = arguments[i];
}

const int stackcap_kept_registers[KEPT_REGISTERS] = {
    UNW_X86_64_RBX, UNW_X86_64_RBP, UNW_X86_64_R12, UNW_X86_64_R13, UNW_X86_64_R14, UNW_X86_64_R15,
};

const int stackcap_steady_registers[STEADY_REGISTERS] = {UNW_X86_64_RBX, UNW_X86_64_R13, UNW_X86_64_R14, UNW_X86_64_R15};

uint64_t stackcap_plain_return_address(uint64_t value) {
    return value;
}

bool stackcap_returned_from_call(const struct stackcap_registers *registers, const uint8_t before[SYSTEM_CALL_LENGTH], int64_t *result) {
    if (before[0] != 0x0f || before[1] != 0x05)  // syscall
        return false;
    *result = (int64_t)registers->value[UNW_X86_64_RAX];
    return true;
}

bool stackcap_is_signal_return(stackcap_unwinder *unwinder, uint64_t address) {
    static const uint8_t trampoline[9] = {0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05};  // rt_sigreturn in glibc
    uint8_t code[sizeof trampoline];
    return stackcap_peek(unwinder, address, code, sizeof code) && memcmp(code, trampoline, sizeof code) == 0;
}

static const uint8_t landing_pad[4] = {0xf3, 0x0f, 0x1e, 0xfa};  // endbr64

/// Follows `jmp *slot(%rip)`, which makes up a PLT entry, with or without endbr64 and a bnd prefix.
static uint64_t resolve_stub(stackcap_unwinder *unwinder, uint64_t address) {
    uint8_t code[11];
    stackcap_peek_code(unwinder, address, code, sizeof code);
    size_t at = memcmp(code, landing_pad, sizeof landing_pad) == 0 ? sizeof landing_pad : 0;
    if (code[at] == 0xf2)
        at++;
    if (at + 6 > sizeof code || code[at] != 0xff || code[at + 1] != 0x25)
        return address;
    int32_t offset;
    memcpy(&offset, code + at + 2, sizeof offset);
    uint64_t target;
    bool found = stackcap_peek(unwinder, address + at + 6 + (uint64_t)(int64_t)offset, &target, sizeof target);
    return found ? target : address;
}

static int judge(uint64_t target, uint64_t function) {
    return target == function ? CALL_MATCHES : CALL_ELSEWHERE;
}

/// `call *r/m64` of `length` bytes, the last ones of the eight in `code`: an optional REX prefix, 0xff, /2.
static bool is_indirect_call(const uint8_t code[8], size_t length) {
    const uint8_t *at = code + 8 - length;
    size_t prefix = (at[0] & 0xf0) == 0x40 ? 1 : 0;
    return length >= prefix + 2 && at[prefix] == 0xff && ((at[prefix + 1] >> 3) & 7) == 2;
}

int stackcap_call_before(stackcap_unwinder *unwinder, uint64_t return_address, uint64_t function) {
    uint8_t code[8];
    if (return_address < sizeof code || !stackcap_peek(unwinder, return_address - 1, code, 1))
        return CALL_NONE;
    stackcap_peek_code(unwinder, return_address - sizeof code, code, sizeof code);
    int32_t offset;
    memcpy(&offset, code + 4, sizeof offset);
    uint64_t relative = return_address + (uint64_t)(int64_t)offset;
    if (code[3] == 0xe8)  // call rel32
        return judge(resolve_stub(unwinder, relative), function);
    uint64_t target;
    if (code[2] == 0xff && code[3] == 0x15 && stackcap_peek(unwinder, relative, &target, sizeof target))
        return judge(target, function);  // call *slot(%rip)
    for (size_t length = 2; length <= 7; length++)
        if (is_indirect_call(code, length))
            return CALL_INDIRECT;
    return CALL_NONE;
}

/// The length of a register-to-register mov or xor, which compilers schedule between the pushes, or 0.
static size_t skippable(const uint8_t *code) {
    size_t prefix = (code[0] & 0xf0) == 0x40 ? 1 : 0;
    uint8_t operation = code[prefix];
    bool known = operation == 0x89 || operation == 0x8b || operation == 0x31 || operation == 0x33;
    return known && code[prefix + 1] >= 0xc0 ? prefix + 2 : 0;
}

/// The length of a push of a register, or 0.
static size_t push_length(const uint8_t *code) {
    size_t prefix = code[0] == 0x41 ? 1 : 0;
    return code[prefix] >= 0x50 && code[prefix] <= 0x57 ? prefix + 1 : 0;
}

/// Continues after `push %rbp; mov %rsp, %rbp`: pushes, then at most one subtraction from the stack pointer.
static uint64_t sum_frame(const uint8_t *code, const uint8_t *end) {
    static const uint8_t subtract_byte[3] = {0x48, 0x83, 0xec}, subtract_word[3] = {0x48, 0x81, 0xec};
    uint64_t sum = 0;
    for (size_t length = 1; length > 0 && code + 8 <= end; code += length) {
        if (memcmp(code, subtract_byte, 3) == 0)
            return sum + code[3];
        if (memcmp(code, subtract_word, 3) == 0) {
            uint32_t size;
            memcpy(&size, code + 3, sizeof size);
            return sum + size;
        }
        length = push_length(code);
        sum += length ? 8 : 0;
        length = length ? length : skippable(code);
    }
    return sum;
}

bool stackcap_frame_pointer_distance(stackcap_unwinder *unwinder, uint64_t function, uint64_t *distance) {
    static const uint8_t start[4] = {0x55, 0x48, 0x89, 0xe5};  // push %rbp; mov %rsp, %rbp
    uint8_t code[64];
    if (function == 0)
        return false;
    stackcap_peek_code(unwinder, function, code, sizeof code);
    const uint8_t *at = memcmp(code, landing_pad, sizeof landing_pad) == 0 ? code + sizeof landing_pad : code;
    if (memcmp(at, start, sizeof start) != 0)
        return false;
    *distance = sum_frame(at + sizeof start, code + sizeof code);
    return true;
}

void stackcap_guess_return_address(stackcap_unwinder *unwinder) {
    (void)unwinder;  // it is always on the stack
}

/// Whether the call only checks whether something is ready, with a timeout of zero.
static bool only_looks(const struct stackcap_reader *reader, uint32_t number, const greg_t *registers) {
    greg_t place = number == SYS_ppoll ? registers[REG_RDX] : registers[REG_R8];
    uint64_t time[2];  // a timespec or a timeval
    if (number == SYS_poll)
        return (int32_t)registers[REG_RDX] == 0;
    if ((number != SYS_ppoll && number != SYS_select && number != SYS_pselect6) || place == 0)
        return false;
    return stackcap_read_live(reader, (uint64_t)place, time, sizeof time) == sizeof time && time[0] == 0 && time[1] == 0;
}

void stackcap_restart_looking_call(const struct stackcap_reader *reader, ucontext_t *context) {
    greg_t *registers = context->uc_mcontext.gregs;
    uint8_t code[7];  // mov $NUMBER, %eax; syscall
    uint32_t number;
    if (registers[REG_RAX] != -EINTR)
        return;
    if (stackcap_read_live(reader, (uint64_t)registers[REG_RIP] - sizeof code, code, sizeof code) != sizeof code)
        return;
    if (code[0] != 0xb8 || code[5] != 0x0f || code[6] != 0x05)
        return;
    memcpy(&number, code + 1, sizeof number);
    if (!only_looks(reader, number, registers))
        return;
    registers[REG_RAX] = number;
    registers[REG_RIP] -= 2;
}

#endif
