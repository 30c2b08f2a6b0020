/* Memory that the driver would lend, of which the client has a copy as long as the number that it belongs to is one. */
#include "remote/client/graphs_lent.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct lent {
    struct lent *next;
    enum remote_kind kind;
    uint64_t number;
    size_t size;
    unsigned char *told; /* as it was told, to be compared; what is lent begins behind it */
};

#define CHAINS 256u

static struct lent *chains[CHAINS];
static size_t count, sweep_at = 64;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct lent **chain_of(uint64_t number) {
    return &chains[(number * UINT64_C(0x9e3779b97f4a7c15)) >> 56];
}

static bool is_over(const struct lent *l) {
    return l->number > remote_kinds[l->kind].fixed && !remote_number_known(l->kind, l->number);
}

/* Frees what belongs to numbers that name nothing any more. The next sweep comes when there is twice as much. */
static void sweep(void) {
    for (size_t i = 0; i < CHAINS; i++) {
        for (struct lent **at = &chains[i]; *at;) {
            struct lent *l = *at;

            if (!is_over(l)) {
                at = &l->next;
                continue;
            }
            *at = l->next;
            free(l->told);
            free(l);
            count--;
        }
    }
    sweep_at = 2 * count + 64;
}

static struct lent *find_or_make(enum remote_kind kind, uint64_t number) {
    struct lent **chain = chain_of(number);

    for (struct lent *l = *chain; l; l = l->next) {
        if (l->kind == kind && l->number == number) {
            return l;
        }
    }
    if (count >= sweep_at) {
        sweep();
    }
    struct lent *l = calloc(1, sizeof *l);
    if (l) {
        *l = (struct lent){.next = *chain, .kind = kind, .number = number};
        *chain = l;
        count++;
    }
    return l;
}

static unsigned char *lent_at(const struct lent *l) {
    return l->told + remote_padded(l->size);
}

/* The two halves: what was told, and the same with addresses. */
static bool fill(struct lent *l, const void *bytes, size_t size, struct lent_addresses addresses) {
    unsigned char *told = malloc(2 * remote_padded(size) + 1);

    if (!told) {
        return false;
    }
    free(l->told);
    l->told = told;
    l->size = size;
    memcpy(told, bytes, size);
    unsigned char *at = lent_at(l);
    memcpy(at, bytes, size);
    for (size_t i = 0; i < addresses.count; i++) {
        size_t word = 8 * (addresses.first + i * addresses.step);
        uint64_t offset;

        memcpy(&offset, at + word, sizeof offset);
        offset += (uint64_t)at;
        memcpy(at + word, &offset, sizeof offset);
    }
    return true;
}

void *lend(enum remote_kind kind, uint64_t number, const void *bytes, size_t size,
           struct lent_addresses addresses) {
    void *at = NULL;

    pthread_mutex_lock(&lock);
    struct lent *l = find_or_make(kind, number);
    if (l && ((l->told && l->size == size && memcmp(l->told, bytes, size) == 0) ||
              fill(l, bytes, size, addresses))) {
        at = lent_at(l);
    }
    pthread_mutex_unlock(&lock);
    return at;
}
