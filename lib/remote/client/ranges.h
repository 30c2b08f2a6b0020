/* The client's table of ranges: a tree in the order of their addresses, for ranges.c and pointer.c. */
#ifndef DIVVY_REMOTE_RANGES_H
#define DIVVY_REMOTE_RANGES_H

#include "remote/client/client.h"

struct range_node {
    struct remote_range range;
    uint64_t serial; /* tells it from others that had its address */
    bool leaving;
    uint32_t weight; /* drawn; a parent's is not below its children's, which keeps the tree flat */
    struct range_node *left, *right;
};

/* The last node that starts at or before the address, and the first that starts after it; NULL if there is none. */
struct range_node *range_before(struct range_node *root, uint64_t address);
struct range_node *range_after(struct range_node *root, uint64_t address);
/* No other node of the tree may start there. */
void range_insert(struct range_node **root, struct range_node *node);
/* Takes out the node that starts there, which must exist. */
struct range_node *range_take(struct range_node **root, uint64_t start);

#endif
