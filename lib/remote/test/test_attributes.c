/* Attributes of pools and kernel nodes, and how large blocks had best be: directly and through client and worker. */
#include "remote/test/whole.h"

#include "test/check.h"

#include <string.h>

#define MOST 4096u

struct seen {
    unsigned count;
    uint64_t values[MOST];
};

static struct seen *seen;
static unsigned asked;

static void see(uint64_t value) {
    CHECK(seen->count < MOST);
    seen->values[seen->count++] = value;
}

static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                          ".visible .entry none() { ret; }\n";

/* Each attribute that there is and some that there are not, read into memory that is seen whole. */
static void pools(void) {
    CUmemPoolProps property = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemoryPool pool;
    CUdeviceptr memory;

    OK(cu.cuMemPoolCreate(&pool, &property));
    OK(cu.cuMemAllocAsync(&memory, 1000, 0));
    for (unsigned id = 0; id < 9; id++) {
        for (uint64_t value = 0; value < 3; value++) {
            uint64_t set = value * 65536, got[2] = {0x1111111111111111, 0x2222222222222222};

            see(cu.cuMemPoolSetAttribute(pool, (CUmemPool_attribute)id, id && value ? &set : NULL));
            see(cu.cuMemPoolGetAttribute(pool, (CUmemPool_attribute)id, got));
            see(got[0]);
            see(got[1]);
        }
        see(cu.cuMemPoolGetAttribute(pool, (CUmemPool_attribute)id, NULL));
    }
    OK(cu.cuMemFreeAsync(memory, 0));
    OK(cu.cuMemPoolDestroy(pool));
    CHECK(cu.cuMemPoolGetAttribute((CUmemoryPool)(uint64_t)0, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                                   &memory) != CUDA_SUCCESS);
}

static size_t shared_of(int threads) {
    asked++;
    CHECK(threads > 0 && threads <= 1024);
    return (size_t)threads * 40;
}

static size_t much(int threads) {
    return threads > 256 ? 1u << 30 : 1024;
}

static void occupancy(CUfunction function) {
    static const CUoccupancyB2DSize functions[] = {NULL, shared_of, much};
    static const int limits[] = {0, 32, 64, 256, 992, 1024, 4096, -1};

    for (unsigned f = 0; f < 3; f++) {
        for (unsigned i = 0; i < sizeof limits / sizeof *limits; i++) {
            int grid = -5, block = -6;

            see(cu.cuOccupancyMaxPotentialBlockSize(&grid, &block, function, functions[f], 512,
                                                    limits[i]));
            see((uint64_t)grid);
            see((uint64_t)block);
            for (unsigned flags = 0; flags < 3; flags++) {
                see(cu.cuOccupancyMaxPotentialBlockSizeWithFlags(
                    &grid, &block, function, functions[f], 100, limits[i], flags));
                see((uint64_t)grid);
                see((uint64_t)block);
            }
            see(cu.cuOccupancyMaxPotentialBlockSize(NULL, &block, function, functions[f], 0, 0));
        }
    }
    CHECK(asked > 0);
}

static void clusters(CUfunction function) {
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                   .value = {.clusterDim = {2, 1, 1}}};
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 32,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .attrs = &attribute,
                             .numAttrs = 1};
    int count = -7;

    see(cu.cuOccupancyMaxActiveClusters(&count, function, &config));
    see((uint64_t)count);
    see(cu.cuOccupancyMaxPotentialClusterSize(&count, function, &config));
    see((uint64_t)count);
}

static void play(void *to) {
    CUcontext context;
    CUmodule module;
    CUfunction function;

    seen = to;
    OK(cu.cuInit(0));
    OK(cu.cuCtxCreate_v2(&context, 0, 0));
    OK(cu.cuModuleLoadData(&module, ptx));
    OK(cu.cuModuleGetFunction(&function, module, "none"));
    pools();
    occupancy(function);
    clusters(function);
    OK(cu.cuModuleUnload(module));
    OK(cu.cuCtxDestroy_v2(context));
}

int main(void) {
    struct seen *both = whole_share(2 * sizeof *both);

    whole_start();
    CHECK_EQUAL(whole_run(false, play, &both[0]), 0);
    CHECK_EQUAL(whole_run(true, play, &both[1]), 0);
    CHECK_EQUAL(both[0].count, both[1].count);
    for (unsigned i = 0; i < both[0].count; i++) {
        if (both[0].values[i] != both[1].values[i]) {
            fprintf(stderr, "value %u of %u\n", i, both[0].count);
        }
        CHECK_EQUAL(both[1].values[i], both[0].values[i]);
    }
    printf("%u values are the same\n", both[0].count);
    return 0;
}
