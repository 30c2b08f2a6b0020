/* Random calls, once with the simulated driver and once with the client and a worker: results, what was written, and memory
 * are the same. Once where all calls wait, and once where they do not: then an error of a call that is posted may come with
 * the next that waits, and nowhere else; one of memory that the call names comes with it. The same where client and worker share no memory, as over a network. CALLS says how
 * many, of each; SEED repeats a run; WAY is "rings" or "stream" for one of the two. */
#include "remote/test/difference.h"
#include "remote/test/relay.h"
#include "remote/test/whole.h"
#include "test/check.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#define CALLS 20000u
#define PROGRAM 3000u /* calls of one program; the next begins with nothing */

struct difference_world w;
unsigned char difference_host[ROOM];

struct run {
    struct difference_call *calls;
    size_t count;
    uint64_t seed;
    bool remote, stream;
};
static struct run *now;
static size_t at;
static uint64_t state;
static uint16_t kind;

void *difference_find(const char *name) {
    void *library = dlopen(now->remote ? REMOTE_BUILD "/lib/remote/libcuda.so.1"
                                       : REMOTE_BUILD "/lib/simgpu/libcuda.so.1",
                           RTLD_NOW | RTLD_LOCAL);
    void *found = library ? dlsym(library, name) : NULL;

    CHECK(found);
    return found;
}

uint64_t difference_draw(uint64_t below) {
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % below;
}

static bool posted; /* since the last teller */

CUresult difference_told(CUresult result, uint8_t of) {
    if (at < now->count) {
        now->calls[at] = (struct difference_call){result, kind, of, 0};
    }
    at++;
    posted = posted || of == DIFFERENCE_POSTED || of == DIFFERENCE_JUDGED;
    return result;
}

void difference_tell(void) {
    size_t left, total;

    if (!posted) {
        return;
    }
    posted = false;
    switch (difference_draw(4)) {
    case 0:
        difference_told(CALL_(cuMemGetInfo_v2, &left, &total), DIFFERENCE_TELLER);
        return;
    case 1:
        difference_told(CALL_(cuStreamSynchronize, NULL), DIFFERENCE_TELLER);
        return;
    case 2:
        difference_told(CALL_(cuCtxGetLimit, &left, CU_LIMIT_STACK_SIZE), DIFFERENCE_TELLER);
        return;
    default:
        difference_told(CALL_(cuCtxSynchronize), DIFFERENCE_TELLER);
    }
}

void difference_see(uint64_t value) {
    if (at && at <= now->count) {
        uint64_t *seen = &now->calls[at - 1].seen;
        *seen = (*seen ^ value) * UINT64_C(0x100000001b3) + 1;
    }
}

