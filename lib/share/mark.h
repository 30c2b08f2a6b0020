/* Marks on file descriptors, which tell whether a descriptor is still open anywhere.
 *
 * A mark is a read lock on one byte of the descriptor's file, far beyond its end, that belongs to
 * the open file description (F_OFD_SETLK, fcntl(2), Linux 3.15). The kernel drops it when the last
 * copy of the descriptor is closed: dup, fork and SCM_RIGHTS make copies, also ones that nobody has
 * received yet, and a holder need not use CUDA. flock(2) would live as long, but has no byte: the
 * driver's descriptors are all of one inode, and only bytes tell them apart. Locks are kept by the
 * kernel's common file layer, for device nodes and anonymous files too.
 *
 * A program can take the lock away. It then only deceives its own share's ledger.
 */
#ifndef DIVVY_SHARE_MARK_H
#define DIVVY_SHARE_MARK_H

#include <stdbool.h>
#include <stdint.h>

/* A new mark, which nobody else has; 0 if the kernel gives no random number. */
uint64_t mark_new(void);

/* Puts a mark on a descriptor; putting it there again changes nothing. False if its file takes no
 * locks. */
bool mark_put(int fd, uint64_t mark);

/* The mark on a descriptor, 0 if it has none or /proc does not say (fdinfo shows locks since Linux
 * 4.1). The least if it has several. */
uint64_t mark_of(int fd);

/* Files on whose descriptors there are marks, and how to open them to look. */
#define MARK_FILES 4u
struct mark_file {
    uint64_t filesystem, inode;
    char path[256]; /* "" unused */
};

/* Remembers the file of a descriptor if it can be opened by a path. */
void mark_learn(struct mark_file files[MARK_FILES], int fd);

#define MARKS_AT_ONCE 64u

/* A mark to look for. inode 0: in any file. */
struct mark_search {
    uint64_t mark, filesystem, inode;
    bool held; /* the answer: a descriptor with it is open somewhere, or nobody can tell */
};

/* Looks for marks, MARKS_AT_ONCE at most. In a file that was learnt another opening of it asks the
 * kernel. All others are looked for in the kernel's list of all locks. Takes some microseconds, with
 * the list some milliseconds. False if the list was not to be had: then it is no use to go on. */
bool marks_look(const struct mark_file files[MARK_FILES], struct mark_search *list, unsigned count);

#endif
