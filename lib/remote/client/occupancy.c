/* How large blocks of a kernel had best be, and how many clusters fit on a GPU. */
#include "remote/occupancy.h"
#include "remote/attribute.h"
#include "remote/client/client.h"
#include "remote/generated/cuda_stubs.h"

#include <string.h>

/* What is asked for. */
struct want {
    CUfunction function;
    CUoccupancyB2DSize
        shared_of; /* how much shared memory a block of so many threads needs, or NULL: */
    size_t shared; /* that much */
    int limit;     /* most threads of a block, 0 for any */
    unsigned flags;
};

/* What the search needs to know of the GPU and of the function. */
struct facts {
    int block_most;
    int warp;
    int multiprocessors;
    int threads_most; /* of a multiprocessor */
};

static CUresult find_facts(CUfunction function, struct facts *facts) {
    CUdevice device = remote_context_device(remote_current());
    const struct {
        CUdevice_attribute id;
        int *to;
    } asked[] = {
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &facts->block_most},
        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, &facts->warp},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &facts->multiprocessors},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, &facts->threads_most},
    };
    int most;

    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        CUresult result = REMOTE_STUB(cuDeviceGetAttribute)(asked[i].to, asked[i].id, device);
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    CUresult result =
        REMOTE_STUB(cuFuncGetAttribute)(&most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function);
    if (result == CUDA_SUCCESS && most > 0 && most < facts->block_most) {
        facts->block_most = most;
    }
    if (facts->warp <= 0) {
        facts->warp = 32;
    }
    return result;
}

/* Tries blocks from the largest down by a warp, and takes the first with which most threads run at once. */
static CUresult search(const struct want *want, const struct facts *facts, int *grid, int *block) {
    int limit = want->limit && want->limit < facts->block_most ? want->limit : facts->block_most;
    int best = 0, best_blocks = 0, best_threads = 0;

    for (int at = (limit + facts->warp - 1) / facts->warp * facts->warp; at > 0;
         at -= facts->warp) {
        int threads = at < limit ? at : limit, blocks = 0;
        CUresult result = REMOTE_STUB(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)(
            &blocks, want->function, threads, want->shared_of(threads), want->flags);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        if (blocks > 0 && blocks <= facts->threads_most && blocks * threads > best) {
            best = blocks * threads;
            best_blocks = blocks;
            best_threads = threads;
        }
        if (best >= facts->threads_most) {
            break;
        }
    }
    if (!best) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *grid = best_blocks * facts->multiprocessors;
    *block = best_threads;
    return CUDA_SUCCESS;
}

/* Without a function of the program the driver searches. */
static CUresult ask(enum remote_number number, const struct want *want, int *grid, int *block) {
    struct remote_call call;
    struct remote_reply reply;

    remote_begin(&call, number, OCCUPANCY_WORDS);
    remote_given(&call, 0, grid);
    remote_given(&call, 1, block);
    remote_use(&call, OCCUPANCY_FUNCTION, REMOTE_KIND_CUfunction, (uint64_t)want->function);
    call.words[OCCUPANCY_SHARED] = want->shared;
    call.words[OCCUPANCY_LIMIT] = (uint32_t)want->limit;
    call.words[OCCUPANCY_FLAGS] = want->flags;
    if (remote_ask(&call, &reply)) {
        remote_get(&call, &reply, 0, grid, sizeof *grid, false);
        remote_get(&call, &reply, 1, block, sizeof *block, false);
    }
    return (CUresult)remote_end(&call, &reply);
}

static CUresult find(enum remote_number number, const struct want *want, int *grid, int *block) {
    struct facts facts;

    if (!want->shared_of) {
        return ask(number, want, grid, block);
    }
    CUresult result = (CUresult)remote_gate(number);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!grid || !block || want->limit < 0 || want->flags > 1) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = remote_current_result();
    if (result == CUDA_SUCCESS) {
        result = find_facts(want->function, &facts);
    }
    return result == CUDA_SUCCESS ? search(want, &facts, grid, block) : result;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction function,
                                          CUoccupancyB2DSize shared_of, size_t shared, int limit) {
    return find(REMOTE_cuOccupancyMaxPotentialBlockSize,
                &(struct want){function, shared_of, shared, limit, 0}, grid, block);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction function,
                                                   CUoccupancyB2DSize shared_of, size_t shared,
                                                   int limit, unsigned int flags) {
    return find(REMOTE_cuOccupancyMaxPotentialBlockSizeWithFlags,
                &(struct want){function, shared_of, shared, limit, flags}, grid, block);
}

static CUresult clusters(enum remote_number number, int *count, CUfunction function,
                         const CUlaunchConfig *config) {
    struct remote_call call;
    struct remote_reply reply;
    CUlaunchConfig sent;

    remote_begin(&call, number, CLUSTER_WORDS);
    remote_given(&call, 0, count);
    remote_use(&call, CLUSTER_FUNCTION, REMOTE_KIND_CUfunction, (uint64_t)function);
    if (config) {
        sent = *config;
        sent.attrs = NULL;
        remote_use(&call, CLUSTER_CHECK, REMOTE_KIND_CUstream, (uint64_t)config->hStream);
        call.words[CLUSTER_COUNT] = config->attrs ? config->numAttrs : 0;
        remote_array(&call, 2, &sent, 1, sizeof sent);
        remote_array(&call, 3, config->attrs, call.words[CLUSTER_COUNT], sizeof *config->attrs);
    }
    for (uint64_t i = 0; config && config->attrs && !call.fault && i < call.words[CLUSTER_COUNT];
         i++) {
        const CUlaunchAttribute *attribute = &config->attrs[i];
        enum launch_value kind = launch_value_of((uint32_t)attribute->id);

        if (kind == LAUNCH_VALUE_REFUSED) {
            call.fault = CUDA_ERROR_NOT_SUPPORTED;
        } else if (kind == LAUNCH_VALUE_EVENT) {
            remote_use(&call, CLUSTER_CHECK, REMOTE_KIND_CUevent,
                       (uint64_t)attribute->value.programmaticEvent.event);
        }
    }
    if (remote_ask(&call, &reply)) {
        remote_get(&call, &reply, 0, count, sizeof *count, false);
    }
    return (CUresult)remote_end(&call, &reply);
}

CUresult cuOccupancyMaxActiveClusters(int *count, CUfunction function,
                                      const CUlaunchConfig *config) {
    return clusters(REMOTE_cuOccupancyMaxActiveClusters, count, function, config);
}

CUresult cuOccupancyMaxPotentialClusterSize(int *size, CUfunction function,
                                            const CUlaunchConfig *config) {
    return clusters(REMOTE_cuOccupancyMaxPotentialClusterSize, size, function, config);
}
