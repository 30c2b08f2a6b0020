/* The kernel's lists of file locks, in texts of /proc. */
#ifndef DIVVY_SHARE_LOCKS_H
#define DIVVY_SHARE_LOCKS_H

#include <stdbool.h>
#include <stdint.h>

/* Called with the first byte of a lock that belongs to an open file description. */
typedef void lock_visitor(uint64_t byte, void *arg);

/* Visits the locks of a descriptor's open file description. False if /proc does not tell. */
bool locks_of_descriptor(int fd, lock_visitor *visit, void *arg);

/* Visits all locks, some of them perhaps twice. False if that was not to be had, because /proc does
 * not tell, the list is very long, or it changes too fast. */
bool locks_of_all(lock_visitor *visit, void *arg);

#endif
