#define _GNU_SOURCE
#include "cuda/time/notes.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "cuda/fork.h"
#include "cuda/lock.h"

#define SLAB 16u /* notes whose memory is taken at once */

_Thread_local struct notes *notes_here __attribute__((tls_model("initial-exec")));

static lock keeping;
static struct notes *unused;
static struct notes *made; /* all that were ever */
static pthread_key_t key;
static bool has_key;

/* The thread has ended, so another one may use its notes. */
static void give_back(void *notes) {
    struct notes *back = notes;
    notes_here = NULL;
    memset(back, 0, offsetof(struct notes, made)); /* who looks through all may stand here */
    lock_take(&keeping);
    back->next = unused;
    unused = back;
    lock_give(&keeping);
}

static struct notes *take(void) {
    lock_take(&keeping);
    if (!has_key) {
        has_key = pthread_key_create(&key, give_back) == 0;
    }
    struct notes *mine = has_key ? unused : NULL;
    if (mine != NULL) {
        unused = mine->next;
    }
    lock_give(&keeping);
    return mine;
}

static void add_slab(void) {
    struct notes *slab =
        mmap(NULL, SLAB * sizeof *slab, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (slab == MAP_FAILED) {
        return;
    }
    lock_take(&keeping);
    for (unsigned i = 0; i < SLAB; i++) {
        slab[i].next = unused;
        unused = &slab[i];
    }
    lock_give(&keeping);
}

/* Lets others find the notes, once for ever. */
static void list(struct notes *mine) {
    lock_take(&keeping);
    if (!mine->listed) {
        mine->listed = true;
        mine->made = made;
        __atomic_store_n(&made, mine, __ATOMIC_RELEASE);
    }
    lock_give(&keeping);
}

struct notes *notes_make(void) {
    struct notes *mine = take();
    if (mine == NULL) {
        add_slab();
        mine = take();
    }
    if (mine != NULL) {
        mine->next = NULL;
        list(mine);
        pthread_setspecific(key, mine);
        notes_here = mine;
    }
    return mine;
}

bool notes_launching(const struct flight *flight) {
    for (struct notes *at = __atomic_load_n(&made, __ATOMIC_ACQUIRE); at != NULL; at = at->made) {
        if (at != notes_here && __atomic_load_n(&at->launching, __ATOMIC_ACQUIRE) == flight) {
            return true;
        }
    }
    return false;
}

bool notes_inside(void) {
    for (struct notes *at = __atomic_load_n(&made, __ATOMIC_ACQUIRE); at != NULL; at = at->made) {
        if (__atomic_load_n(&at->inside, __ATOMIC_SEQ_CST) != 0) {
            return true;
        }
    }
    return false;
}

/* The thread that forked is the only one, and keeps its notes. Its flights were the parent's. */
static void notes_forked(void) {
    keeping = (lock){0};
    unused = NULL;
    made = notes_here;
    if (made != NULL) {
        made->inside = 0;
        made->launching = NULL;
        made->last = NULL;
        made->made = NULL;
    }
}
ON(forked, notes_forked);
