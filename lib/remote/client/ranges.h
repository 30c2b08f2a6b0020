/* The client's table of ranges: a tree in the order of their addresses, for ranges.c and pointer.c. */
#ifndef DIVVY_REMOTE_RANGES_H
#define DIVVY_REMOTE_RANGES_H

#include "remote/client/client.h"
#include "remote/facts.h"

struct range_node {
    struct remote_range range;
    uint64_t serial;                    /* tells it from others that had its address */
    struct remote_pointer_facts *facts; /* what the worker has told of it; NULL before */
    bool leaving;
    uint32_t weight; /* drawn; a parent's is not below its children's, which keeps the tree flat */
    struct range_node *left, *right;
    struct range_node *
        other; /* of host memory that has another address in the worker: by the address that the program has */
};

/* A range with its serial number, and what is known of it: false in `told` for nothing. False if there is none. An address
 * of host memory becomes the worker's. */
bool range_look(CUdeviceptr *address, struct remote_range *range, uint64_t *of,
                struct remote_pointer_facts *facts, bool *told);
/* Keeps what is known of it, if it still has this serial number. */
void range_keep(CUdeviceptr address, uint64_t of, const struct remote_pointer_facts *facts);

/* tree.c */
/* The last node that starts at or before the address, and the first that starts after it; NULL if there is none. */
struct range_node *range_before(struct range_node *root, uint64_t address);
struct range_node *range_after(struct range_node *root, uint64_t address);
/* No other node of the tree may start there. */
void range_insert(struct range_node **root, struct range_node *node);
/* Takes out the node that starts there, which must exist. */
struct range_node *range_take(struct range_node **root, uint64_t start);

#endif
