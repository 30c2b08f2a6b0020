/* simgpuctl oracle and segments: true GPU time, at intervals, and the segments that it consists of.
 *
 * A sample is read under the locks, at one moment of the GPU's clock, and printed after them: a
 * slow reader of the output must not keep the machine locked. */
#define _GNU_SOURCE
#include "simgpu/ctl/ctl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef unsigned long long ull;

struct sample {
    uint64_t t, busy;
    uint64_t tags[SG_TAGS_MAX]; /* of the living and the dead */
    uint64_t tags_sm[SG_TAGS_MAX];
    char names[SG_TAGS_MAX][SG_TAG_BYTES];
    unsigned clients;
    struct {
        struct sg_who who;
        uint64_t executed, sm_ns;
    } client[SG_CLIENTS_MAX];
};

/* The state lock. */
static void take(struct sg_instance *in, uint32_t gpu, struct sample *out) {
    const struct sg_state *st = in->state;

    for (uint32_t i = 0; i < SG_TAGS_MAX; i++) {
        out->tags[i] = st->tags[i].gpu_ns[gpu];
        out->tags_sm[i] = st->tags[i].sm_ns[gpu];
        memcpy(out->names[i], st->tags[i].name, SG_TAG_BYTES);
    }
    out->clients = 0;
    sg_schedule_lock(in, gpu);
    sg_advance_locked(in, gpu, sg_time(in));
    out->t = st->gpus[gpu].clock;
    out->busy = st->gpus[gpu].busy_ns;
    for (uint32_t i = 0; (i = sg_next_client(in, i)) < SG_CLIENTS_MAX; i++) {
        uint64_t executed = sg_channel(in, i, gpu)->executed;
        out->tags[st->clients[i].tag % SG_TAGS_MAX] += executed;
        out->tags_sm[st->clients[i].tag % SG_TAGS_MAX] += sg_channel(in, i, gpu)->sm_ns;
        if (executed || st->clients[i].contexts[gpu]) {
            out->client[out->clients].who = st->clients[i].who;
            out->client[out->clients].sm_ns = sg_channel(in, i, gpu)->sm_ns;
            out->client[out->clients++].executed = executed;
        }
    }
    sg_schedule_unlock(in, gpu);
}

/* Prints one figure of each tag. */
static void print_tags(const char *name, const struct sample *sample, const uint64_t *figures,
                       uint64_t divisor) {
    const char *separator = "";

    printf("\"%s\":{", name);
    for (uint32_t i = 0; i < SG_TAGS_MAX; i++) {
        if (i > 0 && sample->names[i][0] == '\0') {
            continue;
        }
        fputs(separator, stdout);
        ctl_print_string(stdout, sample->names[i], SG_TAG_BYTES);
        printf(":%llu", (ull)(figures[i] / divisor));
        separator = ",";
    }
    putchar('}');
}

/* Prints the GPU time of each client, or with a divisor the time of its multiprocessors divided by that. */
static void print_pids(const char *name, const struct sample *sample, struct sg_pids *pids,
                       uint64_t divisor) {
    const char *separator = "";

    printf(",\"%s\":{", name);
    for (unsigned i = 0; i < sample->clients; i++) {
        int32_t pid = sg_pids_of(pids, &sample->client[i].who);
        if (pid == 0) {
            continue; /* in a namespace that is not below ours: its tag tells of it */
        }
        printf("%s\"%d\":%llu", separator, pid,
               (ull)(divisor ? sample->client[i].sm_ns / divisor : sample->client[i].executed));
        separator = ",";
    }
    putchar('}');
}

static void print(uint32_t gpu, uint64_t multiprocessors, const struct sample *sample,
                  struct sg_pids *pids) {
    printf("{\"t\":%llu,\"gpu\":%u,\"busy\":%llu,", (ull)sample->t, gpu, (ull)sample->busy);
    print_tags("tags", sample, sample->tags, 1);
    print_pids("pids", sample, pids, 0);
    putchar(',');
    print_tags("smTags", sample, sample->tags_sm, multiprocessors);
    print_pids("smPids", sample, pids, multiprocessors);
    fputs("}\n", stdout);
}

