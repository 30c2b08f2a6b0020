/* What a node tells of itself. Memory that the driver lends with it is lent by the client. */
#include "remote/client/callback.h"
#include "remote/client/graphs.h"

#include <stdlib.h>
#include <string.h>

/* What the worker has told of one node. */
struct told {
    CUgraphNodeParams form;
    struct node_facts facts;
    unsigned char
        *bytes; /* what the parameters lead to, then the places of a kernel's parameters */
    uint32_t *places;
};

static void read_more(struct remote_call *call, struct remote_reply *r, struct told *t) {
    const struct node_facts *facts = &t->facts;

    if (facts->length > REMOTE_ARRAY_BYTES || facts->places > NODE_MOST_PLACES) {
        r->garbled = true;
        return;
    }
    t->bytes = calloc(1, facts->length + 1);
    t->places = calloc(facts->places + 1, sizeof *t->places);
    if (!t->bytes || !t->places) {
        call->fault = CUDA_ERROR_OUT_OF_MEMORY;
        return;
    }
    remote_get(call, r, NODE_GIVEN_MORE, t->bytes, facts->length, false);
    remote_get(call, r, NODE_GIVEN_PLACES, t->places, facts->places * sizeof *t->places, false);
}

/* Asks for the node's parameters, which are whole if this succeeds. */
static CUresult ask(enum remote_number number, CUgraphNode node, const void *to, struct told *t) {
    struct remote_call call;
    struct remote_reply r;

    memset(t, 0, sizeof *t);
    remote_begin(&call, number, NODE_WORDS);
    remote_use(&call, NODE_NODE, REMOTE_KIND_CUgraphNode, (uint64_t)node);
    remote_given(&call, NODE_GIVEN_PARAMS, to);
    remote_given(&call, NODE_GIVEN_FACTS, to);
    remote_given(&call, NODE_GIVEN_MORE, to);
    remote_given(&call, NODE_GIVEN_PLACES, to);
    if (remote_ask(&call, &r)) {
        remote_get(&call, &r, NODE_GIVEN_PARAMS, &t->form, sizeof t->form, false);
        remote_get(&call, &r, NODE_GIVEN_FACTS, &t->facts, sizeof t->facts, false);
        if (to && r.head.result == 0 && !r.garbled) {
            read_more(&call, &r, t);
        }
    }
    return (CUresult)remote_end(&call, &r);
}

static void forget(struct told *t) {
    free(t->bytes);
    free(t->places);
}

/* Whether the parameters are where the kernel has them, so that the program reads nothing beyond what is lent. */
static bool is_laid_out(const struct told *t) {
    const CUDA_KERNEL_NODE_PARAMS *kernel = &t->form.kernel;
    CUresult result;
    const struct remote_layout *layout =
        remote_layout_of(kernel->func ? kernel->func : (CUfunction)kernel->kern, &result);

    if (!layout || layout->count != t->facts.places || layout->bytes > t->facts.length) {
        return false;
    }
    for (uint32_t i = 0; i < layout->count; i++) {
        if (t->places[i] != layout->params[i].at) {
            return false;
        }
    }
    return true;
}

