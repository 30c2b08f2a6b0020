#include "remote/test/spy.h"

#include "test/check.h"

#include <string.h>

struct spy seen;
static struct remote_cuda_driver driver;

/* As the driver reads them: all parameters of the kernel, or the whole buffer. */
static void see(CUfunction function, CUstream stream, void **params, void **extra) {
    size_t at, size;

    seen.calls++;
    seen.function = function;
    seen.stream = stream;
    seen.has_params = params != NULL;
    seen.has_extra = extra != NULL;
    seen.size = 0;
    memset(seen.bytes, 0, sizeof seen.bytes);
    if (extra) {
        CHECK(extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER &&
              extra[2] == CU_LAUNCH_PARAM_BUFFER_SIZE);
        CHECK(extra[4] == CU_LAUNCH_PARAM_END);
        seen.size = *(size_t *)extra[3];
        memcpy(seen.bytes, extra[1], seen.size);
    }
    for (size_t i = 0; params && driver.cuFuncGetParamInfo(function, i, &at, &size) == 0; i++) {
        memcpy(seen.bytes + at, params[i], size);
        seen.size = at + size;
    }
}

static CUresult spy_launch(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                           unsigned by, unsigned bz, unsigned shared, CUstream stream,
                           void **params, void **extra) {
    const unsigned shape[7] = {gx, gy, gz, bx, by, bz, shared};

    see(function, stream, params, extra);
    memcpy(seen.shape, shape, sizeof shape);
    return driver.cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
}

static CUresult spy_cooperative(CUfunction function, unsigned gx, unsigned gy, unsigned gz,
                                unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                CUstream stream, void **params) {
    const unsigned shape[7] = {gx, gy, gz, bx, by, bz, shared};

    see(function, stream, params, NULL);
    memcpy(seen.shape, shape, sizeof shape);
    return driver.cuLaunchCooperativeKernel(function, gx, gy, gz, bx, by, bz, shared, stream,
                                            params);
}

static CUresult spy_config(const CUlaunchConfig *config, CUfunction function, void **params,
                           void **extra) {
    see(function, config->hStream, params, extra);
    memcpy(seen.shape, &config->gridDimX, sizeof seen.shape);
    seen.count = config->numAttrs;
    CHECK(seen.count <= REMOTE_MOST_ATTRIBUTES);
    for (unsigned i = 0; i < config->numAttrs; i++) {
        seen.attributes[i] = config->attrs[i];
    }
    return driver.cuLaunchKernelEx(config, function, params, extra);
}

void spy_begin(struct remote_cuda_driver *spied, const struct remote_cuda_driver *on) {
    driver = *on;
    *spied = *on;
    spied->cuLaunchKernel = spy_launch;
    spied->cuLaunchKernelEx = spy_config;
    spied->cuLaunchCooperativeKernel = spy_cooperative;
}
