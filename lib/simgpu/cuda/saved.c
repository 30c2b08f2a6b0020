/* A checkpoint's memory: blocks that leave the GPU with their contents, and come back as others.
 *
 * Device addresses stay as they are: what is behind them has other numbers afterwards. */
#define _GNU_SOURCE
#include "simgpu/cuda/saved.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct saved_block {
    uint32_t number;
    uint8_t category;
    bool written; /* else it reads as zero */
};

/* What one device of the process had. */
static struct saved {
    uint32_t count, written;
    struct saved_block *blocks;
    char *contents;    /* of the written ones, in order */
    uint32_t *numbers; /* what they were, then what they are */
    uint32_t taken;    /* on the way back: a bit for each category that is there */
    uint32_t *moved;   /* by a block's old number its new one; none where nothing moved */
} saved[SG_GPUS_MAX];  /* by ordinal; the memory lock */

static uint32_t private_blocks(const struct device *device) {
    const struct sg_instance *in = &sg_driver.instance;

    return (uint32_t)(sg_client_used(in, in->id, device->gpu) / SG_BLOCK_BYTES);
}

static void drop(struct saved *s) {
    if (s->contents) {
        munmap(s->contents, s->written * SG_BLOCK_BYTES);
    }
    free(s->blocks);
    free(s->numbers);
    free(s->moved);
    *s = (struct saved){.count = 0};
}

static void drop_all(void) {
    for (int i = 0; i < sg_driver.device_count; i++) {
        drop(&saved[i]);
    }
}

/* Lists what the process has on the device. The state lock. */
static void list(const struct device *device, struct saved *s) {
    const struct sg_instance *in = &sg_driver.instance;
    const sg_block *blocks = sg_blocks(in, device->gpu);
    uint32_t room = s->count;

    s->count = 0;
    for (uint32_t i = 0; s->count < room; i++) {
        sg_block b = __atomic_load_n(&blocks[i], __ATOMIC_RELAXED);
        if (!(b & SG_BLOCK_PRIVATE) || sg_block_owner(b) != in->id) {
            continue;
        }
        bool written = (b & SG_BLOCK_DIRTY) != 0;
        s->blocks[s->count++] = (struct saved_block){
            .number = i, .category = (uint8_t)sg_block_category(b), .written = written};
        s->written += written;
    }
}

static bool copy(const struct device *device, struct saved *s) {
    char *to;

    if (s->written == 0) {
        return true;
    }
    to = mmap(NULL, s->written * SG_BLOCK_BYTES, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (to == MAP_FAILED) {
        return false;
    }
    s->contents = to;
    for (uint32_t i = 0; i < s->count; i++) {
        if (s->blocks[i].written) {
            const void *from = sg_block_host(device->gpu, s->blocks[i].number, false);
            if (!from) {
                return false;
            }
            memcpy(to, from, SG_BLOCK_BYTES);
            to += SG_BLOCK_BYTES;
        }
    }
    return true;
}

static bool save(const struct device *device, struct saved *s) {
    struct sg_instance *in = &sg_driver.instance;

    sg_state_lock(in);
    s->count = private_blocks(device);
    sg_state_unlock(in);
    size_t room = s->count ? s->count : 1;
    s->blocks = malloc(room * sizeof *s->blocks);
    s->numbers = malloc(room * sizeof *s->numbers);
    s->moved = malloc(in->state->gpus[device->gpu].block_count * sizeof *s->moved);
    if (!s->blocks || !s->numbers || !s->moved) {
        return false;
    }
    sg_state_lock(in);
    list(device, s);
    sg_state_unlock(in);
    return copy(device, s);
}

/* The numbers of one category, in order; returns how many. */
static uint32_t pick(struct saved *s, uint32_t category) {
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->count; i++) {
        if (s->blocks[i].category == category) {
            s->numbers[n++] = s->blocks[i].number;
        }
    }
    return n;
}

/* A virtual clock may stand still until the call has returned. */
static void wait_until(uint64_t moment) {
    const struct sg_instance *in = &sg_driver.instance;
    uint64_t now;

    while (!in->state->is_virtual && (now = sg_time(in)) < moment) {
        sg_clock_wait(in, moment - now, 0);
    }
}