/* Lends a kernel's parameters: their addresses, or the list with which they were passed, before the bytes. */
static CUresult lend_kernel(uint64_t node, const struct told *t, CUDA_KERNEL_NODE_PARAMS *to) {
    const struct node_facts *facts = &t->facts;
    bool each = facts->passed == NODE_PASSED_EACH;
    size_t before = each ? facts->places * sizeof(void *) : 6 * sizeof(void *);
    const uint64_t list[] = {1, before, 2, 5 * sizeof(void *), 0, facts->length};

    to->kernelParams = to->extra = NULL;
    if (facts->passed != NODE_PASSED_EACH && facts->passed != NODE_PASSED_TOGETHER) {
        return CUDA_SUCCESS;
    }
    if (each && !is_laid_out(t)) {
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
    unsigned char *made = calloc(1, before + facts->length + 1);
    if (!made) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (uint64_t i = 0; each && i < facts->places; i++) {
        uint64_t at = before + t->places[i];
        memcpy(made + 8 * i, &at, sizeof at);
    }
    if (!each) {
        memcpy(made, list, sizeof list);
    }
    memcpy(made + before, t->bytes, facts->length);
    void **lent = lend(REMOTE_KIND_CUgraphNode, node, made, before + facts->length,
                       each ? (struct lent_addresses){0, 1, facts->places}
                            : (struct lent_addresses){1, 2, 2});
    free(made);
    *(each ? &to->kernelParams : &to->extra) = lent;
    return lent ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult lend_list(uint64_t node, const struct told *t, size_t size, void **to) {
    *to = NULL;
    if (t->facts.length == 0) {
        return CUDA_SUCCESS;
    }
    if (t->facts.length % size) {
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
    *to = lend(REMOTE_KIND_CUgraphNode, node, t->bytes, t->facts.length,
               (struct lent_addresses){0, 1, 0});
    return *to ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void learn(const void *structure, size_t member, enum remote_kind kind) {
    remote_learn_field(structure, member, kind);
}

#define LEARN(t, member, type)                                                                     \
    learn(&(t)->form, offsetof(CUgraphNodeParams, member), REMOTE_KIND_##type)

/* Turns what the worker has told into what the driver would. */
static CUresult complete(uint64_t node, struct told *t) {
    CUgraphNodeParams *form = &t->form;

    switch (form->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        LEARN(t, kernel.func, CUfunction);
        LEARN(t, kernel.kern, CUkernel);
        LEARN(t, kernel.ctx, CUcontext);
        return lend_kernel(node, t, &form->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        LEARN(t, memcpy.copyCtx, CUcontext);
        LEARN(t, memcpy.copyParams.srcArray, CUarray);
        LEARN(t, memcpy.copyParams.dstArray, CUarray);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        LEARN(t, memset.ctx, CUcontext);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_HOST:
        form->host = (CUDA_HOST_NODE_PARAMS){0};
        remote_callback_find(t->facts.function, &form->host.fn, &form->host.userData);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        LEARN(t, graph.graph, CUgraph);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        LEARN(t, eventWait.event, CUevent);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        form->alloc.accessDescCount = t->facts.length / sizeof(CUmemAccessDesc);
        return lend_list(node, t, sizeof(CUmemAccessDesc), (void **)&form->alloc.accessDescs);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        LEARN(t, memOp.ctx, CUcontext);
        form->memOp.count = (unsigned)(t->facts.length / sizeof(CUstreamBatchMemOpParams));
        return lend_list(node, t, sizeof(CUstreamBatchMemOpParams),
                         (void **)&form->memOp.paramArray);
    default:
        return CUDA_SUCCESS;
    }
}

/* Asks, and gives the program `size` bytes of what is there from `member` on. */
static CUresult get(enum remote_number number, CUgraphNode node, void *to, size_t member,
                    size_t size) {
    struct told t;
    CUresult result = ask(number, node, to, &t);

    if (result == CUDA_SUCCESS && to) {
        result = complete((uint64_t)node, &t);
        if (result == CUDA_SUCCESS) {
            memcpy(to, (const unsigned char *)&t.form + member, size);
        }
    }
    forget(&t);
    return result;
}

#define GET(name, TYPE, member)                                                                    \
    CUresult name(CUgraphNode node, TYPE *to) {                                                    \
        return get(REMOTE_##name, node, to, offsetof(CUgraphNodeParams, member), sizeof *to);      \
    }

GET(cuGraphKernelNodeGetParams_v2, CUDA_KERNEL_NODE_PARAMS, kernel)
GET(cuGraphMemcpyNodeGetParams, CUDA_MEMCPY3D, memcpy.copyParams)
GET(cuGraphHostNodeGetParams, CUDA_HOST_NODE_PARAMS, host)
GET(cuGraphMemAllocNodeGetParams, CUDA_MEM_ALLOC_NODE_PARAMS, alloc)
GET(cuGraphBatchMemOpNodeGetParams, CUDA_BATCH_MEM_OP_NODE_PARAMS, memOp)
GET(cuGraphNodeGetParams, CUgraphNodeParams, type)

/* The older form has one field for both a function and a kernel. */
CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *to) {
    CUDA_KERNEL_NODE_PARAMS wide;
    CUresult result = get(REMOTE_cuGraphKernelNodeGetParams, node, to ? &wide : NULL,
                          offsetof(CUgraphNodeParams, kernel), sizeof wide);

    if (result == CUDA_SUCCESS && to) {
        memcpy(to, &wide, sizeof *to);
        if (wide.kern) {
            to->func = (CUfunction)wide.kern;
        }
    }
    return result;
}
