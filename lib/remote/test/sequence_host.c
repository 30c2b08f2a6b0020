/* Calls about host memory that the device may use. */
#include "remote/test/sequence.h"

#define PAGE 4096u
/* Client and worker in one process have no host memory. */
#undef CALL
#define CALL(name, ...) sequence_told(#name, sequence_driver.name(__VA_ARGS__))

static _Alignas(4096) unsigned char own[4][2 * PAGE];

static CUresult make(void) {
    static const size_t sizes[] = {0, 1, PAGE, 3 * PAGE + 1, SIZE_MAX};
    unsigned place = (unsigned)draw(HOSTS - 4);
    void *at = NULL, **to = draw(10) ? &at : NULL;
    size_t size = sizes[draw(draw(4) ? 4 : 5)];
    CUresult result;

    if (draw(3)) {
        result = CALL(cuMemHostAlloc, to, size, draw(4) ? (unsigned)draw(8) : 8u);
    } else {
        result = CALL(cuMemAllocHost_v2, to, size);
    }
    if (result == CUDA_SUCCESS) {
        /* What had the place is freed, if it has not ended with its context. */
        if (world.host[place] != at) {
            CALL(cuMemFreeHost, world.host[place]);
        }
        world.host[place] = at;
        ((unsigned char *)at)[size - 1] = 7;
    }
    return result;
}

static CUresult list(void) {
    unsigned place = (unsigned)draw(4);
    unsigned char *at = own[place] + draw(2) * 100;
    CUresult result = CALL(cuMemHostRegister_v2, draw(8) ? at : NULL,
                           draw(8) ? PAGE + draw(PAGE) : 0, draw(6) ? (unsigned)draw(2) : 16u);

    if (result == CUDA_SUCCESS) {
        world.host[HOSTS - 4 + place] = at;
    }
    return result;
}

static unsigned char *draw_host(void) {
    unsigned place = (unsigned)draw(HOSTS);

    for (unsigned i = 0; !world.host[place] && i < HOSTS; i++) {
        place = (place + 1) % HOSTS;
    }
    unsigned char *at = world.host[place];
    return at && draw(8) == 0 ? at + draw(5000) : at;
}

static CUresult end(void) {
    unsigned char *at = draw_host();

    bool is_own = at >= own[0] && at < own[0] + sizeof own;

    return is_own == (draw(4) == 0) ? CALL(cuMemFreeHost, at) : CALL(cuMemHostUnregister, at);
}

static CUresult ask(void) {
    unsigned char *at = draw_host();
    CUpointer_attribute attribute = (CUpointer_attribute)draw(23);
    unsigned flags = 99;
    uint64_t value = 0;
    CUdeviceptr device = 0;
    CUresult result;

    switch (draw(4)) {
    case 0:
        result = CALL(cuMemHostGetFlags, draw(8) ? &flags : NULL, at);
        see(flags);
        return result;
    case 1: /* memory that is registered has no address in the worker */
        at = world.host[draw(HOSTS - 4)];
        result = CALL(cuMemHostGetDevicePointer_v2, draw(8) ? &device : NULL, at, draw(8) == 0);
        see(device ? device - (uintptr_t)at : 1);
        return result;
    default:
        result = CALL(cuPointerGetAttribute, &value, attribute, (uintptr_t)at);
        if (result == CUDA_SUCCESS) {
            see_attribute(attribute, value, (uintptr_t)at);
        }
        return result;
    }
}

void host_end(void) {
    for (unsigned i = 0; i < HOSTS; i++) {
        if (world.host[i] && CALL(cuMemFreeHost, world.host[i]) != CUDA_SUCCESS) {
            CALL(cuMemHostUnregister, world.host[i]);
        }
    }
}

operation *const host_operations[HOST_OPERATIONS] = {make, list, end, ask};
