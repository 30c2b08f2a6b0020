#include "cuda/device.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/attach.h"
#include "cuda/environment.h"
#include "cuda/fork.h"
#include "cuda/lock.h"
#include "cuda/mps.h"
#include "cuda/visible.h"
#include "substitute/log.h"

static lock guard; /* protects what follows; not held during a driver call */
static bool chosen, found;
static struct choices choices;
static struct environment environment; /* what the driver is shown; no entries: there was no room */

static bool initialised;

/* The driver may have read other variables than ours, or have found no control daemon. It reads
 * them once, so nothing is allowed any more. */
static bool spoiled;

/* One device as the program sees it. Its ordinal is its index in the list. */
struct shown {
    CUdevice device; /* the driver's */
    int number;      /* in the share */
};
static struct shown shown[VISIBLE_MAX];
static unsigned shown_count;

static void prepare_environment(const dv_share *share) {
    static char visible[ENVIRONMENT_ENTRY] = "CUDA_VISIBLE_DEVICES=";
    size_t name = strlen(visible);
    if (visible_write(&choices, visible + name, sizeof visible - name)) {
        environment = (struct environment){.count = 1, .entry = {visible}};
        if (dv_share_mps_pipe(share) != NULL) {
            mps_variables(share, choices.count > 0, &environment);
        }
    }
}

/* Reads the program's variable at its first cuInit, as the driver does. */
static void choose(const dv_share *share) {
    uint8_t uuids[DV_PAGE_DEVICES][16], parents[DV_PAGE_DEVICES][16];
    struct granted granted = {
        .count = dv_share_device_count(share),
        .uuids = (const uint8_t (*)[16])uuids,
        .parents = dv_share_mig(share) ? (const uint8_t (*)[16])parents : NULL,
    };
    lock_take(&guard);
    if (!chosen) {
        for (unsigned i = 0; i < granted.count; i++) {
            memcpy(uuids[i], dv_share_device(share, i)->uuid, 16);
            memcpy(parents[i], dv_share_device(share, i)->parent, 16);
        }
        visible_choose(&granted, getenv("CUDA_VISIBLE_DEVICES"), &choices);
        prepare_environment(share);
        chosen = true;
    }
    lock_give(&guard);
}

/* What the driver tells about one of its devices. In MIG mode uuid is the instance's and gpu its
 * GPU's (cuDeviceGetUuid_v2 and cuDeviceGetUuid); otherwise they are equal. */
struct identity {
    CUdevice device;
    CUuuid uuid;
    CUuuid gpu;
};

static unsigned ask_driver(struct identity *devices) {
    int count = 0;
    unsigned known = 0;
    if (DV_CALL(cuDeviceGetCount, &count) != CUDA_SUCCESS) {
        return 0;
    }
    for (int i = 0; i < count && known < DRIVER_DEVICES_MAX; i++) {
        struct identity *d = &devices[known];
        if (DV_CALL(cuDeviceGet, &d->device, i) != CUDA_SUCCESS ||
            DV_CALL(cuDeviceGetUuid, &d->gpu, d->device) != CUDA_SUCCESS) {
            continue;
        }
        if (DV_CALL(cuDeviceGetUuid_v2, &d->uuid, d->device) != CUDA_SUCCESS) {
            d->uuid = d->gpu;
        }
        known++;
    }
    return known;
}

/* The device's number in the share if it is what was chosen, else -1. A share on instances has none
 * of their GPUs, so a driver that shows one, or another instance on it, shows nothing. */
static int match(const dv_share *share, const struct choice *choice,
                 const struct identity *device) {
    int number = dv_share_find(share, (const uint8_t *)device->gpu.bytes);
    if (number < 0) {
        number = dv_share_find(share, (const uint8_t *)device->uuid.bytes);
    }
    bool same = memcmp(choice->uuid, device->uuid.bytes, 16) == 0 ||
                (!choice->instance && memcmp(choice->uuid, device->gpu.bytes, 16) == 0);
    return same ? number : -1;
}

/* Finds which of the driver's devices the program sees, and stores the list once. */
static void find_devices(const dv_share *share) {
    struct identity devices[DRIVER_DEVICES_MAX];
    struct shown list[VISIBLE_MAX];
    unsigned known = ask_driver(devices), count = 0;
    uint64_t taken = 0;
    for (unsigned c = 0; c < choices.count; c++) {
        for (unsigned d = 0; d < known; d++) {
            int number = taken >> d & 1 ? -1 : match(share, &choices.at[c], &devices[d]);
            if (number >= 0) {
                list[count++] = (struct shown){devices[d].device, number};
                taken |= (uint64_t)1 << d;
                break;
            }
        }
    }
    lock_take(&guard);
    if (!found && known > 0) {
        memcpy(shown, list, sizeof list[0] * count);
        shown_count = count;
        __atomic_store_n(&found, true, __ATOMIC_RELEASE);
    }
    lock_give(&guard);
}