static bool print_all(struct sg_instance *in, struct sample *samples) {
    struct sg_pids pids = {.count = 0};

    sg_state_lock(in);
    sg_reap(in);
    for (uint32_t gpu = 0; gpu < in->state->gpu_count; gpu++) {
        take(in, gpu, &samples[gpu]);
    }
    sg_state_unlock(in);
    for (uint32_t gpu = 0; gpu < in->state->gpu_count; gpu++) {
        print(gpu, ctl_machine(in)->gpus[gpu].multiprocessors, &samples[gpu], &pids);
    }
    sg_pids_end(&pids);
    return fflush(stdout) == 0;
}

/* Sleeps until the next whole period since `next`, which may have passed. */
static void sleep_until(uint64_t *next, uint64_t every_ns) {
    uint64_t now = sg_now();

    *next += every_ns;
    if (*next < now) {
        *next = now;
    }
    struct timespec until = {.tv_sec = (time_t)(*next / 1000000000u),
                             .tv_nsec = (long)(*next % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}

int ctl_oracle(const char *dir, uint64_t every_ns) {
    struct sg_instance in;
    uint64_t next = sg_now();

    if (!ctl_open(&in, dir)) {
        return 1;
    }
    if (!ctl_machine(&in)) {
        sg_close(&in);
        return 1;
    }
    struct sample *samples = calloc(in.state->gpu_count, sizeof *samples);
    bool printed = samples && print_all(&in, samples);
    while (printed && every_ns) {
        sleep_until(&next, every_ns);
        printed = print_all(&in, samples);
    }
    int result = printed ? 0 : ctl_fail(dir, samples ? -errno : -ENOMEM);
    free(samples);
    sg_close(&in);
    return result;
}

/* ---- segments ---- */

/* The kept pieces of a channel, copied under the lock; returns how many. */
static uint64_t copy_segments(struct sg_instance *in, uint32_t client, uint32_t gpu,
                              struct sg_segment *out) {
    const struct sg_channel *channel = sg_channel(in, client, gpu);

    sg_schedule_lock(in, gpu);
    sg_advance_locked(in, gpu, sg_time(in));
    uint64_t end = channel->segment_count, n = end < SG_SEGMENTS ? end : SG_SEGMENTS;
    for (uint64_t i = 0; i < n; i++) {
        out[i] = channel->segments[(end - n + i) % SG_SEGMENTS];
    }
    sg_schedule_unlock(in, gpu);
    return n;
}

int ctl_segments(const char *dir, int32_t pid) {
    static struct sg_segment segments[SG_SEGMENTS];
    struct sg_instance in;
    struct sg_pids pids = {.count = 0};
    bool found = false;

    if (!ctl_open(&in, dir)) {
        return 1;
    }
    for (uint32_t i = 0; (i = sg_next_client(&in, i)) < SG_CLIENTS_MAX; i++) {
        if (sg_pids_of(&pids, &in.state->clients[i].who) != pid) {
            continue;
        }
        found = true;
        for (uint32_t gpu = 0; gpu < in.state->gpu_count; gpu++) {
            uint64_t n = copy_segments(&in, i, gpu, segments);
            for (uint64_t k = 0; k < n; k++) {
                printf("{\"gpu\":%u,\"wall\":%llu,\"length\":%llu}\n", gpu, (ull)segments[k].wall,
                       (ull)segments[k].length);
            }
        }
    }
    sg_pids_end(&pids);
    sg_close(&in);
    if (!found) {
        fprintf(stderr, "%s: no process %d uses it\n", dir, pid);
        return 1;
    }
    return fflush(stdout) == 0 ? 0 : ctl_fail(dir, -errno);
}
