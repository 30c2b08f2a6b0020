/*
 * Memory of a swap share that can leave the GPU: managed memory, whether the program asked for it
 * or got it in place of linear and pitched memory.
 *
 * The list is empty in a share without swap. Its lock is never held across a call into the driver.
 * So memory that was found here may be freed before the driver is asked about it, and its address
 * given again: whoever moves it takes the driver's CUDA_ERROR_INVALID_VALUE as an answer.
 */
#ifndef DIVVY_CUDA_MEMORY_SWAPPED_H
#define DIVVY_CUDA_MEMORY_SWAPPED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "substitute/substitute.h"

struct swapped {
    uint64_t address;
    uint64_t bytes;   /* as the program asked, for pitched memory all rows */
    uint64_t turn;    /* in which it was used last; 0: in none yet */
    uint64_t there;   /* bytes that are believed to be on the GPU */
    unsigned device;  /* number in the share */
    uint32_t owner;   /* the life of its context */
    bool converted;   /* told to the program as device memory */
    bool synchronous; /* the program's CU_POINTER_ATTRIBUTE_SYNC_MEMOPS */
    bool ending;      /* freed in the order of a stream that may not have got there */
};

/* Whether there is any; one load. */
DV_HIDDEN bool swapped_any(void);

/* Adds memory that the driver has just given; replaces what was noted there, which has ended unseen.
 * False if there is no memory for the note. */
DV_HIDDEN bool swapped_add(const struct swapped *memory);

/* Takes out what begins at this address; false if nothing does. memory may be NULL. */
DV_HIDDEN bool swapped_take(uint64_t address, struct swapped *memory);

/* The memory that an address lies in; false if it lies in none. Some ten nanoseconds for each
 * doubling of the list. */
DV_HIDDEN bool swapped_find(uint64_t address, struct swapped *memory);

/* Marks the memory that an address lies in as used in a turn, which brings all of it to the GPU.
 * Turns are numbered from 1; an earlier one than the noted one changes nothing. False if the address
 * lies in none. */
DV_HIDDEN bool swapped_use(uint64_t address, uint64_t turn);

/* The same of all memory. */
DV_HIDDEN void swapped_use_all(uint64_t turn);

/* So many bytes of what begins at this address are on the GPU now, all of it at most. */
DV_HIDDEN void swapped_moved(uint64_t address, uint64_t there);

DV_HIDDEN void swapped_synchronous(uint64_t address, bool synchronous);

/* Notes that converted memory, which begins at this address, is freed in the order of a stream.
 * False if there is none, or it is noted already. */
DV_HIDDEN bool swapped_ending(uint64_t address);

/* The memory of a context has gone with it. */
DV_HIDDEN void swapped_context_ended(uint32_t owner);

/* Whether any memory was used in this turn or a later one. */
DV_HIDDEN bool swapped_used_since(uint64_t turn);

/* Sums over a device of the share: bytes that are believed to be on the GPU, and all bytes. */
DV_HIDDEN uint64_t swapped_there(unsigned device);
DV_HIDDEN uint64_t swapped_bytes(unsigned device);

/* What a device has at one moment. swapped_list_end unmaps it. */
struct swapped_list {
    struct swapped *at;
    size_t count;
    size_t room; /* bytes mapped */
};
enum swapped_order {
    SWAPPED_OLDEST_FIRST, /* by the turn of the last use; within a turn by address */
    SWAPPED_NEWEST_FIRST, /* exactly the other way round */
};
/* False if there is no memory for it. */
DV_HIDDEN bool swapped_list(struct swapped_list *list, unsigned device, enum swapped_order order);
DV_HIDDEN void swapped_list_end(struct swapped_list *list);

#endif
