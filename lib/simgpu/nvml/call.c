#define _GNU_SOURCE
#include "simgpu/nvml/call.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

struct nvmlDevice_st {
    unsigned char unused;
};

static struct nvmlDevice_st handles[SG_GPUS_MAX];
static struct nvmlDevice_st
    mig_handles[SG_GPUS_MAX * SG_MIG_GPU_INSTANCES * SG_MIG_COMPUTE_INSTANCES];

static struct {
    pthread_rwlock_t lock;
    unsigned int users;           /* nvmlInit less nvmlShutdown */
    bool opened;                  /* false in a fork child of a user until its first call */
    uint64_t resets[SG_GPUS_MAX]; /* of each GPU when it was opened */
    struct sg_instance in;
} library = {.lock = PTHREAD_RWLOCK_INITIALIZER};

/* Makes the child's copy of the lock usable whoever held it, and drops the parent's identity. */
static void fork_child(void) {
    library.lock = (pthread_rwlock_t)PTHREAD_RWLOCK_INITIALIZER;
    if (library.opened) {
        sg_abandon(&library.in);
    }
    library.opened = false;
}

__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(NULL, NULL, fork_child);
}

nvmlReturn_t nvml_visit(struct sg_instance *in, const sim_machine **machine) {
    char dir[SG_PATH_BYTES];
    char tag[SG_TAG_BYTES];
    size_t bytes;

    if (sg_find(handles, dir, tag) != 0 || sg_open(in, dir, tag, false) != 0) {
        return NVML_ERROR_DRIVER_NOT_LOADED;
    }
    *machine = sg_state_machine(in, &bytes);
    if (bytes != sizeof **machine || (*machine)->magic != SIM_MAGIC ||
        (*machine)->version != SIM_VERSION) {
        sg_close(in);
        return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    }
    return NVML_SUCCESS;
}

/* The library lock is held for writing. */
static nvmlReturn_t open_instance(void) {
    const sim_machine *machine;

    if (library.opened) {
        return NVML_SUCCESS;
    }
    nvmlReturn_t result = nvml_visit(&library.in, &machine);
    if (result != NVML_SUCCESS) {
        return result;
    }
    for (uint32_t i = 0; i < machine->gpu_count; i++) {
        library.resets[i] =
            __atomic_load_n(&library.in.state->gpus[i].faults.resets, __ATOMIC_ACQUIRE);
    }
    library.opened = true;
    return NVML_SUCCESS;
}

static nvmlReturn_t await_driver(void);

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    nvmlReturn_t result;

    NVML_REQUIRE((flags & ~(unsigned int)(NVML_INIT_FLAG_NO_GPUS | NVML_INIT_FLAG_NO_ATTACH)) == 0);
    pthread_rwlock_wrlock(&library.lock);
    result = open_instance();
    if (result == NVML_SUCCESS) {
        library.users++;
    }
    pthread_rwlock_unlock(&library.lock);
    return result == NVML_SUCCESS ? await_driver() : result;
}

