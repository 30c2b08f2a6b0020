/* What goes over the wire between a program's client library and its worker: records there, answers back. Both are
 * little-endian, and everything in them begins at a multiple of 8 bytes.
 *
 * A record is its head, a number of words that the call fixes, and pieces: memory of the program, in the order of the
 * parameters, each filled up with zeros to 8 bytes. A word is a value, a handle's number, or how long a piece is. A
 * length stands in one place alone: in a word, or in the parameter that says it. */
#ifndef DIVVY_REMOTE_RECORD_H
#define DIVVY_REMOTE_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The bounds of abi/check.go. */
#define REMOTE_RECORD_BYTES (1u << 20)
#define REMOTE_ARRAY_BYTES (1u << 17)
#define REMOTE_MOST_WORDS 32u
#define REMOTE_MOST_PIECES 16u

struct remote_head {
    uint32_t size; /* of the whole record, a multiple of 8 */
    uint16_t call; /* enum remote_number */
    uint16_t
        posted; /* 1: the client does not wait, so that only an error is told, late; otherwise 0 */
    uint64_t sequence; /* counts up, in the order of the process's calls */
    uint64_t context;  /* number of the context that is current to the thread, 0 for none */
    uint32_t thread;   /* of the program, numbered by the client */
    uint32_t given;    /* bit i: parameter i is an address other than NULL */
};

struct remote_answer {
    uint32_t size;
    uint16_t call;
    uint16_t zero;
    uint64_t sequence; /* of the record */
    int32_t result;    /* CUresult or nvmlReturn_t */
    uint32_t given;    /* bit i: the answer has what was written to parameter i */
    uint64_t late;     /* the first error of posted calls in this context since the last answer */
};

/* Numbers of NVML's calls and handles begin here. */
#define REMOTE_NVML 0x4000u

/* Calls of our own, which are functions of no driver. Numbers below 0x7f00 are the description's. */
enum remote_own {
    REMOTE_SNAPSHOT = 0x7f00, /* facts of all devices at once */
    REMOTE_BULK,              /* bytes beside the stream, where both sides share no memory */
    REMOTE_REGION,            /* memory of the program that both sides see, and its end */
    REMOTE_CODE,              /* whether the worker has code of this digest */
    REMOTE_CALLBACK,          /* a notice: a function of the program is due; a record, which is not
                                 answered: it has returned */
    REMOTE_BEAT,              /* nothing, so that idle links stay */
    REMOTE_CAPTURE_MODE,      /* the capture mode of the thread from now on, a word; not answered */
    REMOTE_LAYOUT,            /* where the parameters of a kernel lie */
    REMOTE_FORGET,            /* numbers of kernels whose code the client has unloaded */
    REMOTE_LENT,              /* a part of what a linker has made */
    REMOTE_POINTER,           /* what an address is */
    REMOTE_PROCESS,           /* the worker's process, as NVML numbers it there */
    REMOTE_ENVIRONMENT,       /* variables of the program that the driver reads in cuInit */
    REMOTE_UNSERVED,          /* the program has asked for what only a local share gives */
    REMOTE_LANDED, /* a notice: the block at which the chunk of a posted copy begins, a word, and its
                      bytes, if the result is 0 */
};

/* Of all variables together, each with its NUL. */
#define REMOTE_ENVIRONMENT_BYTES 8192u

/* Whether a call answers an nvmlReturn_t. */
static inline bool remote_is_nvml(uint16_t call) {
    return call >= REMOTE_NVML && call < REMOTE_SNAPSHOT;
}

struct remote_piece {
    const void *at;
    size_t size;
};

static inline size_t remote_padded(size_t size) {
    return (size + 7u) & ~(size_t)7u;
}

_Static_assert(sizeof(struct remote_head) == 32, "remote_head");
_Static_assert(sizeof(struct remote_answer) == 32, "remote_answer");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "records are little-endian");

#endif
