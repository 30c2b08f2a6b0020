/* Options of the compiler in records. For the executor alone. */
#ifndef DIVVY_REMOTE_MODULES_H
#define DIVVY_REMOTE_MODULES_H

#include "remote/options.h"
#include "remote/worker/session.h"

struct remote_jit_options {
    uint32_t count;
    CUjit_option *options;
    void **values; /* as the driver is given them, and writes some */
    char *logs[2]; /* NULL for none */
    uint64_t room[2];
};

/* Reads the next two pieces of a record as options, whose words begin at `word`. Their memory, and that of logs, is the
 * decoder's. */
void remote_in_options(struct remote_decoder *d, unsigned word, struct remote_jit_options *o);
/* Gives what the driver wrote, for the values and logs that begin with these bits. */
void remote_give_options(struct remote_decoder *d, unsigned values, unsigned logs,
                         const struct remote_jit_options *o);

#endif
