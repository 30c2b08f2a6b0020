/* Options as a program gives them, and code from files. */
#ifndef DIVVY_REMOTE_CLIENT_MODULE_H
#define DIVVY_REMOTE_CLIENT_MODULE_H

#include "remote/client/client.h"
#include "remote/options.h"

struct remote_options {
    unsigned count;
    void **values; /* the program's, some of which are written */
    void *logs[2]; /* the same; NULL for none */
    uint64_t room[2];
    uint32_t options[REMOTE_MOST_OPTIONS];
    uint64_t sent[REMOTE_MOST_OPTIONS]; /* values, without addresses */
};

/* Reads them. The result is what the call answers if it is not success. */
CUresult remote_options_read(struct remote_options *o, unsigned count, const CUjit_option *options,
                             void **values);
/* Puts them into a record that has words for them from `word` on. */
void remote_options_put(struct remote_call *call, unsigned word, const struct remote_options *o);
/* Has the call answer them, beside what it was given itself; not the options of a call, but those of its linker. */
void remote_options_want(struct remote_call *call, const struct remote_options *o);
/* Writes what came back for the values and logs that begin with these bits. */
void remote_options_get(const struct remote_call *call, struct remote_reply *reply, unsigned values,
                        unsigned logs, const struct remote_options *o);

/* What a file has, with a zero behind it, in memory of malloc's. `size` does not count the zero. */
CUresult remote_file_read(const char *path, char **bytes, size_t *size);

#endif
