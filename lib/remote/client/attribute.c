/* Attributes of kernel nodes and of memory pools. */
#include "remote/attribute.h"
#include "remote/client/client.h"

#include <string.h>

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID id,
                                       CUkernelNodeAttrValue *value) {
    const enum launch_value kind = launch_value_of((uint32_t)id);
    struct remote_call call;
    struct remote_reply reply;

    remote_begin(&call, REMOTE_cuGraphKernelNodeGetAttribute, ATTRIBUTE_WORDS);
    remote_use(&call, ATTRIBUTE_OWNER, REMOTE_KIND_CUgraphNode, (uint64_t)node);
    call.words[ATTRIBUTE_ID] = (uint32_t)id;
    remote_given(&call, 2, value);
    if (!call.fault && kind == LAUNCH_VALUE_REFUSED) {
        call.fault = CUDA_ERROR_NOT_SUPPORTED;
    }
    if (remote_ask(&call, &reply)) {
        remote_get(&call, &reply, 2, value, sizeof *value, false);
        if (value && kind == LAUNCH_VALUE_EVENT && reply.head.result == 0 && !reply.garbled) {
            remote_learn_field(value, 0, REMOTE_KIND_CUevent);
        }
    }
    return (CUresult)remote_end(&call, &reply);
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID id,
                                       const CUkernelNodeAttrValue *value) {
    const enum launch_value kind = launch_value_of((uint32_t)id);
    struct remote_call call;
    struct remote_reply reply;

    remote_begin(&call, REMOTE_cuGraphKernelNodeSetAttribute, ATTRIBUTE_WORDS);
    remote_use(&call, ATTRIBUTE_OWNER, REMOTE_KIND_CUgraphNode, (uint64_t)node);
    call.words[ATTRIBUTE_ID] = (uint32_t)id;
    if (!call.fault && kind == LAUNCH_VALUE_REFUSED) {
        call.fault = CUDA_ERROR_NOT_SUPPORTED;
    }
    if (value && kind == LAUNCH_VALUE_EVENT) {
        remote_use(&call, ATTRIBUTE_CHECK, REMOTE_KIND_CUevent,
                   (uint64_t)value->programmaticEvent.event);
    }
    remote_array(&call, 2, value, 1, sizeof *value);
    remote_ask(&call, &reply);
    return (CUresult)remote_end(&call, &reply);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute id, void *value) {
    struct remote_call call;
    struct remote_reply reply;

    remote_begin(&call, REMOTE_cuMemPoolGetAttribute, ATTRIBUTE_WORDS);
    remote_use(&call, ATTRIBUTE_OWNER, REMOTE_KIND_CUmemoryPool, (uint64_t)pool);
    call.words[ATTRIBUTE_ID] = (uint32_t)id;
    remote_given(&call, 2, value);
    if (remote_ask(&call, &reply)) {
        remote_get(&call, &reply, 2, value, pool_value_bytes((uint32_t)id), false);
    }
    return (CUresult)remote_end(&call, &reply);
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute id, void *value) {
    const size_t size = pool_value_bytes((uint32_t)id);
    struct remote_call call;
    struct remote_reply reply;

    remote_begin(&call, REMOTE_cuMemPoolSetAttribute, ATTRIBUTE_WORDS);
    remote_use(&call, ATTRIBUTE_OWNER, REMOTE_KIND_CUmemoryPool, (uint64_t)pool);
    call.words[ATTRIBUTE_ID] = (uint32_t)id;
    /* How long the value of an attribute is that nobody knows cannot be told. */
    if (!call.fault && value && !size) {
        call.fault = CUDA_ERROR_INVALID_VALUE;
    }
    remote_array(&call, 2, value, 1, size ? size : 1);
    remote_ask(&call, &reply);
    return (CUresult)remote_end(&call, &reply);
}
