/* What a worker answers to REMOTE_SNAPSHOT: facts of devices that never change, each with the driver's result for it. */
#ifndef DIVVY_REMOTE_FACTS_H
#define DIVVY_REMOTE_FACTS_H

#include "abi/generated/cuda_functions.h"
#include "remote/record.h"

/* Attributes below this number are told; a driver that knows more is asked for them one by one. */
#define REMOTE_FACT_ATTRIBUTES 256
/* A program sees no more devices. */
#define REMOTE_FACT_DEVICES 64

struct remote_fact {
    int32_t result;
    int32_t value;
};

struct remote_device_facts {
    uint64_t memory;
    int32_t memory_result;
    int32_t name_result, uuid_result, uuid_v2_result, bus_result, capability_result,
        properties_result, luid_result;
    char name[256]; /* ends with a NUL, as bus does */
    char bus[32];
    CUuuid uuid, uuid_v2;
    int32_t major, minor;
    CUdevprop properties;
    char luid[8];
    uint32_t luid_mask;
    uint32_t zero;
    struct remote_fact attributes[REMOTE_FACT_ATTRIBUTES];
    struct remote_fact peers[REMOTE_FACT_DEVICES]; /* cuDeviceCanAccessPeer */
};

struct remote_facts {
    struct remote_fact count;
    struct remote_fact version;
    struct remote_fact loading; /* cuModuleGetLoadingMode */
};

/* Attributes of pointers below this number. */
#define REMOTE_POINTER_ATTRIBUTES 32

/* What a worker answers to REMOTE_POINTER: the attributes of an address, contexts and pools as their numbers. */
struct remote_pointer_facts {
    uint64_t values[REMOTE_POINTER_ATTRIBUTES];
    int32_t results[REMOTE_POINTER_ATTRIBUTES];
};

/* So many devices at once. */
#define REMOTE_FACT_MOST (REMOTE_ARRAY_BYTES / sizeof(struct remote_device_facts))

_Static_assert(sizeof(struct remote_device_facts) % 8 == 0, "remote_device_facts");

#endif
