#include "cuda/test/heap.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define BLOCK HEAP_BLOCK
#define BLOCKS 4096u
#define BASE 0x7e0000000000ull

extern struct fake_driver fake_driver;

/* A block is unused, part of a large allocation, or cut into slots of one size, of which the free
 * ones are chained. Blocks of a size that have free slots are chained too. */
#define SLOT_MIN 512u
#define SIZES 12 /* 512 bytes to 1 MiB */
static pthread_mutex_t heap_lock = PTHREAD_MUTEX_INITIALIZER;
static struct block {
    bool used;
    size_t large; /* bytes, at the first block of a large allocation */
    unsigned size, live, made;
    unsigned free_slot; /* number + 1 */
    struct block *next, *prev;
} blocks[BLOCKS], partial[SIZES];
static uint16_t next_slot[BLOCKS][BLOCK / SLOT_MIN];

static void chain(struct block *block) {
    struct block *head = &partial[block->size];
    block->next = head->next;
    block->prev = head;
    head->next = block;
    if (block->next != NULL) {
        block->next->prev = block;
    }
}

static void unchain(struct block *block) {
    block->prev->next = block->next;
    if (block->next != NULL) {
        block->next->prev = block->prev;
    }
}

/* The first of so many unused blocks in a row. */
static struct block *take_blocks(unsigned count) {
    for (unsigned i = 0, run = 0; i < BLOCKS; i++) {
        run = blocks[i].used ? 0 : run + 1;
        if (run == count) {
            struct block *first = &blocks[i + 1 - count];
            for (unsigned j = 0; j < count; j++) {
                first[j] = (struct block){.used = true};
            }
            fake_driver.blocks += count;
            return first;
        }
    }
    return NULL;
}

static CUdeviceptr take_small(unsigned size) {
    struct block *block = partial[size].next;
    size_t slot_bytes = (size_t)SLOT_MIN << size;
    if (block == NULL) {
        block = take_blocks(1);
        if (block == NULL) {
            return 0;
        }
        block->size = size;
        chain(block);
    }
    size_t place = (size_t)(block - blocks), slot = block->made;
    if (block->free_slot != 0) {
        slot = block->free_slot - 1;
        block->free_slot = next_slot[place][slot];
    } else {
        block->made++;
    }
    if (++block->live == BLOCK / slot_bytes) {
        unchain(block);
    }
    return BASE + place * BLOCK + slot * slot_bytes;
}

static CUdeviceptr take_large(size_t bytes) {
    struct block *first = take_blocks((unsigned)((bytes + BLOCK - 1) / BLOCK));
    if (first == NULL) {
        return 0;
    }
    first->large = bytes;
    return BASE + (size_t)(first - blocks) * BLOCK;
}

static CUdeviceptr take(size_t bytes) {
    for (unsigned size = 0; size < SIZES; size++) {
        if (bytes <= (size_t)SLOT_MIN << size) {
            return take_small(size);
        }
    }
    return take_large(bytes);
}

static CUresult give(CUdeviceptr address) {
    size_t place = (address - BASE) / BLOCK, within = (address - BASE) % BLOCK;
    struct block *block = &blocks[place < BLOCKS ? place : 0];
    if (address < BASE || place >= BLOCKS || !block->used) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (block->large != 0) {
        size_t count = (block->large + BLOCK - 1) / BLOCK;
        memset(block, 0, sizeof *block * count);
        fake_driver.blocks -= count;
        return CUDA_SUCCESS;
    }
    size_t slot_bytes = (size_t)SLOT_MIN << block->size, slot = within / slot_bytes;
    next_slot[place][slot] = (uint16_t)block->free_slot;
    block->free_slot = (unsigned)slot + 1;
    if (block->live-- == BLOCK / slot_bytes) {
        chain(block);
    }
    if (block->live == 0) {
        unchain(block);
        block->used = false;
        fake_driver.blocks--;
    }
    return CUDA_SUCCESS;
}

CUdeviceptr heap_take(size_t bytes) {
    pthread_mutex_lock(&heap_lock);
    fake_driver.allocs++;
    CUdeviceptr address = take(bytes);
    pthread_mutex_unlock(&heap_lock);
    return address;
}

CUresult heap_give(CUdeviceptr address) {
    pthread_mutex_lock(&heap_lock);
    fake_driver.frees++;
    CUresult result = give(address);
    pthread_mutex_unlock(&heap_lock);
    return result;
}
