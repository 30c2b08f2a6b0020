/* Records that ask for a node's parameters. What these lead to is answered beside them. */
#include "remote/worker/callback.h"
#include "remote/worker/graphs.h"

#include <string.h>

/* What the driver has told, and what it leads to. */
struct told {
    CUgraphNodeParams form;
    struct node_facts facts;
    const void *more;
    unsigned char packed[NODE_MOST_BYTES + 4];
    uint32_t places[NODE_MOST_PLACES];
};

/* The parameters of a kernel, wherever the driver has them, in one piece. */
static CUresult tell_each(const struct remote_cuda_driver *cuda, struct told *t) {
    static struct node_place places[NODE_MOST_PLACES];
    const CUDA_KERNEL_NODE_PARAMS *kernel = &t->form.kernel;
    size_t count, bytes;

    if (!node_layout(cuda, kernel->func, kernel->kern, places, &count, &bytes)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    for (size_t i = 0; i < count; i++) {
        t->places[i] = places[i].at;
        memcpy(t->packed + places[i].at, kernel->kernelParams[i], places[i].size);
    }
    t->facts.places = count;
    t->facts.length = bytes;
    t->facts.passed = NODE_PASSED_EACH;
    return CUDA_SUCCESS;
}

static CUresult tell_together(struct told *t) {
    const void *bytes = NULL;
    size_t size = 0;

    for (void **entry = t->form.kernel.extra; *entry != CU_LAUNCH_PARAM_END; entry += 2) {
        if (entry[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
            bytes = entry[1];
        } else if (entry[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
            memcpy(&size, entry[1], sizeof size);
        } else {
            return CUDA_ERROR_NOT_SUPPORTED;
        }
    }
    if (size > NODE_MOST_BYTES) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (bytes) {
        memcpy(t->packed, bytes, size);
        t->facts.length = size;
    }
    t->facts.passed = NODE_PASSED_TOGETHER;
    return CUDA_SUCCESS;
}

#define HANDLE(decoder, t, member, type)                                                           \
    remote_out_field(decoder, &(t)->form, offsetof(CUgraphNodeParams, member), REMOTE_KIND_##type)

static CUresult tell_kernel(struct remote_decoder *decoder, struct told *t) {
    CUDA_KERNEL_NODE_PARAMS *kernel = &t->form.kernel;
    CUresult result = CUDA_SUCCESS;

    memset(t->packed, 0, sizeof t->packed);
    t->more = t->packed;
    if (kernel->kernelParams) {
        result = tell_each(decoder->cuda, t);
    } else if (kernel->extra) {
        result = tell_together(t);
    }
    kernel->kernelParams = kernel->extra = NULL;
    HANDLE(decoder, t, kernel.func, CUfunction);
    HANDLE(decoder, t, kernel.kern, CUkernel);
    HANDLE(decoder, t, kernel.ctx, CUcontext);
    return result;
}

/* Only memory that both sides see was taken for a copy, and it has one address in both. */
static CUresult tell_copy(struct remote_decoder *decoder, struct told *t) {
    HANDLE(decoder, t, memcpy.copyCtx, CUcontext);
    HANDLE(decoder, t, memcpy.copyParams.srcArray, CUarray);
    HANDLE(decoder, t, memcpy.copyParams.dstArray, CUarray);
    t->form.memcpy.copyParams.reserved0 = t->form.memcpy.copyParams.reserved1 = NULL;
    return CUDA_SUCCESS;
}

static CUresult tell_list(struct told *t, const void *list, uint64_t count, size_t size) {
    if (count > REMOTE_ARRAY_BYTES / size) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    t->more = list;
    t->facts.length = list ? count * size : 0;
    return CUDA_SUCCESS;
}

static CUresult tell_host(struct told *t) {
    t->facts.function = remote_due_number(t->form.host.fn, t->form.host.userData);
    t->form.host = (CUDA_HOST_NODE_PARAMS){0};
    return t->facts.function ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult tell_alloc(struct told *t) {
    CUDA_MEM_ALLOC_NODE_PARAMS *alloc = &t->form.alloc;
    CUresult result =
        tell_list(t, alloc->accessDescs, alloc->accessDescCount, sizeof *alloc->accessDescs);

    alloc->accessDescs = NULL;
    alloc->poolProps.win32SecurityAttributes = NULL;
    return result;
}

static CUresult tell_operations(struct remote_decoder *decoder, struct told *t) {
    CUDA_BATCH_MEM_OP_NODE_PARAMS *operations = &t->form.memOp;
    CUresult result =
        tell_list(t, operations->paramArray, operations->count, sizeof *operations->paramArray);

    HANDLE(decoder, t, memOp.ctx, CUcontext);
    operations->paramArray = NULL;
    return result;
}

static CUresult tell(struct remote_decoder *decoder, struct told *t) {
    switch (t->form.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return tell_kernel(decoder, t);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return tell_copy(decoder, t);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        HANDLE(decoder, t, memset.ctx, CUcontext);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_HOST:
        return tell_host(t);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        HANDLE(decoder, t, graph.graph, CUgraph);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        t->form.eventRecord.ctx = NULL;
        HANDLE(decoder, t, eventWait.event, CUevent);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return tell_alloc(t);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return tell_operations(decoder, t);
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

typedef CUresult get_params(const struct remote_cuda_driver *cuda, CUgraphNode node,
                            CUgraphNodeParams *form, bool given);

static enum remote_outcome decode(struct remote_decoder *decoder, CUgraphNodeType type,
                                  get_params *get, bool has_function) {
    static struct told t; /* of the one executor */

    if (!remote_words(decoder, NODE_WORDS)) {
        return REMOTE_GARBLED;
    }
    CUgraphNode node = (CUgraphNode)remote_handle(decoder, NODE_NODE, REMOTE_KIND_CUgraphNode);
    if (!remote_taken(decoder, has_function)) {
        return remote_not_called(decoder);
    }
    memset(&t.form, 0, sizeof t.form);
    memset(&t.facts, 0, sizeof t.facts);
    t.more = NULL;
    t.form.type = type;
    bool given = remote_is_given(decoder, NODE_GIVEN_PARAMS);
    CUresult result = get(decoder->cuda, node, &t.form, given);
    if (result == CUDA_SUCCESS && given) {
        result = tell(decoder, &t);
    }
    remote_answer(decoder, (int32_t)result);
    remote_give(decoder, NODE_GIVEN_PARAMS, &t.form, sizeof t.form, false);
    remote_give(decoder, NODE_GIVEN_FACTS, &t.facts, sizeof t.facts, false);
    remote_give(decoder, NODE_GIVEN_MORE, t.more, t.facts.length, false);
    remote_give(decoder, NODE_GIVEN_PLACES, t.places, t.facts.places * sizeof *t.places, false);
    return remote_finish(decoder);
}

#define GET(name, kind, member)                                                                    \
    static CUresult get_##name(const struct remote_cuda_driver *cuda, CUgraphNode node,            \
                               CUgraphNodeParams *form, bool given) {                              \
        return cuda->name(node, given ? &form->member : NULL);                                     \
    }                                                                                              \
    enum remote_outcome remote_hand_##name(struct remote_decoder *decoder) {                       \
        return decode(decoder, CU_GRAPH_NODE_TYPE_##kind, get_##name,                              \
                      decoder->cuda->name != NULL);                                                \
    }

GET(cuGraphKernelNodeGetParams_v2, KERNEL, kernel)
GET(cuGraphMemcpyNodeGetParams, MEMCPY, memcpy.copyParams)
GET(cuGraphHostNodeGetParams, HOST, host)
GET(cuGraphMemAllocNodeGetParams, MEM_ALLOC, alloc)
GET(cuGraphBatchMemOpNodeGetParams, BATCH_MEM_OP, memOp)

static CUresult get_any(const struct remote_cuda_driver *cuda, CUgraphNode node,
                        CUgraphNodeParams *form, bool given) {
    return cuda->cuGraphNodeGetParams(node, given ? form : NULL);
}

enum remote_outcome remote_hand_cuGraphNodeGetParams(struct remote_decoder *decoder) {
    return decode(decoder, CU_GRAPH_NODE_TYPE_EMPTY, get_any,
                  decoder->cuda->cuGraphNodeGetParams != NULL);
}

/* The newer form tells a function from a kernel, where the driver has it. */
static CUresult get_older(const struct remote_cuda_driver *cuda, CUgraphNode node,
                          CUgraphNodeParams *form, bool given) {
    if (given && cuda->cuGraphKernelNodeGetParams_v2) {
        return cuda->cuGraphKernelNodeGetParams_v2(node, &form->kernel);
    }
    return cuda->cuGraphKernelNodeGetParams(
        node, given ? (CUDA_KERNEL_NODE_PARAMS_v1 *)(void *)&form->kernel : NULL);
}

enum remote_outcome remote_hand_cuGraphKernelNodeGetParams(struct remote_decoder *decoder) {
    return decode(decoder, CU_GRAPH_NODE_TYPE_KERNEL, get_older,
                  decoder->cuda->cuGraphKernelNodeGetParams != NULL);
}
