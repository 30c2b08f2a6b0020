/* For the assembler: exported functions that jump through a table of the library with the code, each through the place
 * after the one before. */
    .macro begin
    .text
    .set place, 0
    .endm

    .macro jump name, table
    .balign 16
    .globl \name
    .type \name, %function
\name:
#if defined(__x86_64__)
    endbr64
    movq \table@GOTPCREL(%rip), %r11
    jmp *place(%r11)
#elif defined(__aarch64__)
    hint #34
    adrp x16, :got:\table
    ldr x16, [x16, #:got_lo12:\table]
    ldr x16, [x16, #place]
    br x16
#else
#error "jumps are written for x86-64 and aarch64"
#endif
    .size \name, . - \name
    .set place, place + 8
    .endm

    .section .note.GNU-stack, "", %progbits
