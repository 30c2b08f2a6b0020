/* Attributes of kernel nodes and of memory pools, and what fits on a GPU in clusters. */
#include "remote/attribute.h"
#include "remote/worker/hand.h"

#include <string.h>

enum remote_outcome remote_hand_cuGraphKernelNodeGetAttribute(struct remote_decoder *decoder) {
    CUkernelNodeAttrValue value;

    if (!remote_words(decoder, ATTRIBUTE_WORDS)) {
        return REMOTE_GARBLED;
    }
    CUgraphNode node =
        (CUgraphNode)remote_handle(decoder, ATTRIBUTE_OWNER, REMOTE_KIND_CUgraphNode);
    uint32_t id = (uint32_t)decoder->words[ATTRIBUTE_ID];
    if (launch_value_of(id) == LAUNCH_VALUE_REFUSED) {
        return REMOTE_GARBLED;
    }
    if (!remote_taken(decoder, decoder->cuda->cuGraphKernelNodeGetAttribute != NULL)) {
        return remote_not_called(decoder);
    }
    memset(&value, 0, sizeof value);
    CUresult result = decoder->cuda->cuGraphKernelNodeGetAttribute(
        node, (CUkernelNodeAttrID)id, remote_is_given(decoder, 2) ? &value : NULL);
    remote_answer(decoder, (int32_t)result);
    if (result == CUDA_SUCCESS && launch_value_of(id) == LAUNCH_VALUE_EVENT) {
        remote_out_field(decoder, &value, 0, REMOTE_KIND_CUevent);
    }
    remote_give(decoder, 2, &value, sizeof value, false);
    return remote_finish(decoder);
}

/* Turns numbers in a launch's attribute into handles. */
static void take_value(struct remote_decoder *decoder, uint32_t id, CUlaunchAttributeValue *value) {
    switch (launch_value_of(id)) {
    case LAUNCH_VALUE_EVENT:
        remote_in_field(decoder, value, 0, REMOTE_KIND_CUevent);
        return;
    case LAUNCH_VALUE_REFUSED:
        decoder->garbled = true;
        return;
    case LAUNCH_VALUE_PLAIN:
        return;
    }
}

enum remote_outcome remote_hand_cuGraphKernelNodeSetAttribute(struct remote_decoder *decoder) {
    if (!remote_words(decoder, ATTRIBUTE_WORDS)) {
        return REMOTE_GARBLED;
    }
    CUgraphNode node =
        (CUgraphNode)remote_handle(decoder, ATTRIBUTE_OWNER, REMOTE_KIND_CUgraphNode);
    uint32_t id = (uint32_t)decoder->words[ATTRIBUTE_ID];
    CUkernelNodeAttrValue *value = remote_in(decoder, 2, 1, sizeof *value);
    if (launch_value_of(id) == LAUNCH_VALUE_REFUSED) {
        return REMOTE_GARBLED;
    }
    if (value) {
        take_value(decoder, id, value);
    }
    if (!remote_taken(decoder, decoder->cuda->cuGraphKernelNodeSetAttribute != NULL)) {
        return remote_not_called(decoder);
    }
    remote_answer(decoder, (int32_t)decoder->cuda->cuGraphKernelNodeSetAttribute(
                               node, (CUkernelNodeAttrID)id, value));
    return remote_finish(decoder);
}

enum remote_outcome remote_hand_cuMemPoolGetAttribute(struct remote_decoder *decoder) {
    uint64_t value[8] = {0};

    if (!remote_words(decoder, ATTRIBUTE_WORDS)) {
        return REMOTE_GARBLED;
    }
    CUmemoryPool pool =
        (CUmemoryPool)remote_handle(decoder, ATTRIBUTE_OWNER, REMOTE_KIND_CUmemoryPool);
    uint32_t id = (uint32_t)decoder->words[ATTRIBUTE_ID];
    if (!remote_taken(decoder, decoder->cuda->cuMemPoolGetAttribute != NULL)) {
        return remote_not_called(decoder);
    }
    CUresult result = decoder->cuda->cuMemPoolGetAttribute(
        pool, (CUmemPool_attribute)id, remote_is_given(decoder, 2) ? value : NULL);
    if (result == CUDA_SUCCESS && !pool_value_bytes(id)) {
        result = CUDA_ERROR_NOT_SUPPORTED;
    }
    remote_answer(decoder, (int32_t)result);
    remote_give(decoder, 2, value, pool_value_bytes(id), false);
    return remote_finish(decoder);
}

enum remote_outcome remote_hand_cuMemPoolSetAttribute(struct remote_decoder *decoder) {
    if (!remote_words(decoder, ATTRIBUTE_WORDS)) {
        return REMOTE_GARBLED;
    }
    CUmemoryPool pool =
        (CUmemoryPool)remote_handle(decoder, ATTRIBUTE_OWNER, REMOTE_KIND_CUmemoryPool);
    uint32_t id = (uint32_t)decoder->words[ATTRIBUTE_ID];
    size_t size = pool_value_bytes(id);
    if (!size && remote_is_given(decoder, 2)) {
        return REMOTE_GARBLED;
    }
    void *value = remote_in(decoder, 2, 1, size ? size : 1);
    if (!remote_taken(decoder, decoder->cuda->cuMemPoolSetAttribute != NULL)) {
        return remote_not_called(decoder);
    }
    remote_answer(decoder, (int32_t)decoder->cuda->cuMemPoolSetAttribute(
                               pool, (CUmemPool_attribute)id, value));
    return remote_finish(decoder);
}

typedef CUresult clusters(int *count, CUfunction function, const CUlaunchConfig *config);

static enum remote_outcome decode_clusters(struct remote_decoder *decoder, clusters *call) {
    int count = 0;

    if (!remote_words(decoder, CLUSTER_WORDS)) {
        return REMOTE_GARBLED;
    }
    CUfunction function =
        (CUfunction)remote_handle(decoder, CLUSTER_FUNCTION, REMOTE_KIND_CUfunction);
    uint64_t attributes = decoder->words[CLUSTER_COUNT];
    CUlaunchConfig *config = remote_in(decoder, 2, 1, sizeof *config);
    CUlaunchAttribute *list = remote_in(decoder, 3, attributes, sizeof *list);
    if (config) {
        remote_in_field(decoder, config, offsetof(CUlaunchConfig, hStream), REMOTE_KIND_CUstream);
        config->attrs = list;
        config->numAttrs = list ? (unsigned)attributes : config->numAttrs;
    }
    for (uint64_t i = 0; list && i < attributes; i++) {
        take_value(decoder, (uint32_t)list[i].id, &list[i].value);
    }
    if (!remote_taken(decoder, call != NULL) || !call) {
        return remote_not_called(decoder);
    }
    remote_answer(decoder,
                  (int32_t)call(remote_is_given(decoder, 0) ? &count : NULL, function, config));
    remote_give(decoder, 0, &count, sizeof count, false);
    return remote_finish(decoder);
}

enum remote_outcome remote_hand_cuOccupancyMaxActiveClusters(struct remote_decoder *decoder) {
    return decode_clusters(decoder, decoder->cuda->cuOccupancyMaxActiveClusters);
}

enum remote_outcome remote_hand_cuOccupancyMaxPotentialClusterSize(struct remote_decoder *decoder) {
    return decode_clusters(decoder, decoder->cuda->cuOccupancyMaxPotentialClusterSize);
}
