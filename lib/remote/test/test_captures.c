/* Captures of streams beside calls of other threads: what the driver refuses to which thread, directly and through one
 * executor, is the same. */
#define _GNU_SOURCE
#include "remote/test/whole.h"

#include "test/check.h"

#include <pthread.h>
#include <string.h>

#define MODES 3u
#define NO_MODE 3u
#define SEEN 24u

/* What one arrangement of modes has shown. */
struct case_of {
    CUstreamCaptureMode capture;
    unsigned own;   /* mode of the thread that captures, NO_MODE to leave it */
    unsigned other; /* of the other thread */
    CUstream stream;
    CUcontext context;
    int seen[SEEN];
    unsigned count;
};
struct shown {
    int seen[MODES][NO_MODE + 1][NO_MODE + 1][SEEN];
};

static void see(struct case_of *c, int result) {
    CHECK(c->count < SEEN);
    c->seen[c->count++] = result;
}

static void exchange(struct case_of *c, unsigned mode) {
    CUstreamCaptureMode both = (CUstreamCaptureMode)mode;

    if (mode != NO_MODE) {
        see(c, (int)cu.cuThreadExchangeStreamCaptureMode(&both));
        see(c, (int)both);
    }
}

/* A call that is not safe while a stream is captured. */
static void allocate(struct case_of *c) {
    CUdeviceptr memory = 0;

    see(c, (int)cu.cuMemAlloc_v2(&memory, 64));
    if (memory) {
        see(c, (int)cu.cuMemFree_v2(memory));
    }
}

static void *be_other(void *of) {
    struct case_of *c = of;
    CUstreamCaptureStatus status;
    CUgraph graph = NULL;

    OK(cu.cuCtxSetCurrent(c->context));
    exchange(c, c->other);
    allocate(c);
    see(c, (int)cu.cuStreamIsCapturing(c->stream, &status));
    see(c, (int)status);
    see(c, (int)cu.cuStreamEndCapture(c->stream, &graph));
    return NULL;
}

static void *be_owner(void *of) {
    struct case_of *c = of;
    CUstreamCaptureStatus status;
    CUgraph graph = NULL;
    pthread_t other;

    OK(cu.cuCtxSetCurrent(c->context));
    OK(cu.cuStreamCreate(&c->stream, 1));
    exchange(c, c->own);
    see(c, (int)cu.cuStreamBeginCapture_v2(c->stream, c->capture));
    CHECK(pthread_create(&other, NULL, be_other, c) == 0);
    pthread_join(other, NULL);
    see(c, (int)cu.cuStreamIsCapturing(c->stream, &status));
    see(c, (int)status);
    allocate(c);
    see(c, (int)cu.cuStreamEndCapture(c->stream, &graph));
    allocate(c);
    return NULL;
}

static void play(void *to) {
    struct shown *shown = to;
    CUcontext context;
    pthread_t owner;

    OK(cu.cuInit(0));
    OK(cu.cuCtxCreate_v2(&context, 0, 0));
    for (unsigned capture = 0; capture < MODES; capture++) {
        for (unsigned own = 0; own <= NO_MODE; own++) {
            for (unsigned other = 0; other <= NO_MODE; other++) {
                struct case_of c = {.capture = (CUstreamCaptureMode)capture,
                                    .own = own,
                                    .other = other,
                                    .context = context};
                CHECK(pthread_create(&owner, NULL, be_owner, &c) == 0);
                pthread_join(owner, NULL);
                memcpy(shown->seen[capture][own][other], c.seen, sizeof c.seen);
            }
        }
    }
}

int main(void) {
    struct shown *shown = whole_share(2 * sizeof *shown);

    whole_start();
    CHECK_EQUAL(whole_run(false, play, &shown[0]), 0);
    CHECK_EQUAL(whole_run(true, play, &shown[1]), 0);
    for (unsigned i = 0; i < sizeof *shown / sizeof(int); i++) {
        int direct = ((const int *)&shown[0])[i], remote = ((const int *)&shown[1])[i];

        if (direct != remote) {
            fprintf(stderr,
                    "capture %u, own mode %u, other's %u, result %u: direct %d, remote %d\n",
                    i / SEEN / 16, i / SEEN / 4 % 4, i / SEEN % 4, i % SEEN, direct, remote);
        }
        CHECK_EQUAL(direct, remote);
    }
    return 0;
}
