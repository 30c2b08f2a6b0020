/* The files by which the kernel module tells of instances and gives them to users (MIG user guide, device nodes and
 * capabilities): below the instance's directory, proc/driver/nvidia/capabilities/gpu<minor>/mig/gi<id>/access and
 * ci<id>/access, and dev/nvidia-caps/nvidia-cap<number>. */
#define _GNU_SOURCE
#include "abi/generated/machine_layout.h"
#include "simgpu/machine/state.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Makes a file with that content, which every user may read, or removes it. What cannot be done is left: in a container
 * the files are not all there. */
static void put(int dir, const char *path, const char *content, size_t length, bool there) {
    if (!there) {
        unlinkat(dir, path, 0);
        return;
    }
    int fd = openat(dir, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (fd >= 0) {
        if (fchmod(fd, 0444) != 0 || write(fd, content, length) != (ssize_t)length) {
            unlinkat(dir, path, 0);
        }
        close(fd);
    }
}

/* One capability: its file and its node. */
static void put_capability(int dir, const char *folder, uint32_t number, bool there) {
    char path[128], content[96];

    if (there) {
        mkdirat(dir, folder, 0755);
    }
    snprintf(path, sizeof path, "%s/access", folder);
    int length =
        snprintf(content, sizeof content,
                 "DeviceFileMinor: %u\nDeviceFileMode: 292\nDeviceFileModify: 1\n", number);
    put(dir, path, content, (size_t)length, there);
    snprintf(path, sizeof path, "dev/nvidia-caps/nvidia-cap%u", number);
    put(dir, path, "", 0, there);
    if (!there) {
        unlinkat(dir, folder, AT_REMOVEDIR);
    }
}

static void put_instance(const struct sg_instance *in, int dir, uint32_t gpu, uint32_t gi) {
    const sim_machine *machine = (const sim_machine *)(const void *)in->state->machine;
    bool there = sg_mig_gpu_instance(in, gpu, gi) != NULL;
    char folder[96], part[112];

    snprintf(folder, sizeof folder, "proc/driver/nvidia/capabilities/gpu%u/mig/gi%u",
             machine->gpus[gpu].minor, gi);
    if (there) {
        put_capability(dir, folder, sg_mig_minor(in, sg_place_of(gpu, gi, 0), true), true);
    }
    for (uint32_t ci = 0; ci < SG_MIG_COMPUTE_INSTANCES; ci++) {
        uint32_t place = sg_place_of(gpu, gi, ci);
        snprintf(part, sizeof part, "%s/ci%u", folder, ci);
        put_capability(dir, part, sg_mig_minor(in, place, false),
                       sg_mig_compute_instance(in, place));
    }
    if (!there) {
        put_capability(dir, folder, sg_mig_minor(in, sg_place_of(gpu, gi, 0), true), false);
    }
}

void sg_mig_files(const struct sg_instance *in, uint32_t gpu) {
    int dir = open(in->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (dir < 0) {
        return;
    }
    /* Who changes instances at once writes the files one after another, each as they are then. */
    if (flock(dir, LOCK_EX) == 0) {
        for (uint32_t gi = 0; gi < SG_MIG_GPU_INSTANCES; gi++) {
            put_instance(in, dir, gpu, gi);
        }
    }
    close(dir);
}
