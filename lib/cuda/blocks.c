#include "cuda/blocks.h"

#include <stddef.h>

#include "cuda/table.h"

static table touched; /* by block number + 1; bytes is the number of allocations */

/* A range as the table sees it. */
struct span {
    uint64_t whole;     /* bytes of blocks covered fully */
    uint64_t edges[2];  /* numbers of the blocks covered partly */
    unsigned edge_count;
};

static struct span span_of(uint64_t address, uint64_t bytes) {
    uint64_t first = address / BLOCK_BYTES, end = (address + bytes) / BLOCK_BYTES;
    bool head = address % BLOCK_BYTES != 0, tail = (address + bytes) % BLOCK_BYTES != 0;
    struct span span = {0};
    if (first == end) { /* inside one block */
        span.edges[span.edge_count++] = first;
        return span;
    }
    if (head) {
        span.edges[span.edge_count++] = first;
    }
    if (tail) {
        span.edges[span.edge_count++] = end;
    }
    span.whole = (end - first - head) * BLOCK_BYTES;
    return span;
}

/* Blocks that fall to no use when one allocation leaves them. */
static uint64_t leave_edges(const struct span *span, unsigned count) {
    uint64_t bytes = 0;
    for (unsigned i = 0; i < count; i++) {
        record after;
        if (table_count(&touched, span->edges[i] + 1, -1, (record){0}, &after) && after.bytes == 0) {
            bytes += BLOCK_BYTES;
        }
    }
    return bytes;
}

bool blocks_touch(uint64_t address, uint64_t bytes, uint64_t *added) {
    struct span span = span_of(address, bytes);
    uint64_t fresh = span.whole;
    for (unsigned i = 0; i < span.edge_count; i++) {
        record after;
        if (!table_count(&touched, span.edges[i] + 1, 1, (record){0}, &after)) {
            leave_edges(&span, i);
            return false;
        }
        fresh += after.bytes == 1 ? BLOCK_BYTES : 0;
    }
    *added = fresh;
    return true;
}

uint64_t blocks_leave(uint64_t address, uint64_t bytes) {
    struct span span = span_of(address, bytes);
    return span.whole + leave_edges(&span, span.edge_count);
}

uint64_t blocks_whole(uint64_t address, uint64_t bytes) {
    return span_of(address, bytes).whole;
}

uint64_t blocks_partial(uint64_t address, uint64_t bytes) {
    return span_of(address, bytes).edge_count * BLOCK_BYTES;
}

void blocks_forget(void) {
    table_forget(&touched);
}
