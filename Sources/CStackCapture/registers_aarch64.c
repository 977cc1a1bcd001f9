#if defined(__aarch64__)

/// aarch64's registers, return addresses with signatures, and its system calls as machine code.
#include "session.h"
#include "walk.h"

#include <string.h>
#include <sys/user.h>

_Static_assert(REGISTER_FRAME_POINTER == UNW_AARCH64_X29 && REGISTER_RETURN_ADDRESS == UNW_AARCH64_X30 &&
                   REGISTER_STACK_POINTER == UNW_AARCH64_SP && REGISTER_PROGRAM_COUNTER == UNW_AARCH64_PC,
               "our order of registers is libunwind's");

void stackcap_registers_from_context(struct stackcap_registers *registers, const ucontext_t *context) {
    for (int i = 0; i <= REGISTER_RETURN_ADDRESS; i++)
        registers->value[i] = context->uc_mcontext.regs[i];
    registers->value[REGISTER_RETURN_ADDRESS] = stackcap_plain_return_address(context->uc_mcontext.regs[30]);
    registers->value[REGISTER_STACK_POINTER] = context->uc_mcontext.sp;
    registers->value[REGISTER_PROGRAM_COUNTER] = context->uc_mcontext.pc;
}

void stackcap_registers_from_user(struct stackcap_registers *registers, const stackcap_user_registers *user) {
    for (int i = 0; i <= REGISTER_RETURN_ADDRESS; i++)
        registers->value[i] = user->regs[i];
    registers->value[REGISTER_RETURN_ADDRESS] = stackcap_plain_return_address(user->regs[30]);
    registers->value[REGISTER_STACK_POINTER] = user->sp;
    registers->value[REGISTER_PROGRAM_COUNTER] = user->pc;
}

/// Here the kernel decides before the stop, and does not check the result again.
bool stackcap_mend_cut_call(stackcap_user_registers *user) {
    (void)user;
    return false;
}

void stackcap_registers_add_arguments(struct stackcap_registers *registers, const uint64_t arguments[6]) {
    for (int i = 0; i < 6; i++)  // x0 to x5
        registers->value[i] = arguments[i];
}

/// Done by the processor, which knows how many bits an address has here: xpaclri is a hint, which has no effect on a processor
/// without signatures.
uint64_t stackcap_plain_return_address(uint64_t value) {
    if (value >> 39 == 0)
        return value;
    register uint64_t address __asm__("x30") = value;
    __asm__("hint #7" : "+r"(address));
    return address;
}

bool stackcap_returned_from_call(const struct stackcap_registers *registers, const uint8_t before[SYSTEM_CALL_LENGTH],
                                 int64_t *result) {
    static const uint8_t supervisor_call[SYSTEM_CALL_LENGTH] = {0x01, 0x00, 0x00, 0xd4};  // svc #0
    if (memcmp(before, supervisor_call, sizeof supervisor_call) != 0)
        return false;
    *result = (int64_t)registers->value[UNW_AARCH64_X0];
    return true;
}

const int stackcap_kept_registers[KEPT_REGISTERS] = {REGISTER_FRAME_POINTER};
const int stackcap_steady_registers[STEADY_REGISTERS] = {19, 23, 24, 25, 26, 27, 28};

bool stackcap_is_signal_return(stackcap_unwinder *unwinder, uint64_t address) {
    static const uint32_t trampoline[2] = {0xd2801168, 0xd4000001};  // mov x8, #139 (rt_sigreturn); svc #0
    uint32_t code[2];
    return stackcap_peek(unwinder, address, code, sizeof code) && code[0] == trampoline[0] && code[1] == trampoline[1];
}

void stackcap_restart_looking_call(const struct stackcap_reader *reader, ucontext_t *context) {
    (void)reader, (void)context;  // The call's first argument, overwritten by its result, is not in the context.
}

#endif
