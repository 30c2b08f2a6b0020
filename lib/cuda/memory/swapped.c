#define _GNU_SOURCE
#include "cuda/memory/swapped.h"

#include <string.h>
#include <sys/mman.h>

#include "abi/generated/page_layout.h"
#include "cuda/fork.h"
#include "cuda/lock.h"
#include "cuda/table.h"

#define CHUNK 1024u       /* nodes mapped at once */
#define CHUNKS_MAX 16384u /* 16 million allocations */

/* A treap: ordered by address, and by a hash of the address from the root downwards, which keeps it
 * shallow whatever order the addresses come in. */
struct node {
    struct swapped memory;
    uint32_t below, above; /* index + 1 of the children with lower and higher addresses, 0: none */
    bool used;
};

/* guard protects all of this. */
static lock guard;
static struct node *chunks[CHUNKS_MAX];
static uint32_t made;   /* nodes ever made */
static uint32_t unused; /* index + 1 of the first, linked by below */
static uint32_t root;
static uint32_t count; /* atomic */
static struct sums {
    uint64_t bytes, there;
} sums[DV_PAGE_DEVICES];

static struct node *at(uint32_t index) {
    return &chunks[(index - 1) / CHUNK][(index - 1) % CHUNK];
}

static uint64_t key_of(uint32_t index) {
    return at(index)->memory.address;
}

static uint64_t rank_of(uint32_t index) {
    return table_hash(key_of(index) / GRAIN_BYTES);
}

