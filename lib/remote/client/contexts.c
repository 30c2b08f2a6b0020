/* Which contexts there are. */
#include "remote/client/current.h"
#include "remote/generated/cuda_stubs.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

struct context {
    uint64_t number;
    CUdevice device;
    unsigned uses; /* what was attached, or retained */
    bool primary;  /* its number stays when it ends, because it can begin again */
    bool alive;
    int32_t fault; /* what every call in it answers, once the program knows */
};

/* GPUs have room for few contexts: they are looked through. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct context *contexts;
static size_t count, room;
uint64_t contexts_changed = 1;
uint32_t contexts_faulted;

/* The lock is held. */
static struct context *find(uint64_t number) {
    for (size_t i = 0; i < count; i++) {
        if (contexts[i].number == number) {
            return &contexts[i];
        }
    }
    return NULL;
}

static void changed(void) {
    __atomic_add_fetch(&contexts_changed, 1, __ATOMIC_RELEASE);
}

/* Whether it is a context that lives: one that the program has made, or that the worker has told. */
bool context_lives(uint64_t number) {
    pthread_mutex_lock(&lock);
    const struct context *c = find(number);
    bool there = c != NULL, alive = c && c->alive;
    pthread_mutex_unlock(&lock);
    return there ? alive : number && remote_number_known(REMOTE_KIND_CUcontext, number);
}

CUdevice remote_context_device(uint64_t context) {
    CUdevice device = -1;

    pthread_mutex_lock(&lock);
    const struct context *c = find(context);
    bool there = c != NULL;
    if (there && c->alive) {
        device = c->device;
    }
    pthread_mutex_unlock(&lock);
    /* One that the worker alone has told of. */
    if (!there && context && remote_number_known(REMOTE_KIND_CUcontext, context) &&
        REMOTE_STUB(cuCtxGetDevice_v2)(&device, (CUcontext)context) != CUDA_SUCCESS) {
        return -1;
    }
    return device;
}

bool context_begin(uint64_t number, CUdevice device, bool primary) {
    pthread_mutex_lock(&lock);
    struct context *c = find(number);
    if (!c && count == room) {
        size_t more = room ? 2 * room : 8;
        struct context *grown = realloc(contexts, more * sizeof *grown);
        if (grown) {
            contexts = grown;
            room = more;
        }
    }
    if (!c && count < room) {
        c = &contexts[count++];
        c->number = 0;
    }
    if (c) {
        bool again = c->number == number && c->alive;
        unsigned uses = again ? c->uses : 0;
        *c = (struct context){.number = number,
                              .device = device,
                              .uses = uses + 1,
                              .primary = primary,
                              .alive = true,
                              .fault = again ? c->fault : 0};
    }
    pthread_mutex_unlock(&lock);
    changed();
    return c != NULL;
}

void context_end(uint64_t number) {
    pthread_mutex_lock(&lock);
    struct context *c = find(number);
    if (c && c->primary) {
        c->alive = false;
    } else if (c) {
        *c = contexts[--count];
    }
    pthread_mutex_unlock(&lock);
    remote_number_forget(REMOTE_KIND_CUcontext, number);
    changed();
}

void context_fault(uint64_t number, int32_t error) {
    pthread_mutex_lock(&lock);
    struct context *c = find(number);
    if (c && c->alive && !c->fault) {
        c->fault = error;
        __atomic_store_n(&contexts_faulted, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
}

int32_t context_fault_of(uint64_t number) {
    int32_t fault = 0;

    if (!__atomic_load_n(&contexts_faulted, __ATOMIC_ACQUIRE)) {
        return 0;
    }
    pthread_mutex_lock(&lock);
    const struct context *c = find(number);
    fault = c && c->alive ? c->fault : 0;
    pthread_mutex_unlock(&lock);
    return fault;
}

bool context_use(uint64_t number, bool more) {
    bool last = false;

    pthread_mutex_lock(&lock);
    struct context *c = find(number);
    if (c && !c->primary) {
        c->uses += more ? 1 : UINT_MAX;
        last = c->uses == 0;
    }
    pthread_mutex_unlock(&lock);
    return last;
}

/* The primary context of a device that lives; NULL if there is none. The lock is held. */
static struct context *primary_of(CUdevice device) {
    for (size_t i = 0; i < count; i++) {
        if (contexts[i].primary && contexts[i].alive && contexts[i].device == device) {
            return &contexts[i];
        }
    }
    return NULL;
}

uint64_t context_release(CUdevice device, bool succeeded, bool *last) {
    pthread_mutex_lock(&lock);
    struct context *c = primary_of(device);
    uint64_t number = c ? c->number : 0;
    *last = *last || (c && c->uses <= 1);
    if (c && !*last && succeeded) {
        c->uses--;
    }
    pthread_mutex_unlock(&lock);
    return number;
}

void context_doubt(uint64_t number, bool alive) {
    pthread_mutex_lock(&lock);
    struct context *c = find(number);
    if (c) {
        c->alive = alive;
    }
    pthread_mutex_unlock(&lock);
    changed();
}
