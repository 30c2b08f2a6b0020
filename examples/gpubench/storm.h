/* The log of a race and its judgement; see storm.c. */
#ifndef GPUBENCH_STORM_H
#define GPUBENCH_STORM_H

#include <pthread.h>
#include <stdint.h>

/* Allocations of one process between two judgements. */
#define STORM_ROUND 4096u
/* A round frees at most what it and earlier rounds allocated; a refusal takes two entries and may
 * free. */
#define STORM_LOG_MOST (STORM_ROUND * 4u + 1024u)

enum storm_kind { STORM_ALLOCATED, STORM_REFUSAL_BEGINS, STORM_REFUSAL_ENDS, STORM_FREED };

struct storm_event {
    uint64_t ns;
    uint64_t bytes;
    enum storm_kind kind;
};

struct storm_log {
    uint64_t count;
    uint64_t small_with_room;
    struct storm_event events[STORM_LOG_MOST];
};

struct storm {
    pthread_barrier_t barrier;
    uint64_t limit;
    uint64_t rounds, round_allocations;
    unsigned processes;
    volatile int failed;
    struct storm_log logs[];
};

/* What is kept between rounds: the most bytes that can be allocated at the end of the last one, and
 * the counts. */
struct storm_verdict {
    uint64_t usage, peak, granted, refused, false_refusals;
};

void storm_log_add(struct storm_log *log, uint64_t ns, enum storm_kind kind, uint64_t bytes);

/* Merges and empties the logs of a round. */
void storm_judge(struct storm *storm, struct storm_verdict *verdict);

/* The most device memory a request can take: whole blocks of 2 MiB. */
uint64_t storm_need(uint64_t bytes);

/*
 * The 2 MiB blocks in which a process has live memory. The driver places several small allocations
 * in one block, and the address shows which.
 */
#define STORM_BLOCK_SHIFT 21
#define STORM_TABLE 65536u

struct storm_blocks {
    uint64_t key[STORM_TABLE];
    uint32_t users[STORM_TABLE];
    uint64_t used, blocks, bytes;
};

/* The bytes of the blocks that became, or ceased to be, occupied. */
uint64_t storm_blocks_add(struct storm_blocks *table, uint64_t pointer, uint64_t bytes);
uint64_t storm_blocks_remove(struct storm_blocks *table, uint64_t pointer, uint64_t bytes);

/* Bytes of occupied blocks that hold no live memory. */
uint64_t storm_blocks_room(const struct storm_blocks *table);

#endif
