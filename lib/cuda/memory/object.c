#define _GNU_SOURCE
#include "cuda/memory/object.h"

#include <string.h>
#include <sys/mman.h>

#include "cuda/fork.h"
#include "cuda/memory/blocks.h"
#include "cuda/table.h"

#define CHUNK 1024u     /* objects mapped at once */
#define CHUNKS_MAX 512u /* 1 TiB in pieces of 2 MiB */

struct object {
    uint64_t bytes;   /* charged, and to whom mark tells */
    uint64_t mark;    /* on its descriptors, 0 before the first export and without one */
    uint32_t handles; /* number of handles held */
    uint32_t maps;    /* mappings, and calls under way that may add a mapping or end a hold */
    uint64_t array;   /* sparse array that it is mapped into, 0 if none */
    uint16_t device;
    bool used;
    bool imported;
    bool shared;   /* charged to the share, of which this process is a holder */
    uint32_t next; /* of the unused or of a struct ended, index + 1 */
};

/* guard protects all of this. The tables are used only under it, so their own locks are free. */
static lock guard;
static struct object *chunks[CHUNKS_MAX];
static uint32_t made;   /* objects ever made, used or not */
static uint32_t unused; /* index + 1 of the first, 0 if none */
static table handles;   /* amount: holds; owner: index of the object */
static table mappings;  /* by address; amount: size; owner: index; flags: UNMAPPING */
static uint64_t mapped_from = UINT64_MAX, mapped_to; /* where mappings have ever been */

#define UNMAPPING 1u /* a driver call that unmaps it is under way */

static struct object *at(uint32_t index) {
    return &chunks[index / CHUNK][index % CHUNK];
}

