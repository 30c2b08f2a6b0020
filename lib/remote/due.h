/* Functions of the program that the driver calls. The client numbers them; addresses stay where they mean something. */
#ifndef DIVVY_REMOTE_DUE_H
#define DIVVY_REMOTE_DUE_H

#include "remote/record.h"

/* Words of a record that gives a function to a stream. */
enum due_word { DUE_STREAM, DUE_FUNCTION, DUE_FLAGS, DUE_WORDS };
/* Words of a record that makes an object of the program's. */
enum due_object { DUE_MADE, DUE_DESTROY, DUE_COUNT, DUE_OBJECT_FLAGS, DUE_OBJECT_WORDS };

/* The body of a notice. */
struct due_notice {
    uint64_t ticket;   /* what the client returns when the function has; 0 if nobody waits */
    uint64_t function; /* number of the client's */
    uint32_t status;   /* of the stream */
    uint32_t last;     /* it is not called again */
    uint64_t unused;   /* 1 if it is never called: the driver did not take it */
};

#endif
