/* Handles and lists. */
#include "simgpu/cuda/driver.h"

#include <stdlib.h>
#include <string.h>

static pthread_mutex_t recycling = PTHREAD_MUTEX_INITIALIZER;
static struct handle *recycled[HANDLE_KINDS_END - HANDLE_CONTEXT];

void *handle_new(enum handle_kind kind, size_t size) {
    struct handle **pile = &recycled[kind - HANDLE_CONTEXT];
    struct handle *h;

    pthread_mutex_lock(&recycling);
    h = *pile;
    if (h) {
        *pile = h->recycled;
    }
    pthread_mutex_unlock(&recycling);
    if (h) {
        memset((char *)h + sizeof *h, 0, size - sizeof *h);
    } else if (!(h = calloc(1, size))) {
        return NULL;
    }
    h->recycled = NULL;
    __atomic_store_n(&h->mark, (uint32_t)kind, __ATOMIC_RELEASE);
    return h;
}

void handle_end(void *handle, enum handle_kind kind) {
    struct handle **pile = &recycled[kind - HANDLE_CONTEXT];
    struct handle *h = handle;

    pthread_mutex_lock(&recycling);
    __atomic_store_n(&h->mark, HANDLE_NONE, __ATOMIC_RELAXED);
    h->recycled = *pile;
    *pile = h;
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
