/* Managed memory in chunks of 2 MiB: where each is, what it waits for to come, and who waits. Part of state.h; how it works is
 * told in docs/design/simgpu-pages.md. */
#ifndef SIMGPU_MACHINE_PAGES_H
#define SIMGPU_MACHINE_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "simgpu/machine/limits.h"

struct sg_instance;

#define SG_CHUNKS_MAX (1u << 19) /* of all processes: 1 TiB */
#define SG_DEMANDS_MAX 1024u     /* areas that work of one process on one GPU has yet to touch */
#define SG_PAGE_FAULT_NS 30000u  /* of a batch of faults, where the machine file says nothing */
#define SG_PAGE_BATCH 256u       /* faults in a batch, likewise */

/* One chunk. It has contents in host memory (HOST), on the GPUs with an arrival, on both, or none yet. */
struct sg_chunk {
    uint32_t owner; /* client slot + 1; 0 is free */
    uint32_t
        state; /* SG_CHUNK_ bits; from bit 16 on the GPUs that reach it where it is, as advised */
    uint32_t arrivals
        [SG_GPUS_MAX]; /* when it came to each GPU that has it, as a number; 0: it is not there */
};
#define SG_CHUNK_FILLED 1u       /* it was written once; before, it reads as zero */
#define SG_CHUNK_HOST 2u         /* host memory has its contents */
#define SG_CHUNK_WRITTEN 4u      /* a GPU wrote it since: host memory has not */
#define SG_CHUNK_SCATTERED 8u    /* the CPU filled it page by page, which comes slower */
#define SG_CHUNK_READ_MOSTLY 16u /* advised: reading leaves copies */
#define SG_CHUNK_AT_HOST 32u     /* advised: prefers host memory */
#define SG_CHUNK_REACHED(gpu) (1u << (16 + (gpu)))

/* How an area is gone through. */
enum sg_touch_kind {
    SG_SWEEP,         /* chunk after chunk, as often as the larger of reads and writes */
    SG_SCATTER,       /* reads and writes at random places */
    SG_PREFETCH,      /* to the GPU, before anything uses it */
    SG_PREFETCH_HOST, /* to the host */
};
enum sg_touch_order {
    SG_FORWARD,  /* scatter: every place is as likely */
    SG_BACKWARD, /* scatter: the front more often */
    SG_ALTERNATE,
    SG_TOUCH_ORDERS,
};

/* What work touches of managed memory while it runs. */
struct sg_touch {
    uint32_t first, chunks;
    uint32_t reads, writes; /* sweep: times; scatter: places */
    uint32_t seed;          /* sweep: the chunk that it begins at */
    uint8_t kind, order;    /* enum sg_touch_kind, enum sg_touch_order */
    uint16_t pad;
};

/* The same of work that was given to a channel. */
struct sg_demand {
    struct sg_touch what;
    uint64_t start; /* position of the channel at which the work begins */
    uint64_t every,
        rest; /* from touch to touch, and what is left of the work's time for all of them */
    uint64_t count, next; /* touches, and how many have been passed */
};

struct sg_page_account {
    uint64_t resident; /* chunks on the GPU now; derived */
    uint64_t in,
        out; /* bytes that came and left, but not those of the chunk in whose move a process was killed */
    uint64_t faults;     /* batches of them */
    uint64_t stalled_ns; /* time in which work waited for chunks that it touched */
};

/* A client's use of managed memory on one GPU. */
struct sg_pager {
    uint64_t until; /* when the chunk is there that its channel waits for; 0: it waits for none */
    uint32_t
        failed; /* a chunk could not come, because host memory has no room for what it displaces */
    uint32_t head, count, pad; /* demands in use, by their starts */
    struct sg_page_account account;
    struct sg_demand demands[SG_DEMANDS_MAX];
};

/* Time and rates; 0 takes what is usual. */
struct sg_page_costs {
    uint64_t fault_ns;       /* a batch of faults */
    uint64_t batch;          /* faults in one */
    uint64_t rate;           /* bytes per second over the link */
    uint64_t scattered_rate; /* of what the CPU filled page by page */
    uint64_t half_duplex;    /* 1: one direction at a time */
    uint64_t host_bytes;     /* host memory for managed memory and checkpoints; 0 is no limit */
};

/* What a GPU's driver does with managed memory, first come first served. */
struct sg_gpu_pages {
    uint64_t arrivals_offset; /* ring of arrivals in the file, oldest first: number << 32 | chunk */
    uint32_t arrivals_room, arrivals_head, arrivals_count;
    uint32_t resident;                     /* chunks on the GPU; derived */
    uint64_t handled;                      /* when the faults so far are handled */
    uint64_t idle[2];                      /* when the link is idle, inwards and outwards */
    uint64_t stalled[SG_CLIENTS_MAX / 64]; /* clients that wait; the schedule lock */
};

/* All of it. */
struct sg_pages {
    uint32_t used; /* chunks that have owners: while there are none nothing here costs anything */
    uint32_t end;  /* no chunk was ever used at or above this number */
    uint32_t sequence; /* of arrivals */
    uint32_t pad;
    uint64_t host_chunks; /* with contents in host memory, and blocks of checkpoints; derived */
    uint64_t chunks_offset, pagers_offset;
    struct sg_page_costs costs;
};

/* pages.c */
/* The lock of everything here, inside the state lock and the schedule locks. */
void sg_pages_lock(struct sg_instance *in);
void sg_pages_unlock(struct sg_instance *in);
/* Gives the caller's client chunks in a row. -ENOMEM when host memory has no room for them, -ENOSPC when the table or
 * the file system has none. The state lock. */
int sg_chunks_take(struct sg_instance *in, uint32_t count, uint32_t *first);
void sg_chunks_return(struct sg_instance *in, uint32_t first, uint32_t count);
/* Sets bits of their state and clears others. */
void sg_chunks_advise(struct sg_instance *in, uint32_t first, uint32_t count, uint32_t set,
                      uint32_t clear);
/* The CPU reads or writes them: those on GPUs come back. Returns when the last one is there. */
uint64_t sg_chunks_host(struct sg_instance *in, uint32_t first, uint32_t count, bool write);
/* Whether any GPU has one of them. */
bool sg_chunks_any(struct sg_instance *in, uint32_t first, uint32_t count);
/* Everything of a client that ends, unless its slot has another owner by now. */
void sg_pages_end(struct sg_instance *in, uint32_t client, uint32_t generation);
/* Counts blocks of the caller's that a checkpoint has in host memory. -ENOMEM when that has no room. The state lock. */
int sg_saved_hold(struct sg_instance *in, uint32_t blocks);
/* A client has none there any more. The state lock. */
void sg_saved_drop(struct sg_instance *in, uint32_t client);
/* Derives all counters anew; the lock of pages. */
void sg_pages_recount(struct sg_instance *in);
/* Gives up the lock if a dead process held it under the number that is now ours. */
void sg_pages_inherited(struct sg_instance *in);
/* Makes room for so many blocks of ordinary memory of the caller's and takes them off what is free; the state lock.
 * -ENOMEM when host memory has no room for what must leave. *until is when it has left. */
int sg_pages_give_way(struct sg_instance *in, uint32_t gpu, uint32_t blocks, uint64_t *until);
/* mig_memory.c: chunks on a GPU, or on the GPU instance that the place is in. */
uint32_t sg_pages_resident(const struct sg_instance *in, uint32_t gpu, uint32_t place);

struct sg_chunk *sg_chunk(const struct sg_instance *in, uint32_t chunk);
struct sg_pager *sg_pager(const struct sg_instance *in, uint32_t client, uint32_t gpu);

#endif
