/* Memory that the driver would lend: of a node's parameters, or of what a capture tells. */
#ifndef DIVVY_REMOTE_CLIENT_GRAPHS_LENT_H
#define DIVVY_REMOTE_CLIENT_GRAPHS_LENT_H

#include "remote/client/client.h"

/* Lends a copy of bytes to the program, as the driver does, as long as a node or stream has its
 * number. The same bytes are lent from the same place; others take their place. NULL if there is no memory. */
struct lent_addresses {
    size_t first, step, count; /* which words are offsets that become addresses */
};
void *lend(enum remote_kind kind, uint64_t number, const void *bytes, size_t size,
           struct lent_addresses addresses);

#endif
