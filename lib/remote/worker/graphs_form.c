/* A node's parameters, from what a record has for them. */
#include "remote/worker/callback.h"
#include "remote/worker/graphs.h"

#include <stdlib.h>

void node_refuse(struct remote_decoder *decoder, CUresult result) {
    if (!decoder->refused) {
        decoder->refused = true;
        decoder->result = (int32_t)result;
    }
}

#define HANDLE(decoder, form, member, type)                                                        \
    remote_in_field(decoder, form, offsetof(CUgraphNodeParams, member), REMOTE_KIND_##type)

/* Every parameter is within the bytes that came. */
static void take_each(struct remote_decoder *decoder, struct node *node, CUkernel kernel,
                      unsigned char *bytes, uint64_t length) {
    static struct node_place places[NODE_MOST_PLACES];
    size_t count, end;

    if (decoder->refused) {
        return;
    }
    if (!node_layout(decoder->cuda, node->form->kernel.func, kernel, places, &count, &end)) {
        node_refuse(decoder, CUDA_ERROR_NOT_SUPPORTED);
        return;
    }
    node->each = calloc(count + 1, sizeof *node->each);
    if (end > length || !node->each) {
        node_refuse(decoder, node->each ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        node->each[i] = bytes + places[i].at;
    }
    node->form->kernel.kernelParams = node->each;
}

static CUkernel is_kernel(struct remote_decoder *decoder, uint64_t number) {
    uint64_t handle = 0;

    return number && remote_worker_resolve(decoder->worker, REMOTE_KIND_CUkernel, number, &handle)
               ? (CUkernel)handle
               : NULL;
}

static void take_kernel(struct remote_decoder *decoder, struct node *node) {
    CUDA_KERNEL_NODE_PARAMS *kernel = &node->form->kernel;
    uint64_t length = decoder->words[NODE_LENGTH];
    unsigned char *bytes = remote_in(decoder, NODE_GIVEN_MORE, length, 1);
    /* A kernel may be given in place of a function. */
    CUkernel given = is_kernel(decoder, (uint64_t)kernel->func);

    HANDLE(decoder, node->form, kernel.func, CUfunction);
    HANDLE(decoder, node->form, kernel.kern, CUkernel);
    HANDLE(decoder, node->form, kernel.ctx, CUcontext);
    kernel->kernelParams = kernel->extra = NULL;
    if (length > NODE_MOST_BYTES || (length && !bytes) || decoder->garbled) {
        decoder->garbled = true;
        return;
    }
    switch (decoder->words[NODE_PASSED]) {
    case NODE_PASSED_NONE:
        return;
    case NODE_PASSED_EACH:
        take_each(decoder, node, kernel->kern ? kernel->kern : given, bytes, length);
        return;
    case NODE_PASSED_TOGETHER:
        node->bytes = length;
        node->extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
        node->extra[1] = bytes;
        node->extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
        node->extra[3] = &node->bytes;
        node->extra[4] = CU_LAUNCH_PARAM_END;
        kernel->extra = node->extra;
        return;
    default:
        decoder->garbled = true;
    }
}

/* Whether the driver has memory there. An address that only this process has must not be copied to or from. */
static bool is_driver_s(const struct remote_cuda_driver *cuda, CUdeviceptr address) {
    CUmemorytype type = 0;

    return cuda->cuPointerGetAttribute &&
           cuda->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) ==
               CUDA_SUCCESS;
}

/* One side of a copy. `host` and `device` are where the description says where it is. */
static void take_side(struct remote_decoder *decoder, const CUDA_MEMCPY3D *c, bool from,
                      void **host, CUdeviceptr *device) {
    CUmemorytype type = from ? c->srcMemoryType : c->dstMemoryType;
    const uint64_t *words = decoder->words + (from ? NODE_FROM : NODE_TO);
    uint64_t extent, room;
    void *at;

    *host = NULL;
    if (type != CU_MEMORYTYPE_HOST && (type != CU_MEMORYTYPE_UNIFIED || !words[0])) {
        /* The driver itself looks at an address that is said to be of a device. */
        if (type == CU_MEMORYTYPE_UNIFIED && !is_driver_s(decoder->cuda, *device)) {
            node_refuse(decoder, CUDA_ERROR_INVALID_VALUE);
        }
        return;
    }
    if (!node_extent(c, from, &extent) ||
        !remote_region_at(decoder->worker, words[0], words[1], &at, &room) || extent > room) {
        decoder->garbled = true;
        return;
    }
    if (type == CU_MEMORYTYPE_HOST) {
        *host = at;
    } else {
        *device = (CUdeviceptr)at;
    }
}

static void take_copy(struct remote_decoder *decoder, CUgraphNodeParams *form) {
    CUDA_MEMCPY3D *c = &form->memcpy.copyParams;
    void *source;

    HANDLE(decoder, form, memcpy.copyCtx, CUcontext);
    HANDLE(decoder, form, memcpy.copyParams.srcArray, CUarray);
    HANDLE(decoder, form, memcpy.copyParams.dstArray, CUarray);
    c->reserved0 = c->reserved1 = NULL;
    take_side(decoder, c, true, &source, &c->srcDevice);
    c->srcHost = source;
    take_side(decoder, c, false, &c->dstHost, &c->dstDevice);
}

static void take_host(struct remote_decoder *decoder, CUDA_HOST_NODE_PARAMS *host) {
    uint64_t function = (uint64_t)host->userData;

    *host = (CUDA_HOST_NODE_PARAMS){0};
    if (function) {
        host->fn = remote_due_call;
        host->userData = remote_due_kept(decoder->worker, function);
        if (!host->userData) {
            node_refuse(decoder, CUDA_ERROR_OUT_OF_MEMORY);
        }
    }
}

static void take_alloc(struct remote_decoder *decoder, CUDA_MEM_ALLOC_NODE_PARAMS *alloc) {
    uint64_t count = decoder->words[NODE_LENGTH];

    alloc->poolProps.win32SecurityAttributes = NULL;
    alloc->accessDescs = remote_in(decoder, NODE_GIVEN_MORE, count, sizeof *alloc->accessDescs);
    if (alloc->accessDescs) {
        alloc->accessDescCount = count;
    }
}

static void take_operations(struct remote_decoder *decoder, CUgraphNodeParams *form) {
    uint64_t count = decoder->words[NODE_LENGTH];

    HANDLE(decoder, form, memOp.ctx, CUcontext);
    form->memOp.paramArray =
        remote_in(decoder, NODE_GIVEN_MORE, count, sizeof *form->memOp.paramArray);
    if (form->memOp.paramArray && form->memOp.count != count) {
        decoder->garbled = true;
    }
}

void node_take_params(struct remote_decoder *decoder, struct node *node) {
    CUgraphNodeParams *form = node->form;

    switch (form->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        take_kernel(decoder, node);
        return;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        take_copy(decoder, form);
        return;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        HANDLE(decoder, form, memset.ctx, CUcontext);
        return;
    case CU_GRAPH_NODE_TYPE_HOST:
        take_host(decoder, &form->host);
        return;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        HANDLE(decoder, form, graph.graph, CUgraph);
        return;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        form->eventRecord.ctx = NULL;
        HANDLE(decoder, form, eventWait.event, CUevent);
        return;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        take_alloc(decoder, &form->alloc);
        return;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        take_operations(decoder, form);
        return;
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return;
    default:
        node_refuse(decoder, CUDA_ERROR_NOT_SUPPORTED);
    }
}
