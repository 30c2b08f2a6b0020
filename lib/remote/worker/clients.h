/* Which worker of a listener serves which process. */
#ifndef DIVVY_REMOTE_CLIENTS_H
#define DIVVY_REMOTE_CLIENTS_H

#include <poll.h>
#include <stdbool.h>
#include <sys/types.h>

struct remote_clients;

/* NULL without memory. */
struct remote_clients *remote_clients_new(unsigned most);
void remote_clients_free(struct remote_clients *clients);
unsigned remote_clients_count(const struct remote_clients *clients);
/* There is room for it: fewer than the most are there. */
void remote_clients_add(struct remote_clients *clients, pid_t worker, pid_t client);
void remote_clients_remove(struct remote_clients *clients, pid_t worker);

/* What tells that a client has ended, of those that have not: room for as many as there are. Returns how many are written. */
unsigned remote_clients_watched(const struct remote_clients *clients, struct pollfd *into);
/* Has workers go on whose clients have ended, as was polled: one that was stopped would never hear of it, and would keep what
 * it has of the GPU. */
void remote_clients_continue(struct remote_clients *clients, const struct pollfd *polled,
                             unsigned count);

/* For a child of the listener: waits until the workers whose clients are gone have ended, and given back what they had of the
 * share. Each client of theirs may have been waited for by who starts the next one, and that one counts on its memory. */
void remote_clients_await_ends(const struct remote_clients *clients);

#endif