/* A zeroed object; its index + 1, or 0 if there is no memory. */
static uint32_t take_unused(void) {
    if (unused == 0 && made % CHUNK == 0) {
        if (made / CHUNK == CHUNKS_MAX) {
            return 0;
        }
        void *chunk = mmap(NULL, CHUNK * sizeof(struct object), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (chunk == MAP_FAILED) {
            return 0;
        }
        chunks[made / CHUNK] = chunk;
    }
    uint32_t index = unused != 0 ? unused - 1 : made++;
    unused = unused != 0 ? at(index)->next : 0;
    *at(index) = (struct object){.used = true};
    return index + 1;
}

static void put_unused(uint32_t index) {
    at(index)->next = unused;
    unused = index + 1;
}

static void end_if_unheld(uint32_t index, struct ended *ended) {
    struct object *object = at(index);
    if (!object->used || object->handles != 0 || object->maps != 0 || object->array != 0) {
        return;
    }
    object->used = false;
    if (object->shared) {
        object->next = ended->shared;
        ended->shared = index + 1;
    } else {
        ended->bytes[object->device] += object->bytes;
        put_unused(index);
    }
}

bool object_next_shared(struct ended *ended, uint64_t *mark) {
    if (ended->shared == 0) {
        return false;
    }
    uint32_t index = ended->shared - 1;
    lock_take(&guard);
    const struct object *object = at(index);
    *mark = object->mark;
    ended->shared = object->next;
    put_unused(index);
    lock_give(&guard);
    return true;
}

/* Adds a hold of a handle to an object. */
static bool hold(object_handle handle, uint32_t index) {
    if (!table_count_up(&handles, handle, entry_make(0, index, 0))) {
        return false;
    }
    at(index)->handles++;
    return true;
}

bool object_create(object_handle handle, unsigned device, uint64_t bytes, uint64_t mark) {
    lock_take(&guard);
    uint32_t index = take_unused();
    bool done = index != 0 && hold(handle, index - 1);
    if (index != 0) {
        struct object *object = at(index - 1);
        object->device = (uint16_t)device;
        object->bytes = bytes;
        object->imported = bytes == 0;
        object->mark = mark;
        object->shared = done && mark != 0;
        struct ended none = {.shared = 0};
        if (!done) {
            object->bytes = 0;
            end_if_unheld(index - 1, &none);
        }
    }
    lock_give(&guard);
    return done;
}

/* Keeps an object from ending. */
static void use_object(struct object_use *use, struct object *object) {
    object->maps++;
    use->device = object->device;
    use->mark = object->shared ? object->mark : 0;
    use->bytes = object->bytes;
    use->imported = object->imported;
}

/* Finds a handle's object and keeps it from ending. */
static struct object *begin_use(struct object_use *use, object_handle handle) {
    struct entry note;
    if (handle == 0 || !table_get(&handles, handle, &note)) {
        return NULL;
    }
    struct object *object = at(note.owner);
    *use = (struct object_use){.handle = handle, .object = note.owner};
    use_object(use, object);
    return object;
}

bool object_release(struct object_use *use, object_handle handle) {
    lock_take(&guard);
    struct object *object = begin_use(use, handle);
    if (object != NULL && table_count_down(&handles, handle)) {
        object->handles--;
    }
    lock_give(&guard);
    return object != NULL;
}

void object_released(const struct object_use *use, bool done, struct ended *ended) {
    lock_take(&guard);
    if (!done) {
        hold(use->handle, use->object);
    }
    at(use->object)->maps--;
    end_if_unheld(use->object, ended);
    lock_give(&guard);
}

bool object_map(struct object_use *use, object_handle handle, uint64_t end) {
    lock_take(&guard);
    struct object *object = begin_use(use, handle);
    uint64_t size = blocks_worst(end);
    if (object != NULL && object->imported && !object->shared && size > object->bytes) {
        use->more = size - object->bytes;
        object->bytes = size;
    }
    lock_give(&guard);
    return object != NULL;
}

bool object_mapped(const struct object_use *use, uint64_t address, uint64_t bytes, bool done,
                   struct ended *ended) {
    struct entry old, note = entry_of_bytes(bytes, use->object, 0);
    bool had = false;
    lock_take(&guard);
    struct object *object = at(use->object);
    bool kept = done && table_put(&mappings, address, note, &old, &had);
    if (kept) {
        mapped_from = address < mapped_from ? address : mapped_from;
        mapped_to = address + bytes > mapped_to ? address + bytes : mapped_to;
    }
    if (!kept) {
        object->bytes -= use->more;
        object->maps--;
        end_if_unheld(use->object, ended);
    }
    if (had) { /* the call that unmapped the old one has not returned yet, or we did not see it */
        at(old.owner)->maps--;
        end_if_unheld(old.owner, ended);
    }
    lock_give(&guard);
    return kept;
}

/* The mapping at or after `address` in a range; false if there is none. Mappings begin at multiples
 * of a block, and a range is made of whole mappings. One that is not may be as long as all
 * addresses, so nobody looks where no mapping has been. */
static bool next_mapping(uint64_t *address, uint64_t end, struct entry *note) {
    *address = *address < mapped_from ? mapped_from : *address;
    for (end = end < mapped_to ? end : mapped_to; *address < end; *address += BLOCK_BYTES) {
        if (table_get(&mappings, *address, note)) {
            return true;
        }
    }
    return false;
}

struct search {
    uint64_t address;
    uint32_t object; /* index + 1; 0: not found */
    uint64_t begin;  /* of the mapping */
};

static bool covers(uint64_t address, struct entry *note, void *arg) {
    struct search *search = arg;
    if (search->address - address < entry_bytes(*note)) {
        search->object = note->owner + 1;
        search->begin = address;
    }
    return false;
}

void object_unmap(uint64_t address, uint64_t bytes) {
    struct entry note;
    uint64_t end = address + bytes;
    lock_take(&guard);
    for (; address != 0 && next_mapping(&address, end, &note); address += entry_bytes(note)) {
        note.flags = UNMAPPING;
        table_put(&mappings, address, note, NULL, NULL);
    }
    lock_give(&guard);
}

void object_unmapped(uint64_t address, uint64_t bytes, bool done, struct ended *ended) {
    struct entry note;
    uint64_t end = address + bytes;
    lock_take(&guard);
    for (; address != 0 && next_mapping(&address, end, &note); address += entry_bytes(note)) {
        if (note.flags != UNMAPPING) {
            continue; /* another thread has mapped here again and has counted the old mapping out */
        }
        if (done) {
            table_take(&mappings, address, NULL);
            at(note.owner)->maps--;
            end_if_unheld(note.owner, ended);
        } else {
            note.flags = 0;
            table_put(&mappings, address, note, NULL, NULL);
        }
    }
    lock_give(&guard);
}

void object_retained(object_handle handle, uint64_t address) {
    struct entry note;
    struct search search = {.address = address};
    lock_take(&guard);
    if (table_get(&handles, handle, &note) || table_get(&mappings, address, &note)) {
        search.object = note.owner + 1;
    } else {
        table_sweep(&mappings, covers, &search);
    }
    if (search.object != 0) {
        hold(handle, search.object - 1);
    }
    lock_give(&guard);
}

static void use_mark(struct object_use *use, uint64_t mark) {
    struct object *object = at(use->object);
    object->mark = object->mark != 0 ? object->mark : mark;
    use->mark = object->mark;
}

bool object_export(struct object_use *use, object_handle handle, uint64_t mark) {
    lock_take(&guard);
    bool known = begin_use(use, handle) != NULL;
    if (known) {
        use_mark(use, mark);
    }
    lock_give(&guard);
    return known;
}

bool object_export_mapped(struct object_use *use, uint64_t *address, uint64_t end, uint64_t mark) {
    struct entry note;
    struct search search = {.address = *address};
    lock_take(&guard);
    *address -= *address % BLOCK_BYTES;
    bool found = table_get(&mappings, *address, &note);
    if (!found) {
        table_sweep(&mappings, covers, &search);
        *address = search.object != 0 ? search.begin : *address;
        found = next_mapping(address, end, &note);
    }
    if (found) {
        *use = (struct object_use){.object = note.owner};
        use_object(use, at(note.owner));
        use_mark(use, mark);
        *address += entry_bytes(note);
    }
    lock_give(&guard);
    return found;
}

void object_shared(const struct object_use *use) {
    lock_take(&guard);
    at(use->object)->shared = true;
    lock_give(&guard);
}

void object_export_done(const struct object_use *use, struct ended *ended) {
    lock_take(&guard);
    at(use->object)->maps--;
    end_if_unheld(use->object, ended);
    lock_give(&guard);
}

void object_bound(object_handle handle, uint64_t array) {
    struct entry note;
    lock_take(&guard);
    if (handle != 0 && table_get(&handles, handle, &note)) {
        struct object *object = at(note.owner);
        object->array = object->array == 0 || object->array == array ? array : UINT64_MAX;
    }
    lock_give(&guard);
}

void object_array_ended(uint64_t array, struct ended *ended) {
    lock_take(&guard);
    for (uint32_t index = 0; index < made; index++) {
        if (at(index)->used && at(index)->array == array) {
            at(index)->array = 0;
            end_if_unheld(index, ended);
        }
    }
    lock_give(&guard);
}

static void objects_forked(void) {
    guard = (lock){0};
    memset(chunks, 0, sizeof chunks);
    made = 0;
    unused = 0;
    table_forget(&handles);
    table_forget(&mappings);
}
ON(forked, objects_forked);