/* Copying takes the time that the link takes. */
static void spend_copies(void) {
    double ns = 0;

    for (int i = 0; i < sg_driver.device_count; i++) {
        ns += (double)saved[i].count * SG_BLOCK_BYTES * 1e9 /
              (double)sg_driver.devices[i].model->host_rate;
    }
    wait_until(sg_time(&sg_driver.instance) + (uint64_t)ns);
}

/* The state lock. */
static void let_go(const struct device *device, struct saved *s) {
    struct sg_instance *in = &sg_driver.instance;

    for (uint32_t category = 0; category < SG_CATEGORIES; category++) {
        sg_blocks_return(in, device->gpu, pick(s, category), s->numbers);
    }
    in->state->clients[in->id].contexts[device->gpu] = 0;
}

/* Whether host memory has room for all of it. */
static bool hold(void) {
    struct sg_instance *in = &sg_driver.instance;
    uint32_t blocks = 0;

    for (int i = 0; i < sg_driver.device_count; i++) {
        blocks += saved[i].count;
    }
    sg_state_lock(in);
    bool fits = sg_saved_hold(in, blocks) == 0;
    sg_state_unlock(in);
    return fits;
}

CUresult saved_take(void) {
    struct sg_instance *in = &sg_driver.instance;
    bool ok = true;

    sg_memory_lock();
    for (int i = 0; ok && i < sg_driver.device_count; i++) {
        ok = save(&sg_driver.devices[i], &saved[i]);
    }
    if (!ok || !hold()) {
        drop_all();
        sg_memory_unlock();
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sg_memory_unlock();
    spend_copies();
    sg_memory_lock();
    sg_state_lock(in);
    for (int i = 0; i < sg_driver.device_count; i++) {
        let_go(&sg_driver.devices[i], &saved[i]);
    }
    sg_state_unlock(in);
    sg_memory_unlock();
    return CUDA_SUCCESS;
}

/* ---- back ---- */

static uint32_t place_of(const struct device *device, const uint32_t places[SG_GPUS_MAX]) {
    return places[device->gpu] ? places[device->gpu] - 1 : device->gpu;
}

/* The state lock. */
static CUresult fits(const uint32_t places[SG_GPUS_MAX], uint32_t hidden) {
    struct sg_instance *in = &sg_driver.instance;

    sg_reap(in);
    for (int i = 0; i < sg_driver.device_count; i++) {
        const struct device *device = &sg_driver.devices[i];
        uint32_t gpu = place_of(device, places);
        SG_REQUIRE(!(hidden >> gpu & 1), CUDA_ERROR_INVALID_DEVICE);
        SG_REQUIRE(saved[i].count <= sg_blocks_room(in, gpu), CUDA_ERROR_OUT_OF_MEMORY);
        SG_REQUIRE(!device->contexts || sg_admits_context(in, gpu), CUDA_ERROR_DEVICE_UNAVAILABLE);
    }
    return CUDA_SUCCESS;
}

/* Takes a category's blocks on a GPU, and notes which of the old ones each is; *until is when managed memory has made room
 * for them. The state lock. */
static bool take(uint32_t gpu, struct saved *s, uint32_t category, uint64_t *until) {
    struct sg_instance *in = &sg_driver.instance;
    uint32_t n = pick(s, category), k = 0;

    if (n == 0) {
        return true;
    }
    if (sg_blocks_take(in, gpu, category, n, s->numbers) != 0) {
        return false; /* what would have to give way has no place in host memory */
    }
    *until = in->displaced > *until ? in->displaced : *until;
    for (uint32_t i = 0; i < s->count; i++) {
        if (s->blocks[i].category == category) {
            s->moved[s->blocks[i].number] = s->numbers[k++];
        }
    }
    s->taken |= 1u << category;
    return true;
}

static bool take_all(const struct device *device, uint32_t gpu, struct saved *s, uint64_t *until) {
    struct sg_instance *in = &sg_driver.instance;

    for (uint32_t category = 0; category < SG_CATEGORIES; category++) {
        if (!take(gpu, s, category, until)) {
            return false;
        }
    }
    in->state->clients[in->id].contexts[gpu] = device->contexts;
    return true;
}

/* The state lock. */
static void undo(uint32_t gpu, struct saved *s) {
    struct sg_instance *in = &sg_driver.instance;

    for (uint32_t category = 0; category < SG_CATEGORIES; category++) {
        if (!(s->taken >> category & 1)) {
            continue;
        }
        uint32_t n = pick(s, category);
        for (uint32_t i = 0; i < n; i++) {
            s->numbers[i] = s->moved[s->numbers[i]];
        }
        sg_blocks_return(in, gpu, n, s->numbers);
    }
    s->taken = 0;
    in->state->clients[in->id].contexts[gpu] = 0;
}

/* All or nothing; the state lock. */
static CUresult take_everything(const uint32_t places[SG_GPUS_MAX], uint32_t hidden,
                                uint64_t *until) {
    bool ok = true;

    SG_TRY(fits(places, hidden));
    for (int i = 0; ok && i < sg_driver.device_count; i++) {
        const struct device *device = &sg_driver.devices[i];
        ok = take_all(device, place_of(device, places), &saved[i], until);
    }
    for (int i = 0; !ok && i < sg_driver.device_count; i++) {
        undo(place_of(&sg_driver.devices[i], places), &saved[i]);
    }
    return ok ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void fill(uint32_t gpu, const struct saved *s) {
    const char *from = s->contents;

    for (uint32_t i = 0; i < s->count; i++) {
        if (s->blocks[i].written) {
            void *to = sg_block_host(gpu, s->moved[s->blocks[i].number], true);
            if (to) {
                memcpy(to, from, SG_BLOCK_BYTES);
            }
            from += SG_BLOCK_BYTES;
        }
    }
}

static void renumber(uint32_t gpu, uint32_t n, uint32_t *numbers) {
    const struct device *device = sg_device_of_gpu(gpu);

    for (uint32_t i = 0; device && i < n; i++) {
        numbers[i] = saved[device->ordinal].moved[numbers[i]];
    }
}

static void renumber_all(void) {
    for (int i = 0; i < sg_driver.device_count; i++) {
        struct device *device = &sg_driver.devices[i];
        renumber(device->gpu, device->overhead_count, device->overhead);
        renumber(device->gpu, device->grown_count, device->grown);
    }
    pages_visit(renumber);
    vmm_visit(renumber);
    graph_memory_visit(renumber);
}

/* Devices become the GPUs that their memory is on by now. No lock: that of work comes before that of memory. */
static void move_devices(const uint32_t places[SG_GPUS_MAX]) {
    uint32_t gpus[SG_GPUS_MAX], moved = 0;

    for (uint32_t i = 0; i < SG_GPUS_MAX; i++) {
        gpus[i] = places[i] ? places[i] - 1 : i;
    }
    for (int i = 0; i < sg_driver.device_count; i++) {
        struct device *device = &sg_driver.devices[i];
        if (gpus[device->gpu] != device->gpu) {
            device_move(device, gpus[device->gpu]);
            moved++;
        }
    }
    if (moved) {
        sg_memory_lock();
        pages_move(gpus);
        sg_memory_unlock();
    }
}

CUresult saved_give_back(const uint32_t places[SG_GPUS_MAX]) {
    struct sg_instance *in = &sg_driver.instance;
    uint32_t hidden = sg_hidden(in, sg_driver.machine, in->dir);
    uint64_t until = 0;

    sg_memory_lock();
    sg_state_lock(in);
    CUresult result = take_everything(places, hidden, &until);
    sg_state_unlock(in);
    sg_memory_unlock();
    SG_TRY(result);
    wait_until(until);
    spend_copies();
    sg_memory_lock();
    for (int i = 0; i < sg_driver.device_count; i++) {
        fill(place_of(&sg_driver.devices[i], places), &saved[i]);
    }
    renumber_all();
    drop_all();
    sg_state_lock(in);
    sg_saved_drop(in, in->id);
    sg_state_unlock(in);
    sg_memory_unlock();
    move_devices(places);
    return CUDA_SUCCESS;
}
