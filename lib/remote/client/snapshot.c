/* The snapshot: one record asks for all facts of devices, and every later question is answered here. */
#include "remote/client/snapshot.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct snapshot *taken; /* NULL before; afterwards it stays as it is */

int snapshot_attribute(CUdevice_attribute attribute, int value, bool apart) {
    const bool always = true;

    switch (attribute) {
#define REMOTE_LACKS(name, told, where, reason)                                                    \
    case CU_DEVICE_ATTRIBUTE_##name:                                                               \
        return (where) ? (told) : value;
#include "remote/client/lacks.inc"
#undef REMOTE_LACKS
    default:
        return value;
    }
}

static void adjust(struct remote_device_facts *f, bool apart) {
    f->name[sizeof f->name - 1] = 0;
    f->bus[sizeof f->bus - 1] = 0;
    for (int i = 0; i < REMOTE_FACT_ATTRIBUTES; i++) {
        struct remote_fact *fact = &f->attributes[i];
        fact->value = snapshot_attribute((CUdevice_attribute)i, fact->value, apart);
    }
}

/* Asks for the devices from the first that is not there yet. */
static CUresult ask(struct snapshot *s, bool *got) {
    struct remote_call c;
    struct remote_reply r;

    *got = false;
    remote_begin(&c, (enum remote_number)REMOTE_SNAPSHOT, 1);
    c.words[0] = s->told;
    remote_given(&c, 0, &s->all);
    remote_given(&c, 1, s->devices);
    if (remote_ask(&c, &r)) {
        remote_get(&c, &r, 0, &s->all, sizeof s->all, false);
        size_t before = r.at;
        remote_get_some(&c, &r, 1, &s->devices[s->told],
                        (REMOTE_FACT_DEVICES - s->told) * sizeof *s->devices, false);
        if (!r.garbled && r.head.result == 0) {
            s->told += (uint32_t)((r.at - before) / sizeof *s->devices);
            *got = true;
        }
    }
    return (CUresult)remote_end(&c, &r);
}

/* How many devices there are, as far as the worker can tell. */
static uint32_t count_of(const struct snapshot *s) {
    int32_t count = s->all.count.value;

    if (s->all.count.result != 0 || count <= 0) {
        return 0;
    }
    return count > REMOTE_FACT_DEVICES ? REMOTE_FACT_DEVICES : (uint32_t)count;
}

static struct snapshot *take(CUresult *result) {
    struct snapshot *s = calloc(1, sizeof *s);
    struct remote_link *link = remote_session_link();
    size_t size;
    bool apart = !link || !remote_link_area(link, &size), got;

    *result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!s) {
        return NULL;
    }
    do {
        uint32_t before = s->told;
        CUresult now = ask(s, &got);
        /* Of several late errors the first is told. */
        *result = before == 0 || *result == CUDA_SUCCESS ? now : *result;
        if (!got || (s->told == before && before < count_of(s))) {
            *result = got ? CUDA_ERROR_DEVICE_UNAVAILABLE : *result;
            free(s);
            return NULL;
        }
    } while (s->told < count_of(s));
    s->told = count_of(s);
    s->all.count.value = (int32_t)s->told;
    for (uint32_t i = 0; i < s->told; i++) {
        adjust(&s->devices[i], apart);
    }
    return s;
}

const struct snapshot *snapshot(CUresult *result) {
    const struct snapshot *s = __atomic_load_n(&taken, __ATOMIC_ACQUIRE);

    *result = (CUresult)remote_gate(REMOTE_NO_CALL);
    if (s || *result != CUDA_SUCCESS) {
        return *result == CUDA_SUCCESS ? s : NULL;
    }
    pthread_mutex_lock(&lock);
    if (!taken) {
        __atomic_store_n(&taken, take(result), __ATOMIC_RELEASE);
    }
    s = *result == CUDA_SUCCESS ? taken : NULL;
    pthread_mutex_unlock(&lock);
    return s;
}
