/* Which processes the clients of a simulated machine are, told across pid namespaces. */
#ifndef SIMGPU_MACHINE_PIDS_H
#define SIMGPU_MACHINE_PIDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which process a client is. */
struct sg_who {
    int32_t pid; /* in its own pid namespace, */
    uint32_t pad;
    uint64_t namespace;     /* which has this inode */
    uint64_t device, inode; /* of the file whose flock tells its pid elsewhere; 0 if it has none */
};

/* The processes that the caller sees by their flock, read when the first is asked for. */
struct sg_marked {
    int32_t pid;
    uint64_t device, inode;
};
struct sg_pids {
    struct sg_marked *marked;
    size_t count, room;
    uint64_t own; /* the caller's pid namespace */
    bool read;
};

/* Describes the calling process; returns the descriptor to keep open as long as it lives, -1 if it
 * cannot be told from other pid namespaces. */
int sg_who_describe(struct sg_who *who);
/* Reads files: not for a holder of the state lock. */
void sg_pids_read(struct sg_pids *pids);
/* The process's pid in the caller's namespace, 0 if it is not seen there. Reads what has not been
 * read yet. `pids` is zero at first and ends with sg_pids_end. */
int32_t sg_pids_of(struct sg_pids *pids, const struct sg_who *who);
void sg_pids_end(struct sg_pids *pids);

#endif
