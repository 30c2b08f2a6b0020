/*
 * A tenant's directory with pages, our library and a driver in it, made anew for each test program.
 */
#ifndef DIVVY_CUDA_TEST_SETTING_H
#define DIVVY_CUDA_TEST_SETTING_H

#include "abi/generated/cuda_functions.h"
#include "cuda/test/driver.h"
#include "share/test/tenant.h"
#include "test/check.h"

#define BLOCK ((uint64_t)2 << 20)

struct setting {
    struct tenant tenant;
    void *library;              /* our libcuda.so.1, once opened */
    dv_share *share;            /* for looking at the figures */
    struct fake_driver *driver; /* NULL with another driver */
};

/* Makes the directory with one share of `limit` bytes on each of so many GPUs, numbered as the fake
 * driver's. The context estimate is 2 MiB. driver is a path; NULL takes the fake one. */
void setting_make(struct setting *setting, unsigned gpus, uint64_t limit, const char *driver);

/* Gives device `device` of the share another UUID, before setting_open. */
void setting_uuid(struct setting *setting, unsigned device, const uint8_t uuid[16]);

/* Overwrites bytes of a device's part of the config page. */
void setting_write(struct setting *setting, unsigned device, size_t field, const void *bytes,
                   size_t size);

/* Copies a library of ours into the directory with the directory as its run path. */
void setting_install(const struct setting *setting, const char *from, const char *name);

/* Opens the library as a program does. */
void setting_open(struct setting *setting);

/* The function of a name as a program finds it, with its declared type. */
void *setting_function(const struct setting *setting, const char *name);
#define CUDA(setting, fn) (__extension__(__typeof__(&fn)) setting_function((setting), #fn))

/* The driver's own function of a name. */
void *setting_real(const struct setting *setting, const char *name);

/* Bytes used on the first device, overhead included, and the overhead. */
uint64_t setting_used(const struct setting *setting);
uint64_t setting_overhead(const struct setting *setting);

/* cuInit and a context on the first device. */
CUcontext setting_context(struct setting *setting);

/* Path of a file of the tenant; the next call overwrites it. */
const char *setting_path(const struct setting *setting, const char *file);

#endif
