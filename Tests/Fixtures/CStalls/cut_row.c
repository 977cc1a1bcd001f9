/// A function with a damaged unwind row, which no compiler's directives can express: the common part of its program ends in the
/// middle of an instruction. An interpreter that reads on takes its operands from what follows, the row's own program.
#if defined(__x86_64__)

__asm__(".pushsection .text\n"
        ".globl stall_below_cut_row\n"
        ".hidden stall_below_cut_row\n"
        ".type stall_below_cut_row, %function\n"
        "stall_below_cut_row:\n"
        "subq $8, %rsp\n"
        "movq %rdi, %rax\n"
        "movq %rsi, %rdi\n"
        "call *%rax\n"
        "addq $8, %rsp\n"
        "ret\n"
        ".Lend_of_function:\n"
        ".size stall_below_cut_row, .-stall_below_cut_row\n"
        ".popsection\n"
        ".pushsection .eh_frame, \"a\", @unwind\n"
        ".balign 8\n"
        ".Lcommon: .long .Lend_of_common-.Lcommon_id\n"
        ".Lcommon_id: .long 0\n"
        ".byte 1\n"
        ".asciz \"zR\"\n"
        ".byte 1, 0x78, 16, 1, 0x1b\n"  // alignment factors, the return address's register, the encoding of addresses
        ".byte 0x0c, 7, 16, 0x90, 1\n"  // DW_CFA_def_cfa, DW_CFA_offset
        ".fill 9, 1, 0\n"
        ".byte 0x10\n"  // DW_CFA_expression, without its operands
        ".Lend_of_common:\n"
        ".Lrow: .long .Lend_of_row-.Lrow_id\n"
        ".Lrow_id: .long .Lrow_id-.Lcommon\n"
        ".long stall_below_cut_row-.\n"
        ".long .Lend_of_function-stall_below_cut_row\n"
        ".byte 0\n"  // by the cut instruction: the register
        // DW_CFA_val_expression of %rbx, with 19 bytes, which push constants. By the cut instruction: 22 bytes, which begin with
        // DW_OP_addr, and then divide the smallest number by -1.
        ".byte 0x16, 3, 19\n"
        ".fill 6, 1, 0x30\n"
        ".byte 0x0e, 0x31, 0x08, 63, 0x24, 0x31, 0x1f, 0x1b, 0x30\n"  // DW_OP_const8u hides the division
        ".fill 4, 1, 0x30\n"
        ".fill 9, 1, 0\n"
        ".Lend_of_row:\n"
        ".popsection\n");

#endif