static bool devices_known(void) {
    if (__atomic_load_n(&found, __ATOMIC_ACQUIRE)) {
        return true;
    }
    dv_share *share = attached_share();
    if (share == NULL) {
        return false;
    }
    choose(share);
    find_devices(share);
    return __atomic_load_n(&found, __ATOMIC_ACQUIRE);
}

int device_number(CUdevice device) {
    for (unsigned i = 0; devices_known() && i < shown_count; i++) {
        if (shown[i].device == device) {
            return shown[i].number;
        }
    }
    return -1;
}

bool device_of_number(unsigned number, CUdevice *device) {
    for (unsigned i = 0; devices_known() && i < shown_count; i++) {
        if (shown[i].number == (int)number) {
            *device = shown[i].device;
            return true;
        }
    }
    return false;
}

static bool under_mps(void) {
    const dv_share *share = attached_share();
    return share != NULL && dv_share_mps_pipe(share) != NULL;
}

static void spoil(void) {
    __atomic_store_n(&spoiled, true, __ATOMIC_RELEASE);
    dv_log("cuda: the share's limits may not hold in this process, so it gets no context: its "
           "variables for MPS changed, or the control daemon ended, while the driver read them; "
           "start the program again");
}

CUresult shown_enter(void) {
    if (!under_mps()) {
        return CUDA_SUCCESS;
    }
    if (__atomic_load_n(&spoiled, __ATOMIC_ACQUIRE)) {
        return CUDA_ERROR_MPS_CONNECTION_FAILED;
    }
    /* A driver that was initialised without us may be no client. */
    if (!__atomic_load_n(&initialised, __ATOMIC_ACQUIRE)) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    return environment_enter(&environment) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

bool shown_leave(void) {
    if (under_mps() && !environment_leave()) {
        spoil();
        return false;
    }
    return true;
}

/* The driver's cuInit, of which the program's variables are no part. */
static CUresult initialise(unsigned flags) {
    if (environment.count == 0 || !environment_enter(&environment)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = DV_CALL(cuInit, flags);
    bool sound = environment_leave();
    if (result == CUDA_SUCCESS && under_mps() && !sound) {
        spoil();
    }
    return result;
}

/* The same as the client of a control daemon that is there before and after. */
static CUresult initialise_client(unsigned flags) {
    const dv_share *share = attached_share();
    pid_t daemon = -1;
    CUresult result = mps_reach(share, &daemon);
    if (result == CUDA_SUCCESS) {
        result = initialise(flags);
    }
    if (result == CUDA_SUCCESS && mps_reach(share, &daemon) != CUDA_SUCCESS) {
        spoil();
    }
    return result == CUDA_SUCCESS && __atomic_load_n(&spoiled, __ATOMIC_ACQUIRE)
               ? CUDA_ERROR_MPS_CONNECTION_FAILED
               : result;
}

CUresult cuInit(unsigned flags) {
    if (DV_INNER() || __atomic_load_n(&initialised, __ATOMIC_ACQUIRE)) {
        return DV_REAL(cuInit)(flags);
    }
    CUresult result = attach_share();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    choose(attached_share());
    result = under_mps() ? initialise_client(flags) : initialise(flags);
    if (result == CUDA_SUCCESS && devices_known() && shown_count == 0) {
        result = CUDA_ERROR_NO_DEVICE;
    }
    if (result == CUDA_SUCCESS) {
        __atomic_store_n(&initialised, true, __ATOMIC_RELEASE);
    }
    return result;
}

CUresult cuDeviceGetCount(int *count) {
    CUresult result = DV_REAL(cuDeviceGetCount)(count);
    if (result == CUDA_SUCCESS && !DV_INNER()) {
        *count = devices_known() ? (int)shown_count : 0;
    }
    return result;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    if (DV_INNER() || device == NULL || !devices_known()) {
        return DV_REAL(cuDeviceGet)(device, DV_INNER() ? ordinal : -1);
    }
    if (ordinal < 0 || (unsigned)ordinal >= shown_count) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *device = shown[ordinal].device;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *bus) {
    CUdevice got = CU_DEVICE_INVALID;
    if (DV_INNER() || device == NULL) {
        return DV_REAL(cuDeviceGetByPCIBusId)(device, bus);
    }
    CUresult result = DV_CALL(cuDeviceGetByPCIBusId, &got, bus);
    if (result == CUDA_SUCCESS && device_number(got) < 0) {
        result = CUDA_ERROR_INVALID_DEVICE;
    }
    if (result == CUDA_SUCCESS) {
        *device = got;
    }
    return result;
}

/* The child may initialise the driver if its parent had not. Otherwise the driver refuses it. */
static void device_forked(void) {
    guard = (lock){0};
    initialised = false;
}
ON(forked, device_forked);
