/* What a pointer is: what the client's table knows is answered here, and the rest asked of the worker, of an allocation
 * once. */
#include "abi/cuda/pointers.h"
#include "remote/client/ranges.h"
#include "remote/generated/cuda_stubs.h"

#include <string.h>

/* Buffers of host memory are numbered by the client, beyond all numbers of the driver. */
#define HOST_BUFFERS (UINT64_C(1) << 62)

/* An address that a call asks about. */
struct pointer {
    CUdeviceptr address;
    bool known;
    bool foreign; /* in no range, but perhaps the worker's */
    bool told;
    struct remote_range range;
    uint64_t serial;
    struct remote_pointer_facts facts;
};

enum answer { ANSWERED, NONE, ASK, ASK_EACH_TIME };

static enum answer say(uint64_t *value, uint64_t what) {
    *value = what;
    return ANSWERED;
}

/* What an attribute would be for is not served: docs/design/remote-facts.md. */
static bool is_refused(CUpointer_attribute attribute) {
    return attribute == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE ||
           attribute == CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE ||
           attribute == CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES;
}

/* What is the same for all memory of the program and of devices. */
static enum answer of_any(const struct pointer *p, CUpointer_attribute attribute, uint64_t *value) {
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        return say(value, p->range.context);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: {
        CUdevice device = remote_context_device(p->range.context);
        return say(value, (uint32_t)(device < 0 ? CU_DEVICE_INVALID : device));
    }
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        return say(value, p->address);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return say(value, 0);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        return say(value, p->range.start);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        return say(value, p->range.size);
    case CU_POINTER_ATTRIBUTE_MAPPED:
        return say(value, true);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return say(value, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        return ASK_EACH_TIME;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        return NONE;
    default:
        return is_refused(attribute) ? say(value, 0) : ASK;
    }
}

/* Of memory of the program the worker may know nothing. */
static enum answer of_host(const struct pointer *p, CUpointer_attribute attribute,
                           uint64_t *value) {
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return say(value, CU_MEMORYTYPE_HOST);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        return say(value, (uintptr_t)p->range.host + (p->address - p->range.start));
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return say(value, HOST_BUFFERS + p->serial);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        return say(value, p->range.start);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        return say(value, p->range.size);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        return say(value, false);
    default:
        return of_any(p, attribute, value);
    }
}

static enum answer of_device(const struct pointer *p, CUpointer_attribute attribute,
                             uint64_t *value) {
    bool pool = p->range.kind == REMOTE_RANGE_POOL;

    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return say(value, CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        return NONE;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return pool ? ASK : of_any(p, attribute, value);
    default:
        return of_any(p, attribute, value);
    }
}

/* Whether what is there changes by calls that do not make or end the range. */
static bool changes(const struct pointer *p) {
    return p->range.kind != REMOTE_RANGE_LINEAR && p->range.kind != REMOTE_RANGE_POOL;
}

/* What the client knows by itself. */
static enum answer known(const struct pointer *p, CUpointer_attribute attribute, uint64_t *value) {
    if (!p->known) {
        return p->foreign ? ASK : NONE;
    }
    if (p->range.host) {
        return of_host(p, attribute, value);
    }
    if (changes(p)) {
        return attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS ? NONE : ASK_EACH_TIME;
    }
    return of_device(p, attribute, value);
}

/* A number that the worker has told becomes known. */
static void learn(const struct remote_pointer_facts *facts, CUpointer_attribute attribute,
                  enum remote_kind kind) {
    if (facts->results[attribute] == 0) {
        remote_learn_field(&facts->values[attribute], 0, kind);
    }
}

/* Asks the worker. */
static CUresult ask(struct pointer *p) {
    struct remote_call c;
    struct remote_reply r;

    remote_begin(&c, (enum remote_number)REMOTE_POINTER, 1);
    c.words[0] = p->address;
    remote_given(&c, 0, &p->facts);
    p->told = false;
    if (remote_ask(&c, &r)) {
        remote_get(&c, &r, 0, &p->facts, sizeof p->facts, false);
        p->told = !r.garbled && r.head.result == 0;
    }
    if (p->told) {
        learn(&p->facts, CU_POINTER_ATTRIBUTE_CONTEXT, REMOTE_KIND_CUcontext);
        learn(&p->facts, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, REMOTE_KIND_CUmemoryPool);
        if (p->known && !changes(p)) {
            range_keep(p->address, p->serial, &p->facts);
        }
    }
    return (CUresult)remote_end(&c, &r);
}

static void look(struct pointer *p, CUdeviceptr address) {
    *p = (struct pointer){.address = address};
    p->known = range_look(&p->address, &p->range, &p->serial, &p->facts, &p->told);
    p->foreign = !p->known && remote_range_foreign(address);
}

/* Finds an attribute's value. *has is false where the pointer has none. The result is that of asking. */
static CUresult find(struct pointer *p, CUpointer_attribute attribute, uint64_t *value, bool *has) {
    enum answer answer = known(p, attribute, value);
    CUresult result = CUDA_SUCCESS;

    *has = answer == ANSWERED;
    if (answer == ANSWERED || answer == NONE) {
        return CUDA_SUCCESS;
    }
    if (!p->told || answer == ASK_EACH_TIME) {
        result = ask(p);
    }
    if (p->told && (unsigned)attribute < REMOTE_POINTER_ATTRIBUTES) {
        *value = is_refused(attribute) ? 0 : p->facts.values[attribute];
        *has = p->facts.results[attribute] == 0;
    }
    return result;
}

static bool is_attribute(CUpointer_attribute attribute) {
    return attribute >= CU_POINTER_ATTRIBUTE_CONTEXT &&
           attribute <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE;
}

CUresult REMOTE_STUB(cuPointerGetAttribute)(void *data, CUpointer_attribute attribute,
                                            CUdeviceptr address) {
    struct pointer p;
    uint64_t value = 0;
    bool has;
    CUresult result = (CUresult)remote_gate(REMOTE_NO_CALL);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!data || !is_attribute(attribute)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    look(&p, address);
    result = find(&p, attribute, &value, &has);
    if (has) {
        memcpy(data, &value, cuda_pointer_attribute_bytes(attribute));
    }
    return result == CUDA_SUCCESS && !has ? CUDA_ERROR_INVALID_VALUE : result;
}

/* Unlike cuPointerGetAttribute this answers for any pointer: attributes that do not apply are zero, or an invalid
 * ordinal. */
CUresult REMOTE_STUB(cuPointerGetAttributes)(unsigned int count, CUpointer_attribute *attributes,
                                             void **data, CUdeviceptr address) {
    struct pointer p;
    CUresult result = (CUresult)remote_gate(REMOTE_NO_CALL);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!attributes || !data || !count) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    look(&p, address);
    for (unsigned i = 0; i < count; i++) {
        uint64_t value = 0;
        bool has;

        if (!is_attribute(attributes[i])) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        CUresult asked = find(&p, attributes[i], &value, &has);
        result = result == CUDA_SUCCESS ? asked : result;
        if (!has) {
            value = attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
                        ? (uint32_t)CU_DEVICE_INVALID
                        : 0;
        }
        memcpy(data[i], &value, cuda_pointer_attribute_bytes(attributes[i]));
    }
    return result;
}
