/* A node's parameters as a record has them: numbers, and none of the program's addresses. */
#include "remote/client/callback.h"
#include "remote/client/copies.h"
#include "remote/client/graphs.h"

#include <stdlib.h>
#include <string.h>

/* What the parameters lead to. */
struct more {
    const void *at;
    uint64_t count;
    size_t size;
};

void node_refuse(struct node_call *n, CUresult result) {
    if (!n->call.fault) {
        n->call.fault = (int32_t)result;
    }
}

void node_handle(struct node_call *n, uint64_t number, enum remote_kind kind) {
    remote_use(&n->call, NODE_CHECK, kind, number);
}

#define HANDLE(n, handle, type) node_handle(n, (uint64_t)(handle), REMOTE_KIND_##type)

static void pack(struct node_call *n, const CUDA_KERNEL_NODE_PARAMS *p, struct more *more) {
    n->packed = malloc(sizeof *n->packed);
    if (!n->packed) {
        node_refuse(n, CUDA_ERROR_OUT_OF_MEMORY);
        return;
    }
    CUresult result =
        remote_pack(p->func ? p->func : (CUfunction)p->kern, p->kernelParams, p->extra, n->packed);
    if (result != CUDA_SUCCESS) {
        node_refuse(n, result);
        return;
    }
    n->call.words[NODE_PASSED] = n->packed->form == REMOTE_POINTERS ? NODE_PASSED_EACH
                                 : n->packed->form == REMOTE_BUFFER ? NODE_PASSED_TOGETHER
                                                                    : NODE_PASSED_NONE;
    *more = (struct more){n->packed->at, n->packed->size, 1};
}

static void form_kernel(struct node_call *n, const CUDA_KERNEL_NODE_PARAMS *p, struct more *more) {
    HANDLE(n, p->func, CUfunction);
    HANDLE(n, p->kern, CUkernel);
    HANDLE(n, p->ctx, CUcontext);
    n->form.kernel.kernelParams = n->form.kernel.extra = NULL;
    if (!n->call.fault && (p->kernelParams || p->extra) && (p->func || p->kern)) {
        pack(n, p, more);
    }
}

/* One side of a copy, if it is memory of the program: a region that both sides share. Anything else could only be copied
 * when the graph runs, of which the client does not hear. */
static void form_host(struct node_call *n, const CUDA_MEMCPY3D *c, bool from, uint64_t address,
                      bool unified) {
    unsigned word = from ? NODE_FROM : NODE_TO;
    const void *at = (const void *)address;
    uint64_t extent;

    if (!at || !node_extent(c, from, &extent)) {
        node_refuse(n, CUDA_ERROR_INVALID_VALUE);
        return;
    }
    extent = extent ? extent : 1;
    struct remote_side side =
        unified ? remote_side_unified(address, extent) : remote_side_host(at, extent);
    if (unified && side.place == REMOTE_PLACE_DEVICE) {
        return;
    }
    if (unified) {
        *(from ? &n->form.memcpy.copyParams.srcDevice : &n->form.memcpy.copyParams.dstDevice) = 0;
    }
    if (side.place != REMOTE_PLACE_REGION) {
        node_refuse(n, CUDA_ERROR_NOT_SUPPORTED);
        return;
    }
    n->call.words[word] = side.value;
    n->call.words[word + 1] = side.offset;
}

static void form_copy(struct node_call *n, const CUDA_MEMCPY3D *c) {
    CUDA_MEMCPY3D *form = &n->form.memcpy.copyParams;

    HANDLE(n, n->form.memcpy.copyCtx, CUcontext);
    form->reserved0 = form->reserved1 = NULL;
    form->srcHost = form->dstHost = NULL;
    if (c->srcMemoryType == CU_MEMORYTYPE_ARRAY) {
        HANDLE(n, c->srcArray, CUarray);
    } else {
        form->srcArray = NULL;
    }
    if (c->dstMemoryType == CU_MEMORYTYPE_ARRAY) {
        HANDLE(n, c->dstArray, CUarray);
    } else {
        form->dstArray = NULL;
    }
    if (c->srcMemoryType == CU_MEMORYTYPE_HOST) {
        form_host(n, c, true, (uint64_t)c->srcHost, false);
    } else if (c->srcMemoryType == CU_MEMORYTYPE_UNIFIED) {
        form_host(n, c, true, c->srcDevice, true);
    }
    if (c->dstMemoryType == CU_MEMORYTYPE_HOST) {
        form_host(n, c, false, (uint64_t)c->dstHost, false);
    } else if (c->dstMemoryType == CU_MEMORYTYPE_UNIFIED) {
        form_host(n, c, false, c->dstDevice, true);
    }
}

static void form_callback(struct node_call *n, const CUDA_HOST_NODE_PARAMS *p) {
    n->form.host = (CUDA_HOST_NODE_PARAMS){0};
    if (p->fn && !n->call.fault) {
        n->function = remote_callback_share(p->fn, p->userData);
        if (!n->function) {
            node_refuse(n, CUDA_ERROR_OUT_OF_MEMORY);
        }
        n->form.host.userData = (void *)n->function;
    }
}

static void form_alloc(struct node_call *n, const CUDA_MEM_ALLOC_NODE_PARAMS *p,
                       struct more *more) {
    n->form.alloc.poolProps.win32SecurityAttributes = NULL;
    n->form.alloc.accessDescs = NULL;
    n->form.alloc.dptr = 0;
    *more = (struct more){p->accessDescs, p->accessDescs ? p->accessDescCount : 0,
                          sizeof *p->accessDescs};
}

static void form_operations(struct node_call *n, const CUDA_BATCH_MEM_OP_NODE_PARAMS *p,
                            struct more *more) {
    HANDLE(n, p->ctx, CUcontext);
    n->form.memOp.paramArray = NULL;
    *more = (struct more){p->paramArray, p->paramArray ? p->count : 0,
                          sizeof(CUstreamBatchMemOpParams)};
}

static void form(struct node_call *n, const CUgraphNodeParams *p, struct more *more) {
    switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        form_kernel(n, &p->kernel, more);
        return;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        form_copy(n, &p->memcpy.copyParams);
        return;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        HANDLE(n, p->memset.ctx, CUcontext);
        return;
    case CU_GRAPH_NODE_TYPE_HOST:
        form_callback(n, &p->host);
        return;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        HANDLE(n, p->graph.graph, CUgraph);
        return;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        n->form.eventRecord.ctx = NULL;
        HANDLE(n, p->eventWait.event, CUevent);
        return;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        form_alloc(n, &p->alloc, more);
        return;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        form_operations(n, &p->memOp, more);
        return;
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return;
    default:
        node_refuse(n, CUDA_ERROR_NOT_SUPPORTED);
    }
}

void node_params(struct node_call *n, const CUgraphNodeParams *p) {
    struct more more = {NULL, 0, 1};

    remote_given(&n->call, NODE_GIVEN_PARAMS, p);
    if (!p) {
        return;
    }
    n->form = *p;
    form(n, p, &more);
    remote_array(&n->call, NODE_GIVEN_PARAMS, &n->form, 1, sizeof n->form);
    if (more.at) {
        n->call.words[NODE_LENGTH] = more.count;
        remote_array(&n->call, NODE_GIVEN_MORE, more.at, more.count, more.size);
    }
}

void node_end(struct node_call *n, bool made) {
    if (n->packed) {
        remote_packed_end(n->packed);
    }
    free(n->packed);
    if (n->function && !made) {
        remote_callback_unused(n->function);
    }
}
