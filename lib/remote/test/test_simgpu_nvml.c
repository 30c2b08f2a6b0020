/* Generated queries to the simulated NVML, directly and through client and worker: results and all that is written are
 * equal. */
#include "remote/generated/nvml_decode.h"
#include "remote/test/pair.h"
#include "simgpu/machine/test/setting.h"

#include <string.h>

#define OK(call) CHECK_EQUAL(call, NVML_SUCCESS)

/* Two tell the time of day. The third writes 68 bytes in the simulated driver, where its first version has 52. After the
 * last nothing can be asked. */
static const char *const left_out[] = {"nvmlDeviceGetFieldValues", "nvmlDeviceGetViolationStatus",
                                       "nvmlDeviceGetNvLinkRemotePciInfo", "nvmlShutdown", NULL};

static struct remote_nvml_driver driver;
static struct {
    __typeof__(nvmlInit_v2) *init;
} direct;

/* What the queries are made beside. */
static struct {
    uint64_t handles[REMOTE_KINDS][8];
    unsigned count[REMOTE_KINDS];
} world;

static void add(enum remote_kind kind, uint64_t handle) {
    CHECK(handle);
    world.handles[kind][world.count[kind]++] = handle;
}

#define ADD(type, handle) add(REMOTE_KIND_##type, (uint64_t)(handle))

static void build(const char *name) {
    nvmlDevice_t device;
    nvmlEventSet_t set;
    nvmlGpmSample_t sample;

    (void)name;
    memset(&world, 0, sizeof world);
    for (unsigned i = 0; i < GPU_COUNT; i++) {
        OK(driver.nvmlDeviceGetHandleByIndex_v2(i, &device));
        ADD(nvmlDevice_t, device);
    }
    OK(driver.nvmlEventSetCreate(&set));
    ADD(nvmlEventSet_t, set);
    if (driver.nvmlGpmSampleAlloc(&sample) == NVML_SUCCESS) {
        ADD(nvmlGpmSample_t, sample);
    }
}

static void unbuild(const char *name) {
    if (strcmp(name, "nvmlEventSetFree") != 0) {
        driver.nvmlEventSetFree((nvmlEventSet_t)world.handles[REMOTE_KIND_nvmlEventSet_t][0]);
    }
}

static uint64_t draw_handle(enum remote_kind kind, uint64_t drawn) {
    unsigned count = world.count[kind];

    return count && drawn % 16 ? world.handles[kind][(drawn >> 4) % count] : 0;
}

static uint64_t draw_value(uint64_t drawn) {
    static const unsigned bounds[8] = {1, 1, 6, 6, 6, 64, 300, 300};

    return pair_draw_value(drawn, bounds);
}

static uint64_t shape(enum remote_kind kind, uint64_t handle) {
    for (unsigned i = 0; i < world.count[kind]; i++) {
        if (world.handles[kind][i] == handle) {
            return i + 1;
        }
    }
    return handle ? 100 : 0;
}

static const char *draw_text(uint64_t drawn) {
    static const char *const names[] = {
        "00000000:11:00.0",
        "GPU-a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a0a0",
        "serial-1",
        "0000:81:00.0",
    };

    return drawn % 8 ? names[(drawn >> 3) % 4] : NULL;
}

static bool form(const char *name, void *structure) {
    (void)name;
    (void)structure;
    return false;
}

static const struct exercise_world simulated = {draw_handle, draw_value, draw_value, shape,
                                                draw_text,   form,       "//"};

static void start(void) {
    OK(direct.init());
}

int main(void) {
    const struct pair pair = {nvml_exercises, &simulated, start, build, unbuild, left_out};
    sim_machine machine;

    setting_describe(&machine);
    machine.virtual_clock = 1; /* so that two answers have one time */
    setting_make(&machine);
    pair_load(SIMGPU_FOLDER "libnvidia-ml.so.1");
    remote_nvml_driver_find(&driver, pair_find);
    pair_found(&direct.init, "nvmlInit_v2");
    loopback_start(&cuda_mock, &driver);
    pair_run(&pair, 40, 110);
    return 0;
}
