/* Options of the compiler and linker of code: what both sides know of them. */
#ifndef DIVVY_REMOTE_OPTIONS_H
#define DIVVY_REMOTE_OPTIONS_H

#include <stdint.h>

/* What the value of an option is. */
enum remote_jit {
    REMOTE_JIT_VALUE,
    REMOTE_JIT_TOLD,  /* a value that is written */
    REMOTE_JIT_LOG,   /* the address of a buffer that is written */
    REMOTE_JIT_SIZE,  /* the size of that buffer, which is written too */
    REMOTE_JIT_LISTS, /* the address of names or addresses, or their number */
    REMOTE_JIT_NONE,  /* no option */
};

static inline enum remote_jit remote_jit_of(uint32_t option) {
    switch (option) {
    case 1: /* CU_JIT_THREADS_PER_BLOCK */
    case 2: /* CU_JIT_WALL_TIME */
        return REMOTE_JIT_TOLD;
    case 3: /* CU_JIT_INFO_LOG_BUFFER */
    case 5: /* CU_JIT_ERROR_LOG_BUFFER */
        return REMOTE_JIT_LOG;
    case 4: /* CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES */
    case 6: /* CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES */
        return REMOTE_JIT_SIZE;
    case 17: /* CU_JIT_GLOBAL_SYMBOL_NAMES, _ADDRESSES, _COUNT */
    case 18:
    case 19:
    case 25: /* CU_JIT_REFERENCED_KERNEL_NAMES, _COUNT, and the same of variables */
    case 26:
    case 27:
    case 28:
        return REMOTE_JIT_LISTS;
    default: /* up to CU_JIT_BINARY_LOADER_THREAD_COUNT */
        return option <= 35 ? REMOTE_JIT_VALUE : REMOTE_JIT_NONE;
    }
}

/* Which log an option is about: of information, or of errors. */
static inline unsigned remote_jit_log(uint32_t option) {
    return option >= 5;
}

#define REMOTE_MOST_OPTIONS 64u
#define REMOTE_LOG_BYTES (128u << 10)

/* Words of a call's options: their number, and the room of either log. */
#define REMOTE_OPTION_WORDS 3u
/* Bits of the heads' `given`: options, values, and both logs. */
#define REMOTE_GIVEN_OPTIONS 16u
#define REMOTE_GIVEN_VALUES 17u
#define REMOTE_GIVEN_LOGS 18u
/* What a linker was begun with is written by its later calls too: values, and both logs. */
#define REMOTE_GIVEN_STATE_VALUES 21u
#define REMOTE_GIVEN_STATE_LOGS 22u

/* The most bytes of what a linker has made that one answer has. */
#define REMOTE_LENT_BYTES (896u << 10)
/* The most bytes that it can make. */
#define REMOTE_MOST_MADE (256u << 20)
/* The most linkers of a client at once. */
#define REMOTE_MOST_LINKERS 256u

#endif
