/* A tenant's directory with pages, our library and the test driver in it, made anew for each
   test. */
#ifndef DIVVY_NVML_TEST_SETTING_H
#define DIVVY_NVML_TEST_SETTING_H

#include "nvml/test/driver.h"
#include "share/share.h"
#include "test/check.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)

/* The share of every test: GPUs 2 and 1 of the machine, in this order in the config page. The
 * driver's order is the other way round. */
#define SHARE_GPUS 2u
#define LIMIT_GPU_2 (4 * GIB) /* device 0 of the share, position 1 in NVML */
#define LIMIT_GPU_1 (8 * GIB) /* device 1 of the share, position 0 in NVML */

struct setting {
    char directory[64];
    void *library; /* our libnvidia-ml.so.1 */
    struct fake_driver *driver;
    nvmlDevice_t gpu[FAKE_GPUS + 1]; /* the driver's handles, that of the MIG instance last */
};

/* Makes the directory and pages, and opens the library in it. The directory goes when the test
 * exits, so children of the test leave by _exit. One setting a test: our library cannot be
 * unloaded. */
void setting_make(struct setting *setting);

/* The same without opening the library, and the opening alone. */
void setting_make_pages(struct setting *setting);
void setting_open(struct setting *setting);

/* The function of a name, with its declared type. */
void *setting_function(const struct setting *setting, const char *name);
#define NVML(setting, fn) ((__typeof__(&fn))(uintptr_t)setting_function(setting, #fn))

#endif
