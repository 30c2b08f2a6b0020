/* Which MIG device a process gets. MIG user guide, CUDA device enumeration: a process sees one compute instance, the
 * first of those that it may open; CUDA_VISIBLE_DEVICES names it by MIG-<UUID>, or in the form of drivers before 470
 * by MIG-GPU-<UUID>/<GPU instance>/<compute instance>. There is no access to peers. */
#define _GNU_SOURCE
#include "simgpu/cuda/driver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static sim_gpu part; /* the model of the process's instance */

static void uuid_text(const char *kind, const uint8_t uuid[16], char out[48]) {
    char *at = out + sprintf(out, "%s", kind);

    for (unsigned i = 0; i < 16; i++) {
        at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
    }
}

/* In a container that has none of the nodes nothing is denied. Elsewhere one that does not exist denies its instance. */
static bool may_open(const char *dir, uint32_t minor) {
    char node[SG_PATH_BYTES + 48];
    int folder = snprintf(node, sizeof node, "%s/dev/nvidia-caps", dir);

    snprintf(node + folder, sizeof node - (size_t)folder, "/nvidia-cap%u", minor);
    if (faccessat(AT_FDCWD, node, R_OK, AT_EACCESS) == 0) {
        return true;
    }
    if (errno != ENOENT) {
        return false;
    }
    node[folder] = '\0';
    return faccessat(AT_FDCWD, node, F_OK, AT_EACCESS) != 0;
}

static bool may_use(const char *dir, uint32_t place) {
    uint32_t gi = sg_mig_minor(&sg_driver.instance, place, true);

    return may_open(dir, gi) && may_open(dir, sg_mig_minor(&sg_driver.instance, place, false));
}

static bool is_named(uint32_t place, const char *word, size_t length) {
    char name[64], older[80];
    uint8_t uuid[16];

    sg_mig_uuid(&sg_driver.instance, place, uuid);
    uuid_text("MIG-", uuid, name);
    if (strlen(name) == length && strncasecmp(name, word, length) == 0) {
        return true;
    }
    uuid_text("MIG-GPU-", sg_driver.machine->gpus[sg_place_gpu(place)].uuid, name);
    snprintf(older, sizeof older, "%.47s/%u/%u", name, sg_place_gi(place), sg_place_ci(place));
    return strlen(older) == length && strncasecmp(older, word, length) == 0;
}

/* Whose instances count, and which: with `only` no other than that one. */
struct choice {
    const struct sg_sight *sight;
    const char *dir;
    uint32_t only;
};

/* The first instance that the process may use, and that has that name unless the length is 0. The state lock. */
static uint32_t find(const struct choice *of, const char *word, size_t length) {
    for (uint32_t gpu = 0; gpu < sg_driver.machine->gpu_count; gpu++) {
        if (of->sight->denied >> gpu & 1 || !sg_mig_on(&sg_driver.instance, gpu)) {
            continue;
        }
        for (uint32_t p = 0; (p = sg_mig_next(&sg_driver.instance, gpu, p)) != 0; p++) {
            if ((of->only == 0 || p == of->only) && (length == 0 || is_named(p, word, length)) &&
                may_use(of->dir, p)) {
                return p;
            }
        }
    }
    return 0;
}

/* The state lock. */
static uint32_t choose(const struct choice *of) {
    const char *at = of->sight->visible;
    uint32_t whole = (1u << sg_driver.machine->gpu_count) - 1, place = 0;

    /* Whole GPUs come first where there are any. */
    if (!at || strcmp(at, "0") == 0) {
        return of->only || (of->sight->hidden & whole) == whole ? find(of, NULL, 0) : 0;
    }
    while (place == 0 && strncasecmp(at += strspn(at, " \t"), "MIG-", 4) == 0) {
        size_t length = strcspn(at, ", \t");
        place = find(of, at, length);
        at += strcspn(at, ",");
        at += *at == ',';
    }
    return place;
}

const sim_gpu *instance_enter(const struct sg_sight *sight, const char *dir, uint32_t only,
                              uint32_t *gpu) {
    struct sg_instance *in = &sg_driver.instance;
    char name[40];

    sg_state_lock(in);
    uint32_t place = choose(&(struct choice){sight, dir, only});
    if (place == 0 || !sg_mig_enter(in, place)) {
        sg_state_unlock(in);
        return NULL;
    }
    *gpu = sg_place_gpu(place);
    const struct sg_gpu_instance *gi = sg_mig_gpu_instance(in, *gpu, sg_place_gi(place));
    const struct sg_compute_instance *ci = sg_mig_compute_instance(in, place);
    part = sg_driver.machine->gpus[*gpu];
    part.memory_bytes = sg_driver.machine->mig_profiles[gi->profile].memory_mib << 20;
    part.reserved_bytes = sg_mig_reserved(in, gi->profile);
    part.multiprocessors = sg_mig_multiprocessors(in, gi->profile, ci->size);
    part.memory_rate = part.memory_rate / sg_driver.machine->mig_slices *
                       sg_driver.machine->mig_profiles[gi->profile].size;
    part.link_count = 0;
    sg_mig_uuid(in, place, part.uuid);
    sg_mig_name(in, place, name);
    sg_state_unlock(in);
    size_t end = strnlen(part.name, sizeof part.name);
    snprintf(part.name + end, sizeof part.name - end, " %s", name);
    return &part;
}