nvmlReturn_t nvmlInit_v2(void) {
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlInit(void) {
    return nvmlInitWithFlags(0);
}

/* Without a user it succeeds, as the driver's does; the documentation has an error for this. */
nvmlReturn_t nvmlShutdown(void) {
    pthread_rwlock_wrlock(&library.lock);
    if (library.users > 0 && --library.users == 0 && library.opened) {
        sg_close(&library.in);
        library.opened = false;
    }
    pthread_rwlock_unlock(&library.lock);
    return NVML_SUCCESS;
}

bool nvml_in_use(void) {
    pthread_rwlock_rdlock(&library.lock);
    bool used = library.users > 0;
    pthread_rwlock_unlock(&library.lock);
    return used;
}

/* Takes the library lock for reading with the instance open; takes nothing when it fails. */
static nvmlReturn_t hold_instance(void) {
    for (;;) {
        nvmlReturn_t result = NVML_ERROR_UNINITIALIZED;

        pthread_rwlock_rdlock(&library.lock);
        if (library.users > 0 && library.opened) {
            return NVML_SUCCESS;
        }
        pthread_rwlock_unlock(&library.lock);
        pthread_rwlock_wrlock(&library.lock);
        if (library.users > 0) {
            result = open_instance();
        }
        pthread_rwlock_unlock(&library.lock);
        if (result != NVML_SUCCESS) {
            return result;
        }
    }
}

nvmlReturn_t nvml_enter(struct nvml_call *call) {
    size_t bytes;
    nvmlReturn_t result = hold_instance();

    if (result != NVML_SUCCESS) {
        return result;
    }
    call->in = &library.in;
    call->machine = sg_state_machine(call->in, &bytes);
    return NVML_SUCCESS;
}

nvmlReturn_t nvml_await(struct nvml_call *call, uint32_t gpu, enum sg_silence part) {
    const struct timespec pause = {.tv_nsec = 1000000};

    while (sg_fault_silent(call->in, gpu, part)) {
        nvml_leave(call);
        *call = (struct nvml_call){0};
        nanosleep(&pause, NULL);
        nvmlReturn_t result = nvml_enter(call);
        if (result != NVML_SUCCESS) {
            return result;
        }
    }
    if (part == SG_SILENT_DEVICE && __atomic_load_n(&call->in->state->gpus[gpu].faults.resets,
                                                    __ATOMIC_ACQUIRE) != library.resets[gpu]) {
        return NVML_ERROR_GPU_IS_LOST;
    }
    return NVML_SUCCESS;
}

/* Waits while the driver does not answer those who begin to use it. */
static nvmlReturn_t await_driver(void) {
    NVML_SYSTEM(call)
    for (uint32_t i = 0; i < call.machine->gpu_count; i++) {
        nvmlReturn_t result = nvml_await(&call, i, SG_SILENT_INIT);
        if (result != NVML_SUCCESS) {
            return result;
        }
    }
    return NVML_SUCCESS;
}

/* Begins a call about a GPU, or about a part of it. */
static nvmlReturn_t enter_gpu(struct nvml_call *call, uint32_t index, const char *name) {
    if (index >= call->machine->gpu_count) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    nvmlReturn_t result = nvml_await(call, index, SG_SILENT_DEVICE);
    if (result != NVML_SUCCESS) {
        return result;
    }
    call->index = index;
    call->gpu = &call->machine->gpus[index];
    return (nvmlReturn_t)sg_fault_answer(call->in, call->index, SG_FAULT_NVML, name);
}

nvmlReturn_t nvml_enter_device(struct nvml_call *call, nvmlDevice_t device, const char *name) {
    nvmlReturn_t result = nvml_enter(call);

    if (result != NVML_SUCCESS) {
        return result;
    }
    if (nvml_mig_place(device)) {
        return NVML_ERROR_NOT_SUPPORTED; /* of whole GPUs alone */
    }
    return enter_gpu(call, nvml_handle_index(device), name);
}

nvmlReturn_t nvml_enter_any(struct nvml_call *call, nvmlDevice_t device, const char *name) {
    uint32_t place = nvml_mig_place(device);

    if (place == 0) {
        return nvml_enter_device(call, device, name);
    }
    nvmlReturn_t result = nvml_enter(call);
    if (result != NVML_SUCCESS) {
        return result;
    }
    result = enter_gpu(call, sg_place_gpu(place), name);
    if (result == NVML_SUCCESS && !sg_mig_compute_instance(call->in, place)) {
        result = NVML_ERROR_INVALID_ARGUMENT;
    }
    call->place = place;
    return result;
}

void nvml_leave(struct nvml_call *call) {
    if (call->in) {
        pthread_rwlock_unlock(&library.lock);
    }
}

nvmlDevice_t nvml_handle(uint32_t index) {
    return &handles[index];
}

uint32_t nvml_handle_index(nvmlDevice_t device) {
    for (uint32_t i = 0; i < SG_GPUS_MAX; i++) {
        if (device == &handles[i]) {
            return i;
        }
    }
    return SG_GPUS_MAX;
}

nvmlDevice_t nvml_mig_handle(uint32_t place) {
    return &mig_handles[place - 1];
}

uint32_t nvml_mig_place(nvmlDevice_t device) {
    uintptr_t first = (uintptr_t)mig_handles, at = (uintptr_t)device;

    return at >= first && at < first + sizeof mig_handles
               ? (uint32_t)((at - first) / sizeof *mig_handles) + 1
               : 0;
}

nvmlReturn_t nvml_text(char *buffer, unsigned int length, const char *text) {
    size_t bytes = strlen(text) + 1;

    NVML_REQUIRE(buffer);
    if (bytes > length) {
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    memcpy(buffer, text, bytes);
    return NVML_SUCCESS;
}

nvmlReturn_t nvml_room(unsigned int *count, const void *buffer, unsigned int n) {
    unsigned int room;

    NVML_REQUIRE(count);
    room = *count;
    NVML_REQUIRE(room == 0 || buffer);
    *count = n;
    return room < n ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

void nvml_lock_state(struct nvml_call *call) {
    sg_state_lock(call->in);
    sg_reap_gpu(call->in, call->index);
}

unsigned long long nvml_stamp(uint64_t monotonic_ns) {
    struct timespec wall;
    uint64_t now = sg_now();

    clock_gettime(CLOCK_REALTIME, &wall);
    uint64_t wall_us = (uint64_t)wall.tv_sec * 1000000u + (uint64_t)wall.tv_nsec / 1000u;
    return wall_us - (now - monotonic_ns) / 1000u;
}
