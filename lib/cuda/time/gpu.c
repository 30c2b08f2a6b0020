#include "cuda/time/gpu.h"

#include <string.h>

#include "cuda/attach.h"
#include "cuda/fork.h"

#define BEHIND 4u /* so many pieces may wait for an older one */
/* A longer piece is published in parts. Parts are cut at the horizon, which is a time of the host,
 * while the arbiter takes the ends of an interval for moments at which the process ran. So there
 * should be few cuts. */
#define CUT_NS 50000000u

static struct gpu gpus[DV_PAGE_DEVICES];

struct gpu *gpu_at(unsigned number) {
    dv_share *share = attached_share();
    if (share == NULL || number >= dv_share_device_count(share)) {
        return NULL;
    }
    struct gpu *gpu = &gpus[number];
    if (__atomic_load_n(&gpu->share, __ATOMIC_ACQUIRE) == NULL) {
        dv_time_worker(share, number); /* may take a worker, which must not happen under a lock */
        lock_take(&gpu->lock);
        if (gpu->share == NULL) { /* others read it without the lock once there is a share */
            gpu->number = number;
            __atomic_store_n(&gpu->share, share, __ATOMIC_RELEASE);
        }
        lock_give(&gpu->lock);
    }
    return gpu;
}

static void publish(struct gpu *gpu, struct piece piece) {
    dv_time_interval(gpu->share, gpu->number, piece.begin, piece.end, piece.charged + gpu->inside);
    gpu->inside = 0;
    gpu->told = piece.end;
    __atomic_store_n(&gpu->open_since, 0, __ATOMIC_RELAXED);
}

static void remove_at(struct gpu *gpu, unsigned at) {
    gpu->piece_count--;
    memmove(&gpu->pieces[at], &gpu->pieces[at + 1],
            (gpu->piece_count - at) * sizeof gpu->pieces[0]);
}

/* Merges every piece that touches this one into it. */
static void absorb(struct gpu *gpu, struct piece *piece) {
    for (unsigned i = 0; i < gpu->piece_count;) {
        const struct piece *other = &gpu->pieces[i];
        if (other->begin >= piece->end || other->end <= piece->begin) {
            i++;
            continue;
        }
        piece->begin = other->begin < piece->begin ? other->begin : piece->begin;
        piece->end = other->end > piece->end ? other->end : piece->end;
        piece->charged += other->charged;
        remove_at(gpu, i);
    }
}

static void insert(struct gpu *gpu, struct piece piece) {
    unsigned at = gpu->piece_count;
    while (at > 0 && gpu->pieces[at - 1].begin > piece.begin) {
        at--;
    }
    memmove(&gpu->pieces[at + 1], &gpu->pieces[at],
            (gpu->piece_count - at) * sizeof gpu->pieces[0]);
    gpu->pieces[at] = piece;
    gpu->piece_count++;
}

void gpu_add(struct gpu *gpu, struct piece piece) {
    lock_take(&gpu->lock);
    piece.begin = piece.begin > gpu->told ? piece.begin : gpu->told;
    if (piece.end <= piece.begin) {
        gpu->inside += piece.charged;
    } else {
        absorb(gpu, &piece);
        if (gpu->piece_count == GPU_PIECES) {
            publish(gpu, gpu->pieces[0]);
            remove_at(gpu, 0);
        }
        if (piece.begin < gpu->told) { /* what was published a moment ago may already contain it */
            gpu->inside += piece.charged;
        } else {
            insert(gpu, piece);
        }
    }
    lock_give(&gpu->lock);
}

/* Cuts off the part of a piece before the horizon, with its part of the charge. */
static struct piece cut(struct piece *piece, uint64_t horizon) {
    struct piece before = *piece;
    double part = (double)(horizon - piece->begin) / (double)(piece->end - piece->begin);
    before.end = horizon;
    before.charged = (uint64_t)((double)piece->charged * part);
    piece->begin = horizon;
    piece->charged -= before.charged;
    return before;
}

void gpu_tell(struct gpu *gpu, uint64_t horizon, bool open, uint64_t until) {
    lock_take(&gpu->lock);
    while (gpu->piece_count > 0 && gpu->pieces[0].end <= horizon) {
        publish(gpu, gpu->pieces[0]);
        remove_at(gpu, 0);
    }
    if (gpu->piece_count > 0 && gpu->pieces[0].begin + CUT_NS < horizon) {
        publish(gpu, cut(&gpu->pieces[0], horizon));
    }
    uint64_t since = horizon;
    if (gpu->piece_count > 0 && gpu->pieces[0].begin < since) {
        since = gpu->pieces[0].begin;
    }
    since = open && since != UINT64_MAX ? (since > gpu->told ? since : gpu->told) : 0;
    if (since != gpu->open_since || since != 0) {
        __atomic_store_n(&gpu->open_since, since, __ATOMIC_RELAXED);
        dv_time_open(gpu->share, gpu->number, since, until > since ? until : since);
    }
    lock_give(&gpu->lock);
}

bool gpu_is_behind(struct gpu *gpu) {
    lock_take(&gpu->lock);
    bool behind = gpu->piece_count >= BEHIND;
    lock_give(&gpu->lock);
    return behind;
}

void gpu_unmeasured(struct gpu *gpu, uint64_t ns) {
    if (ns > 0) {
        lock_take(&gpu->lock);
        dv_time_unmeasured(gpu->share, gpu->number, ns);
        lock_give(&gpu->lock);
    }
}

static void gpus_forked(void) {
    memset(gpus, 0, sizeof gpus);
}
ON(forked, gpus_forked);
