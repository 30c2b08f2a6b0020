/* Handles and lists. */
#include "simgpu/cuda/driver.h"

#include <stdlib.h>
#include <string.h>

/* So many bytes of ended handles of a kind are kept before one of them is used again, so that one
 * that the program still passes is told. */
#define KEPT_BYTES ((size_t)16 << 20)

/* Ended handles of one kind, oldest first. */
struct pile {
    struct handle *first, *last;
    size_t bytes;
};

static pthread_mutex_t recycling = PTHREAD_MUTEX_INITIALIZER;
static struct pile recycled[HANDLE_KINDS_END - HANDLE_CONTEXT];

static bool reuses_at_once(void) {
    return sg_driver.machine->dead_handles == SIM_DEAD_REUSE;
}

/* Takes out the oldest; the recycling lock. */
static struct handle *take(struct pile *pile, size_t size) {
    struct handle *h = pile->first;

    if (!h || (!reuses_at_once() && pile->bytes < KEPT_BYTES)) {
        return NULL;
    }
    pile->first = h->recycled;
    pile->bytes -= size;
    return h;
}

void *handle_new(enum handle_kind kind, size_t size) {
    pthread_mutex_lock(&recycling);
    struct handle *h = take(&recycled[kind - HANDLE_CONTEXT], size);
    pthread_mutex_unlock(&recycling);
    if (h) {
        memset((char *)h + sizeof *h, 0, size - sizeof *h);
    } else if (!(h = calloc(1, size))) {
        return NULL;
    }
    h->size = (uint32_t)size;
    h->recycled = NULL;
    __atomic_store_n(&h->mark, (uint32_t)kind, __ATOMIC_RELEASE);
    return h;
}

void handle_end(void *handle, enum handle_kind kind) {
    struct pile *pile = &recycled[kind - HANDLE_CONTEXT];
    struct handle *h = handle;

    pthread_mutex_lock(&recycling);
    __atomic_store_n(&h->mark, ~(uint32_t)kind, __ATOMIC_RELAXED);
    pile->bytes += h->size;
    if (reuses_at_once() && pile->first) {
        h->recycled = pile->first;
        pile->first = h;
    } else {
        h->recycled = NULL;
        *(pile->first ? &pile->last->recycled : &pile->first) = h;
        pile->last = h;
    }
    pthread_mutex_unlock(&recycling);
}

void link_init(struct link *head) {
    head->next = head->prev = head;
}

void link_add(struct link *head, struct link *item) {
    item->prev = head->prev;
    item->next = head;
    head->prev->next = item;
    head->prev = item;
}

void link_remove(struct link *item) {
    item->prev->next = item->next;
    item->next->prev = item->prev;
    item->next = item->prev = item;
}