/* 0 if there is no memory. */
static uint32_t take_unused(void) {
    if (unused != 0) {
        uint32_t index = unused;
        unused = at(index)->below;
        return index;
    }
    if (made % CHUNK == 0) {
        void *chunk = made / CHUNK < CHUNKS_MAX
                          ? mmap(NULL, CHUNK * sizeof(struct node), PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                          : MAP_FAILED;
        if (chunk == MAP_FAILED) {
            return 0;
        }
        chunks[made / CHUNK] = chunk;
    }
    return ++made;
}

/* Parts a tree into addresses below a key, and the key and above. */
static void split(uint32_t tree, uint64_t key, uint32_t *below, uint32_t *above) {
    while (tree != 0) {
        uint32_t **end = key_of(tree) < key ? &below : &above;
        **end = tree;
        *end = key_of(tree) < key ? &at(tree)->above : &at(tree)->below;
        tree = **end;
    }
    *below = *above = 0;
}

/* Puts together two trees, of which one has the lower addresses. */
static void join(uint32_t *place, uint32_t below, uint32_t above) {
    while (below != 0 && above != 0) {
        bool lower = rank_of(below) > rank_of(above);
        *place = lower ? below : above;
        place = lower ? &at(below)->above : &at(above)->below;
        *(lower ? &below : &above) = *place;
    }
    *place = below != 0 ? below : above;
}

/* Where the tree names the node of an address, or would. */
static uint32_t *place_of(uint64_t address) {
    uint32_t *place = &root;
    while (*place != 0 && key_of(*place) != address) {
        place = address < key_of(*place) ? &at(*place)->below : &at(*place)->above;
    }
    return place;
}

static void insert(uint32_t index) {
    uint64_t key = key_of(index), rank = rank_of(index);
    uint32_t *place = &root;
    while (*place != 0 && rank_of(*place) >= rank) {
        place = key < key_of(*place) ? &at(*place)->below : &at(*place)->above;
    }
    uint32_t rest = *place;
    *place = index;
    split(rest, key, &at(index)->below, &at(index)->above);
}

/* The node that an address lies in, NULL if none. Memory does not overlap, so it is the one with the
 * highest address that is not above. */
static struct node *holder(uint64_t address) {
    struct node *best = NULL;
    for (uint32_t tree = root; tree != 0;) {
        struct node *node = at(tree);
        best = node->memory.address <= address ? node : best;
        tree = node->memory.address <= address ? node->above : node->below;
    }
    return best != NULL && address - best->memory.address < best->memory.bytes ? best : NULL;
}

static void set_there(struct swapped *memory, uint64_t there) {
    there = there < memory->bytes ? there : memory->bytes;
    sums[memory->device].there += there - memory->there;
    memory->there = there;
}

static bool take_out(uint64_t address, struct swapped *memory) {
    uint32_t *place = place_of(address), index = *place;
    if (index == 0) {
        return false;
    }
    struct node *node = at(index);
    join(place, node->below, node->above);
    sums[node->memory.device].bytes -= node->memory.bytes;
    sums[node->memory.device].there -= node->memory.there;
    *memory = node->memory;
    *node = (struct node){.below = unused};
    unused = index;
    __atomic_store_n(&count, count - 1, __ATOMIC_RELEASE);
    return true;
}

bool swapped_any(void) {
    return __atomic_load_n(&count, __ATOMIC_ACQUIRE) != 0;
}

bool swapped_add(const struct swapped *memory) {
    struct swapped old;
    lock_take(&guard);
    take_out(memory->address, &old);
    uint32_t index = take_unused();
    if (index != 0) {
        *at(index) = (struct node){.memory = *memory, .used = true};
        insert(index);
        sums[memory->device].bytes += memory->bytes;
        sums[memory->device].there += memory->there;
        __atomic_store_n(&count, count + 1, __ATOMIC_RELEASE);
    }
    lock_give(&guard);
    return index != 0;
}

bool swapped_take(uint64_t address, struct swapped *memory) {
    struct swapped out;
    if (!swapped_any()) {
        return false;
    }
    lock_take(&guard);
    bool found = take_out(address, &out);
    lock_give(&guard);
    if (found && memory != NULL) {
        *memory = out;
    }
    return found;
}

bool swapped_find(uint64_t address, struct swapped *memory) {
    if (!swapped_any()) {
        return false;
    }
    lock_take(&guard);
    const struct node *node = holder(address);
    if (node != NULL) {
        *memory = node->memory;
    }
    lock_give(&guard);
    return node != NULL;
}

bool swapped_use(uint64_t address, uint64_t turn) {
    if (!swapped_any()) {
        return false;
    }
    lock_take(&guard);
    struct node *node = holder(address);
    if (node != NULL && turn >= node->memory.turn) {
        node->memory.turn = turn;
        set_there(&node->memory, node->memory.bytes);
    }
    lock_give(&guard);
    return node != NULL;
}

void swapped_use_all(uint64_t turn) {
    lock_take(&guard);
    for (uint32_t index = 1; index <= made; index++) {
        struct node *node = at(index);
        if (node->used && turn >= node->memory.turn) {
            node->memory.turn = turn;
            set_there(&node->memory, node->memory.bytes);
        }
    }
    lock_give(&guard);
}

bool swapped_used_since(uint64_t turn) {
    bool used = false;
    lock_take(&guard);
    for (uint32_t index = 1; index <= made && !used; index++) {
        used = at(index)->used && at(index)->memory.turn > 0 && at(index)->memory.turn >= turn;
    }
    lock_give(&guard);
    return used;
}

void swapped_moved(uint64_t address, uint64_t there) {
    lock_take(&guard);
    uint32_t index = *place_of(address);
    if (index != 0) {
        set_there(&at(index)->memory, there);
    }
    lock_give(&guard);
}

void swapped_synchronous(uint64_t address, bool synchronous) {
    lock_take(&guard);
    uint32_t index = *place_of(address);
    if (index != 0) {
        at(index)->memory.synchronous = synchronous;
    }
    lock_give(&guard);
}

bool swapped_ending(uint64_t address) {
    lock_take(&guard);
    uint32_t index = *place_of(address);
    struct swapped *memory = index != 0 ? &at(index)->memory : NULL;
    bool fresh = memory != NULL && memory->converted && !memory->ending;
    if (fresh) {
        memory->ending = true;
    }
    lock_give(&guard);
    return fresh;
}

static struct sums sums_of(unsigned device) {
    lock_take(&guard);
    struct sums of = sums[device];
    lock_give(&guard);
    return of;
}

uint64_t swapped_there(unsigned device) {
    return sums_of(device).there;
}

uint64_t swapped_bytes(unsigned device) {
    return sums_of(device).bytes;
}

static bool comes_after(const struct swapped *a, const struct swapped *b,
                        enum swapped_order order) {
    bool later = a->turn != b->turn ? a->turn > b->turn : a->address > b->address;
    return later == (order == SWAPPED_OLDEST_FIRST);
}

/* Restores the heap whose last come first, below one of its places. */
static void sink(struct swapped *heap, size_t size, size_t from, enum swapped_order order) {
    struct swapped moved = heap[from];
    for (size_t child = 2 * from + 1; child < size; child = 2 * from + 1) {
        if (child + 1 < size && comes_after(&heap[child + 1], &heap[child], order)) {
            child++;
        }
        if (!comes_after(&heap[child], &moved, order)) {
            break;
        }
        heap[from] = heap[child];
        from = child;
    }
    heap[from] = moved;
}

/* In place: the C library's sort may take memory from the program's allocator. */
static void sort(struct swapped_list *list, enum swapped_order order) {
    for (size_t i = list->count / 2; i-- > 0;) {
        sink(list->at, list->count, i, order);
    }
    for (size_t end = list->count; end-- > 1;) {
        struct swapped last = list->at[0];
        list->at[0] = list->at[end];
        list->at[end] = last;
        sink(list->at, end, 0, order);
    }
}

/* Copies as many as there is room for; whether that is all. */
static bool copy(struct swapped_list *list, unsigned device) {
    size_t room = list->room / sizeof *list->at, needed = 0;
    lock_take(&guard);
    for (uint32_t index = 1; index <= made; index++) {
        const struct node *node = at(index);
        if (node->used && node->memory.device == device) {
            if (needed < room) {
                list->at[needed] = node->memory;
            }
            needed++;
        }
    }
    lock_give(&guard);
    list->count = needed < room ? needed : room;
    return needed <= room;
}

bool swapped_list(struct swapped_list *list, unsigned device, enum swapped_order order) {
    *list = (struct swapped_list){.at = NULL};
    for (;;) {
        /* Some more than there are now, because others may come until they are copied. */
        size_t room = (__atomic_load_n(&count, __ATOMIC_ACQUIRE) + 64) * sizeof *list->at;
        void *place = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (place == MAP_FAILED) {
            return false;
        }
        *list = (struct swapped_list){.at = place, .room = room};
        if (copy(list, device)) {
            sort(list, order);
            return true;
        }
        swapped_list_end(list);
    }
}

void swapped_list_end(struct swapped_list *list) {
    if (list->at != NULL) {
        munmap(list->at, list->room);
    }
    *list = (struct swapped_list){.at = NULL};
}

void swapped_context_ended(uint32_t owner) {
    struct swapped out;
    if (!swapped_any()) {
        return;
    }
    lock_take(&guard);
    for (uint32_t index = 1; index <= made; index++) {
        if (at(index)->used && at(index)->memory.owner == owner) {
            take_out(key_of(index), &out);
        }
    }
    lock_give(&guard);
}

/* Another thread of the parent may have been changing the nodes, so they are not used again. */
static void swapped_forked(void) {
    guard = (lock){0};
    memset(chunks, 0, sizeof chunks);
    memset(sums, 0, sizeof sums);
    made = unused = root = count = 0;
}
ON(forked, swapped_forked);
