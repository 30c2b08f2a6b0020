/* Answers that never change but depend on more arguments than a snapshot can have: each is asked once and kept, as far as
 * there is room. */
#include "remote/client/snapshot.h"

#include <pthread.h>
#include <string.h>

#define MOST_KEPT 1024u /* a power of two */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Each place is for the keys of one digest; the newest stays. Call 0 is none. */
static struct kept {
    struct kept_key key;
    uint64_t value;
} kept[MOST_KEPT];

struct kept_key kept_key(enum remote_number call) {
    return (struct kept_key){.call = (uint32_t)call};
}

void kept_with(struct kept_key *key, const void *argument, size_t size) {
    memcpy(key->bytes + key->size, argument, size);
    key->size += (uint32_t)size;
}

static struct kept *place_of(const struct kept_key *key) {
    uint64_t digest = UINT64_C(0xcbf29ce484222325) ^ key->call;

    for (uint32_t i = 0; i < key->size; i++) {
        digest = (digest ^ key->bytes[i]) * UINT64_C(0x100000001b3);
    }
    return &kept[(digest ^ digest >> 32) % MOST_KEPT];
}

bool kept_find(const struct kept_key *key, uint64_t *value) {
    const struct kept *k = place_of(key);

    pthread_mutex_lock(&lock);
    bool found = memcmp(&k->key, key, sizeof *key) == 0;
    if (found) {
        *value = k->value;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void kept_note(const struct kept_key *key, uint64_t value) {
    struct kept *k = place_of(key);

    pthread_mutex_lock(&lock);
    k->key = *key;
    k->value = value;
    pthread_mutex_unlock(&lock);
}
