#include "cuda/memory/swap.h"

#include "cuda/attach.h"
#include "cuda/device.h"
#include "cuda/fork.h"
#include "cuda/lock.h"
#include "cuda/memory/blocks.h"
#include "cuda/memory/linear.h"
#include "cuda/stream.h"

/* The kernel gives nobody the first pages (vm.mmap_min_addr), nor does the driver. */
#define NOWHERE ((CUdeviceptr)4096)

bool swap_on;

static void swap_attached(const dv_share *share) {
    __atomic_store_n(&swap_on, dv_share_swap(share), __ATOMIC_RELAXED);
}
ON(attached, swap_attached);

/* Memory that the program allocates on one of several GPUs stays that GPU's when another one uses
 * it, as natively: its limit is charged. */
static void bind(const struct swapped *memory) {
    CUdevice device;
    if (dv_share_device_count(attached_share()) > 1 && memory->converted &&
        device_of_number(memory->device, &device)) {
        DV_CALL(cuMemAdvise, memory->address, memory->bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION,
                device);
    }
}

CUresult swap_made(struct reservation *reservation, CUresult result, const struct swapped *memory,
                   CUdeviceptr *address) {
    struct swapped noted = *memory;
    noted.device = reservation->home.device;
    noted.owner = reservation->home.owner;
    if (result != CUDA_SUCCESS) {
        reservation_fail(reservation, result);
        return result;
    }
    bool listed = swapped_add(&noted);
    if (!listed) {
        reservation_settle(reservation, 0);
    }
    if (!listed || !linear_keep(reservation, noted.address, noted.bytes)) {
        swapped_take(noted.address, NULL);
        DV_CALL(cuMemFree_v2, noted.address);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    bind(&noted);
    *address = noted.address;
    return CUDA_SUCCESS;
}

CUresult swap_alloc(struct reservation *reservation, CUdeviceptr *address, size_t bytes) {
    CUdeviceptr got = 0;
    CUresult result = DV_CALL(cuMemAllocManaged, &got, bytes, CU_MEM_ATTACH_GLOBAL);
    struct swapped memory = {.address = got, .bytes = bytes, .converted = true};
    return swap_made(reservation, result, &memory, address);
}

/* Distances between rows that the driver told, by what was asked. */
#define PITCHES 32u
static struct {
    lock lock;
    unsigned next;
    struct pitch {
        size_t width, pitch; /* width 0: none */
        unsigned element, device;
    } known[PITCHES];
} pitches;

static bool recall(struct pitch *wanted) {
    bool found = false;
    lock_take(&pitches.lock);
    for (unsigned i = 0; i < PITCHES && !found; i++) {
        const struct pitch *known = &pitches.known[i];
        found = known->width == wanted->width && known->element == wanted->element &&
                known->device == wanted->device;
        wanted->pitch = found ? known->pitch : 0;
    }
    lock_give(&pitches.lock);
    return found;
}

static void remember(const struct pitch *pitch) {
    lock_take(&pitches.lock);
    pitches.known[pitches.next++ % PITCHES] = *pitch;
    lock_give(&pitches.lock);
}

/* Has the driver allocate one row, which tells the pitch, and free it. Where the kept part has no
 * room for a block, it is for this moment a part of what is reserved for the whole allocation. */
static CUresult ask_driver(struct pitch *wanted, size_t width) {
    struct reservation row;
    CUdeviceptr address = 0;
    bool reserved = reservation_try_number(&row, wanted->device, BLOCK_BYTES) == CUDA_SUCCESS;
    CUresult result =
        DV_CALL(cuMemAllocPitch_v2, &address, &wanted->pitch, width, 1, wanted->element);
    if (result == CUDA_SUCCESS) {
        result = DV_CALL(cuMemFree_v2, address);
    }
    if (reserved) {
        reservation_settle(&row, 0);
    }
    return result;
}

/* The pitch depends on the width in a way that only the driver knows. A row longer than a block is
 * not allocated for that: its pitch is the width in whole pitches of the shortest row. */
static CUresult find_pitch(struct pitch *wanted) {
    if (recall(wanted)) {
        return CUDA_SUCCESS;
    }
    bool is_long = wanted->width > BLOCK_BYTES / 2;
    CUresult result = ask_driver(wanted, is_long ? 1 : wanted->width);
    if (result == CUDA_SUCCESS && is_long) {
        size_t least = wanted->pitch;
        wanted->pitch = (wanted->width + least - 1) / least * least;
    }
    if (result == CUDA_SUCCESS) {
        remember(wanted);
    }
    return result;
}

CUresult swap_alloc_pitch(struct reservation *reservation, CUdeviceptr *address, size_t *pitch,
                          size_t width, size_t height, unsigned element) {
    struct pitch wanted = {.width = width, .element = element, .device = reservation->home.device};
    CUresult result = find_pitch(&wanted);
    if (result != CUDA_SUCCESS) {
        reservation_fail(reservation, result);
        return result;
    }
    result = swap_alloc(reservation, address, wanted.pitch * height);
    if (result == CUDA_SUCCESS) {
        *pitch = wanted.pitch;
    }
    return result;
}

CUresult swap_free_async(CUresult result, CUdeviceptr address, CUstream stream) {
    struct home home;
    if (result == CUDA_SUCCESS) {
        swapped_take(address, NULL);
    }
    if (result != CUDA_ERROR_INVALID_VALUE) {
        return result;
    }
    result = stream_home(stream, &home);
    return result == CUDA_SUCCESS && !swapped_ending(address) ? CUDA_ERROR_INVALID_VALUE : result;
}

bool swap_free_ending(CUdeviceptr address) {
    struct swapped memory;
    if (!swaps() || !swapped_find(address, &memory) || memory.address != address ||
        !memory.ending || !swapped_take(address, &memory)) {
        return true;
    }
    if (DV_CALL(cuMemFree_v2, address) == CUDA_SUCCESS) {
        return true;
    }
    swapped_add(&memory);
    return false;
}

bool swap_converted(CUdeviceptr address, struct swapped *memory) {
    return swapped_find(address, memory) && memory->converted;
}

CUdeviceptr swap_told(CUdeviceptr address) {
    struct swapped memory;
    return swap_converted(address, &memory) ? NOWHERE : address;
}

CUdeviceptr *swap_told_all(CUdeviceptr *addresses, size_t *count) {
    static CUdeviceptr nowhere[] = {NOWHERE};
    struct swapped memory;
    for (size_t i = 0; addresses != NULL && i < *count; i++) {
        if (swap_converted(addresses[i], &memory)) {
            *count = 1;
            return nowhere;
        }
    }
    return addresses;
}

static void swap_forked(void) {
    pitches.lock = (lock){0};
}
ON(forked, swap_forked);