void difference_see_bytes(const void *bytes, size_t size) {
    uint64_t digest = size;

    for (size_t i = 0; i < size; i++) {
        digest = (digest ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
    }
    difference_see(digest);
}

CUstream difference_stream(void) {
    uint64_t i = difference_draw(STREAMS + 3);

    return i < STREAMS ? w.streams[i] : i == STREAMS ? CU_STREAM_PER_THREAD : NULL;
}

CUevent difference_event(void) {
    return w.events[difference_draw(EVENTS)];
}

static void begin_program(void) {
    static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                              ".visible .global .align 8 .u64 table[2];\n"
                              ".visible .entry none() { ret; }\n"
                              ".visible .entry divvy_fill(.param .u64 a, .param .u32 b, .param "
                              ".u64 c) { ret; }\n";

    memset(&w, 0, sizeof w);
    for (unsigned i = 0; i < ROOM; i++) {
        difference_host[i] = (unsigned char)(i * 7);
    }
    OK(WAITS(cuCtxCreate_v2, &w.context, 0, 0));
    OK(WAITS(cuModuleLoadData, &w.module, ptx));
    OK(WAITS(cuModuleGetFunction, &w.fill, w.module, "divvy_fill"));
    OK(WAITS(cuModuleGetFunction, &w.none, w.module, "none"));
    OK(WAITS(cuMemHostAlloc, (void **)&w.pinned, ROOM, 0));
    memset(w.pinned, 3, ROOM);
    OK(WAITS(cuDeviceGetDefaultMemPool, &w.pool, 0));
    for (unsigned i = 0; i < STREAMS; i++) {
        OK(WAITS(cuStreamCreate, &w.streams[i], CU_STREAM_NON_BLOCKING));
        OK(WAITS(cuEventCreate, &w.events[i % EVENTS], 0));
    }
    OK(WAITS(cuMemAlloc_v2, &w.kept, 4096));
    OK(WAITS(cuGraphCreate, &w.graph, 0));
}

static void end_program(void) {
    for (unsigned i = 0; i < BUFFERS; i++) {
        if (w.buffers[i].held) {
            POSTS(cuMemFree_v2, w.buffers[i].at);
        }
    }
    WAITS(cuCtxSynchronize);
    WAITS(cuMemFreeHost, w.pinned);
    WAITS(cuCtxDestroy_v2, w.context);
}

static void play(void *argument) {
    uint64_t zero = 0;

    now = argument;
    state = now->seed;
    at = 0;
    alarm(0);
    if (now->stream) {
        relay_start();
    }
    OK(CALL_(cuInit, 0));
    while (at < now->count) {
        size_t end = at + PROGRAM;
        kind = 0;
        posted = false;
        begin_program();
        while (at < end && at < now->count) {
            uint64_t i = difference_draw(MEMORY_KINDS + WORK_KINDS);
            kind = (uint16_t)(i + 1);
            (i < MEMORY_KINDS ? difference_memory[i] : difference_work[i - MEMORY_KINDS])();
        }
        kind = 99;
        end_program();
        WAITS(cuMemPoolSetAttribute, w.pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &zero);
    }
    if (now->stream) {
        relay_end();
    }
}

/* What is due of late errors: the first one of those that were posted. One that a posted call has answered may have been
 * its own or the one that was due. */
struct late {
    int32_t due;
    bool maybe;
};

/* Whether a call that did not wait may have answered so. */
static bool may_answer(struct late *late, const struct difference_call *direct,
                       const struct difference_call *remote) {
    if (direct->result && !remote->result && direct->kind == DIFFERENCE_POSTED) {
        late->due = late->due ? late->due : direct->result;
        return true;
    }
    if (late->due && remote->result == late->due) {
        late->maybe = direct->result != 0;
        late->due = late->maybe ? late->due : 0;
        return true;
    }
    return remote->result == direct->result;
}

static bool may_tell(struct late *late, const struct difference_call *direct,
                     const struct difference_call *remote) {
    bool told = late->due && remote->result == late->due;
    bool good = told || ((!late->due || late->maybe) && remote->result == direct->result);

    *late = (struct late){0};
    return good;
}

static unsigned long compare(const struct run *direct, const struct run *remote, bool strict,
                             unsigned long *failing, unsigned long *lates) {
    unsigned long differences = 0;
    struct late late = {0};

    for (size_t i = 0; i < direct->count; i++) {
        const struct difference_call *a = &direct->calls[i], *b = &remote->calls[i];
        bool same = a->what == b->what && a->kind == b->kind && a->seen == b->seen;

        *failing += a->result != 0;
        *lates += a->result && !b->result;
        if (strict || a->kind == DIFFERENCE_WAITING) {
            same = same && a->result == b->result;
        } else if (a->kind == DIFFERENCE_POSTED || a->kind == DIFFERENCE_JUDGED) {
            same = may_answer(&late, a, b) && same;
        } else {
            same = may_tell(&late, a, b) && same;
        }
        if (!same && differences++ < 10) {
            fprintf(stderr, "call %zu of operation %u: direct %d, remote %d%s\n", i, a->what,
                    a->result, b->result, a->seen == b->seen ? "" : ", other outputs");
        }
    }
    return differences;
}

static unsigned long run(bool strict, bool stream, size_t count, uint64_t seed) {
    struct run *both = whole_share(2 * sizeof *both);
    unsigned long failing = 0, late = 0, differences;

    for (unsigned i = 0; i < 2; i++) {
        both[i] = (struct run){whole_share(count * sizeof *both[i].calls), count, seed, i == 1,
                               i == 1 && stream};
        setenv("DIVVY_REMOTE", strict ? "strict" : "", 1);
        CHECK_EQUAL(whole_run(i == 1, play, &both[i]), 0);
    }
    differences = compare(&both[0], &both[1], strict, &failing, &late);
    printf("%s%s: %zu calls, %lu of them failing, %lu late, %lu differences\n",
           stream ? "stream, " : "", strict ? "strict" : "posted", count, failing, late,
           differences);
    fflush(stdout);
    return differences;
}

int main(void) {
    const char *calls = getenv("CALLS"), *seed = getenv("SEED"), *way = getenv("WAY");
    size_t count = calls ? strtoul(calls, NULL, 10) : CALLS;
    uint64_t from = seed ? strtoull(seed, NULL, 10) : 1;

    whole_start();
    unsigned long differences = 0;
    for (int stream = 0; stream < 2; stream++) {
        if (!way || strcmp(way, stream ? "stream" : "rings") == 0) {
            differences += run(true, stream, count, from);
            differences += run(false, stream, count, from);
        }
    }
    CHECK_EQUAL(differences, 0);
    return 0;
}
