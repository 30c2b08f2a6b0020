/* Which GPUs a program sees: the share's, in the program's own choice and order, whatever it
   sets. */
#define _GNU_SOURCE
#include "cuda/test/setting.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The share has the machine's GPUs 2 and 0, in this order; not GPU 1. */
static struct setting s;

static const char gpu_2[] = "GPU-03030303-0303-0303-0303-030303030303";
static const char gpu_0[] = "GPU-01010101-0101-0101-0101-010101010101";

struct seen {
    const char *value; /* CUDA_VISIBLE_DEVICES, NULL to leave it unset */
    int count;         /* 0: cuInit says that there is no device */
    int gpus[2];       /* the machine's numbers, in the order of ordinals */
};

static void check_seen(const struct seen *want) {
    int count = -1;
    CUresult result = CUDA(&s, cuInit)(0);
    CHECK_EQUAL(result, want->count ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE);
    if (want->count == 0) {
        return;
    }
    CHECK_EQUAL(CUDA(&s, cuDeviceGetCount)(&count), CUDA_SUCCESS);
    CHECK_EQUAL(count, want->count);
    for (int i = 0; i < count; i++) {
        CUdevice device;
        CUuuid uuid;
        size_t bytes;
        CHECK_EQUAL(CUDA(&s, cuDeviceGet)(&device, i), CUDA_SUCCESS);
        CHECK_EQUAL(CUDA(&s, cuDeviceGetUuid)(&uuid, device), CUDA_SUCCESS);
        CHECK_EQUAL(uuid.bytes[0], want->gpus[i] + 1);
        CHECK_EQUAL(CUDA(&s, cuDeviceTotalMem_v2)(&bytes, device), CUDA_SUCCESS);
        CHECK_EQUAL(bytes, want->gpus[i] == 2 ? 64 * MIB : 96 * MIB);
    }
    CUdevice none = 4711;
    CHECK_EQUAL(CUDA(&s, cuDeviceGet)(&none, count), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQUAL(CUDA(&s, cuDeviceGet)(&none, -1), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQUAL(none, 4711);
}

static void try_value(void *arg) {
    const struct seen *want = arg;
    if (want->value != NULL) {
        setenv("CUDA_VISIBLE_DEVICES", want->value, 1);
    } else {
        unsetenv("CUDA_VISIBLE_DEVICES");
    }
    setting_open(&s);
    check_seen(want);
    const char *after = getenv("CUDA_VISIBLE_DEVICES");
    CHECK(want->value == NULL ? after == NULL : after != NULL && strcmp(after, want->value) == 0);
}

/* A driver that takes no notice of the variable: devices are matched by UUID all the same. */
static void try_stubborn_driver(void *arg) {
    const struct seen *want = arg;
    CUcontext context;
    CUdevice foreign = 1; /* this driver's number of a GPU outside the share */
    if (want->value != NULL) {
        setenv("CUDA_VISIBLE_DEVICES", want->value, 1);
    }
    setting_open(&s);
    s.driver->ignore_visible = 1;
    check_seen(want);
    CHECK_EQUAL(CUDA(&s, cuCtxCreate_v2)(&context, 0, foreign), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQUAL(CUDA(&s, cuDevicePrimaryCtxRetain)(&context, foreign), CUDA_ERROR_INVALID_DEVICE);
}

/* Without cuInit nothing is known, and the driver says so. */
static void before_init(void *arg) {
    int count;
    CUdevice device;
    CUcontext context;
    CUdeviceptr address;
    (void)arg;
    setting_open(&s);
    CHECK_EQUAL(CUDA(&s, cuDeviceGetCount)(&count), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_EQUAL(CUDA(&s, cuDeviceGet)(&device, 0), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_EQUAL(CUDA(&s, cuCtxCreate_v2)(&context, 0, 0), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, 100), CUDA_ERROR_NOT_INITIALIZED);
}

static void set_more(void) {
    char expected[128];
    snprintf(expected, sizeof expected, "%s,%s", gpu_2, gpu_0);
    CHECK(strcmp(getenv("CUDA_VISIBLE_DEVICES"), expected) == 0);
    setenv("SET_MEANWHILE", "yes", 1); /* makes the C library copy the array */
}

/* What another thread sets while the driver initialises stays; our value does not. */
static void set_during_init(void *arg) {
    (void)arg;
    setenv("CUDA_VISIBLE_DEVICES", "0,1", 1);
    setting_open(&s);
    s.driver->during_init = set_more;
    CHECK_EQUAL(CUDA(&s, cuInit)(0), CUDA_SUCCESS);
    CHECK(strcmp(getenv("CUDA_VISIBLE_DEVICES"), "0,1") == 0);
    CHECK(strcmp(getenv("SET_MEANWHILE"), "yes") == 0);
    CHECK(system("test \"$CUDA_VISIBLE_DEVICES\" = 0,1 && test \"$SET_MEANWHILE\" = yes") == 0);
}

static void die(void) {
    raise(SIGKILL);
}

/* A process that is killed inside cuInit keeps no other from starting. */
static void killed_during_init(void *arg) {
    (void)arg;
    setting_open(&s);
    s.driver->during_init = die;
    CUDA(&s, cuInit)(0);
}

int main(void) {
    static const struct seen cases[] = {
        {NULL, 2, {2, 0}},
        {"0,1", 2, {2, 0}},
        {"1,0", 2, {0, 2}},
        {"1", 1, {0}},
        {" 1 , 0 ", 2, {0, 2}},
        {"", 0, {0}},
        {"-1", 0, {0}},
        {"2", 0, {0}},
        {"0,2,1", 1, {2}},
        {"0,x,1", 1, {2}},
        {"0,0", 0, {0}},
        {"NoDevFiles", 0, {0}},
        {gpu_0, 1, {0}},
        {"GPU-03", 1, {2}},
        {"GPU-0", 0, {0}},                                    /* not the only one */
        {"GPU-02020202-0202-0202-0202-020202020202", 0, {0}}, /* on the machine, not granted */
        {"GPU-01010101,0", 2, {0, 2}},
        {"MIG-02020202-0202-0202-0202-020202020202", 0, {0}},
        {"MIG-GPU-02020202-0202-0202-0202-020202020202/1/0", 0, {0}},
        {"99999999999999999999", 0, {0}},
    };
    uint64_t second = 96 * MIB;
    uint8_t uuid[16];
    setting_make(&s, 2, 64 * MIB, NULL);
    memset(uuid, 3, sizeof uuid);
    setting_uuid(&s, 0, uuid);
    memset(uuid, 1, sizeof uuid);
    setting_uuid(&s, 1, uuid);
    setting_write(&s, 1, offsetof(dv_page_device, limit), &second, sizeof second);
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct seen seen = cases[i];
        fprintf(stderr, "CUDA_VISIBLE_DEVICES=%s\n", seen.value ? seen.value : "(not set)");
        wait_exited(spawn(try_value, &seen));
    }
    struct seen all = {NULL, 2, {2, 0}}, turned = {"1,0", 2, {0, 2}}, other = {"2", 0, {0}};
    wait_exited(spawn(try_stubborn_driver, &all));
    wait_exited(spawn(try_stubborn_driver, &turned));
    wait_exited(spawn(try_value, &other));
    wait_killed(spawn(killed_during_init, NULL));
    wait_exited(spawn(try_value, &all));
    wait_exited(spawn(before_init, NULL));
    wait_exited(spawn(set_during_init, NULL));
    return 0;
}
