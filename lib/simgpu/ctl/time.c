/* simgpuctl slice and clock: what can be set of an instance's time. */
#define _GNU_SOURCE
#include "simgpu/ctl/ctl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_number(const char *text) {
    return text[0] != '\0' && text[strspn(text, "0123456789")] == '\0';
}

static bool is_whose(const struct sg_state *st, struct sg_pids *pids, uint32_t client,
                     const char *whose) {
    const struct sg_client *c = &st->clients[client];

    if (is_number(whose)) {
        return sg_pids_of(pids, &c->who) == strtol(whose, NULL, 10);
    }
    return strncmp(st->tags[c->tag % SG_TAGS_MAX].name, whose, SG_TAG_BYTES) == 0;
}

/* What a real driver's SET_TIMESLICE does to a process's channels; it takes effect at the next
 * turn. */
int ctl_slice(const char *dir, const char *whose, uint64_t ns) {
    struct sg_instance in;
    bool found = false;

    if (!ctl_open(&in, dir)) {
        return 1;
    }
    struct sg_pids pids = {.count = 0};
    sg_pids_read(&pids);
    sg_state_lock(&in);
    sg_reap(&in);
    for (uint32_t i = 0; (i = sg_next_client(&in, i)) < SG_CLIENTS_MAX; i++) {
        if (!is_whose(in.state, &pids, i, whose)) {
            continue;
        }
        found = true;
        for (uint32_t gpu = 0; gpu < in.state->gpu_count; gpu++) {
            sg_schedule_lock(&in, gpu);
            sg_advance_locked(&in, gpu, sg_time(&in));
            sg_channel(&in, i, gpu)->slice_ns = ns;
            sg_schedule_unlock(&in, gpu);
        }
    }
    sg_state_unlock(&in);
    sg_pids_end(&pids);
    sg_close(&in);
    if (!found) {
        fprintf(stderr, "%s: no process or tenant %s uses it\n", dir, whose);
    }
    return found ? 0 : 1;
}

int ctl_clock(const char *dir, uint64_t ns) {
    struct sg_instance in;

    if (!ctl_open(&in, dir)) {
        return 1;
    }
    bool is_virtual = in.state->is_virtual;
    if (is_virtual) {
        sg_clock_move(&in, ns);
        printf("%llu\n", (unsigned long long)sg_time(&in));
    } else {
        fprintf(stderr, "%s: its clock is the host's: start one with --set clock=virtual\n", dir);
    }
    sg_close(&in);
    return is_virtual && fflush(stdout) == 0 ? 0 : 1;
}
