/* Stacks of kernels, which grow by a call that does not name their bytes. What does not fit is refused
 * before the driver takes it, and nothing is charged that the driver does not have, but for parts of
 * blocks. */
#define _GNU_SOURCE
#include "cuda/test/code.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS (UINT64_C(10) * 2048) /* of a GPU of sim.c, at once */
#define PROCESSES 8
#define ROUNDS 60

static struct setting s;

static const char flat[] = HEAD ".visible .entry flat() { ret; }\n";
static const char deep[] = HEAD ".visible .entry deep()\n{\n"
                                "  .local .align 16 .b8 depot[9216];\n  ret;\n}\n";
static const char deeper[] = HEAD ".visible .entry deeper()\n{\n"
                                  "  .local .align 16 .b8 depot[40000];\n  ret;\n}\n";
static uint64_t stack_bytes(uint64_t bytes) {
    return (bytes - 1024) * THREADS;
}

static void stacks(CUcontext context) {
    size_t limit;
    CUdeviceptr most;
    uint64_t before = setting_used(&s);
    CHECK_EQUAL(CUDA(&s, cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 65536), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(CUDA(&s, cuCtxGetLimit)(&limit, CU_LIMIT_STACK_SIZE), CUDA_SUCCESS);
    CHECK_EQUAL(limit, 1024);
    CHECK_TRUE_ACCOUNT(&s);
    CHECK_EQUAL(CUDA(&s, cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 8192), CUDA_SUCCESS);
    CHECK(setting_used(&s) >= before + stack_bytes(8192));
    code_check_account(&s, 1);
    /* A second time it is there already. */
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&most, LIMIT - setting_used(&s)), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 8192), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 9000), CUDA_ERROR_OUT_OF_MEMORY);
    code_check_account(&s, 1);
    CHECK_EQUAL(CUDA(&s, cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 512), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(most), CUDA_SUCCESS);
    CHECK_EQUAL(setting_used(&s), before);
    CHECK_TRUE_ACCOUNT(&s);
    /* What the driver refuses gives back what was reserved. */
    CHECK_EQUAL(CUDA(&s, cuCtxSetLimit)((CUlimit)77, 1), CUDA_ERROR_UNSUPPORTED_LIMIT);
    CHECK_EQUAL(CUDA(&s, cuCtxSetLimit)(CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 128), CUDA_SUCCESS);
    CHECK_EQUAL(setting_used(&s), before);
    CHECK_EQUAL(CUDA(&s, cuCtxSetCurrent)(context), CUDA_SUCCESS);
}

/* Each context has stacks of its own, which end with it. */
static void contexts(CUcontext first) {
    CUcontext second, third;
    uint64_t before = setting_used(&s);
    CHECK_EQUAL(CUDA(&s, cuCtxCreate_v2)(&second, 0, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 13000), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxCreate_v2)(&third, 0, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 20000), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(CUDA(&s, cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 10000), CUDA_SUCCESS);
    code_check_account(&s, 2);
    CHECK_EQUAL(CUDA(&s, cuCtxDestroy_v2)(second), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxDestroy_v2)(third), CUDA_SUCCESS);
    CHECK_EQUAL(setting_used(&s), before);
    for (int i = 0; i < 20; i++) {
        CHECK_EQUAL(CUDA(&s, cuDevicePrimaryCtxRetain)(&second, 0), CUDA_SUCCESS);
        CHECK_EQUAL(CUDA(&s, cuCtxSetCurrent)(second), CUDA_SUCCESS);
        CHECK_EQUAL(CUDA(&s, cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 20000), CUDA_SUCCESS);
        code_check_account(&s, 2);
        CHECK_EQUAL((i % 2 ? CUDA(&s, cuDevicePrimaryCtxReset_v2)
                           : CUDA(&s, cuDevicePrimaryCtxRelease_v2))(0),
                    CUDA_SUCCESS);
        CHECK_EQUAL(setting_used(&s), before);
    }
    CHECK_EQUAL(CUDA(&s, cuCtxSetCurrent)(first), CUDA_SUCCESS);
    CHECK_TRUE_ACCOUNT(&s);
}

static CUresult launch(CUfunction f, CUstream stream) {
    return CUDA(&s, cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

/* A launch that needs more stack than there is raises it for good. */
static void kernels(void) {
    CUmodule module;
    CUfunction shallow, f, too_deep;
    uint64_t before = setting_used(&s);
    CHECK_EQUAL(CUDA(&s, cuModuleLoadData)(&module, flat), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuModuleGetFunction)(&shallow, module, "flat"), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuModuleLoadData)(&module, deeper), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuModuleGetFunction)(&too_deep, module, "deeper"), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuModuleLoadData)(&module, deep), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuModuleGetFunction)(&f, module, "deep"), CUDA_SUCCESS);
    CHECK_EQUAL(launch(shallow, NULL), CUDA_SUCCESS);
    CHECK_EQUAL(setting_used(&s), before);
    CHECK_EQUAL(launch(too_deep, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(setting_used(&s), before);
    for (int i = 0; i < 3; i++) {
        CHECK_EQUAL(launch(f, NULL), CUDA_SUCCESS);
        CHECK(setting_used(&s) >= before + stack_bytes(9216));
        code_check_account(&s, 1);
    }
    /* Lowered, and raised by the next launch. */
    CHECK_EQUAL(CUDA(&s, cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 1024), CUDA_SUCCESS);
    CHECK_TRUE_ACCOUNT(&s);
    CHECK_EQUAL(launch(f, NULL), CUDA_SUCCESS);
    code_check_account(&s, 1);
    CHECK_EQUAL(CUDA(&s, cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 1024), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuModuleUnload)(module), CUDA_SUCCESS);
    CHECK_TRUE_ACCOUNT(&s);
}

/* The same of kernels of libraries, in graphs and in captured streams. */
static void graphs(void) {
    CUlibrary library;
    CUkernel kernel;
    CUgraph graph, captured;
    CUgraphNode node;
    CUgraphExec exec;
    CUstream stream;
    CUdeviceptr most;
    uint64_t before = setting_used(&s);
    CHECK_EQUAL(CUDA(&s, cuLibraryLoadData)(&library, deep, NULL, NULL, 0, NULL, NULL, 0),
                CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuLibraryGetKernel)(&kernel, library, "deep"), CUDA_SUCCESS);
    CUDA_KERNEL_NODE_PARAMS params = {.kern = kernel,
                                      .func = (CUfunction)kernel,
                                      .gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 1,
                                      .blockDimY = 1,
                                      .blockDimZ = 1};
    CHECK_EQUAL(CUDA(&s, cuGraphCreate)(&graph, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuGraphAddKernelNode_v2)(&node, graph, NULL, 0, &params), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuGraphInstantiateWithFlags)(&exec, graph, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&most, LIMIT - before), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuGraphLaunch)(exec, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(launch((CUfunction)kernel, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    code_check_account(&s, 0);
    CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(most), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuGraphLaunch)(exec, NULL), CUDA_SUCCESS);
    code_check_account(&s, 1);
    CHECK_EQUAL(CUDA(&s, cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 1024), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
                CUDA_SUCCESS);
    CHECK_EQUAL(launch((CUfunction)kernel, stream), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamEndCapture)(stream, &captured), CUDA_SUCCESS);
    code_check_account(&s, 1 + stack_bytes(9216) / BLOCK);
    CHECK_EQUAL(CUDA(&s, cuGraphInstantiateWithFlags)(&exec, captured, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuGraphLaunch)(exec, stream), CUDA_SUCCESS);
    code_check_account(&s, 1);
    CHECK_EQUAL(CUDA(&s, cuCtxSynchronize)(), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 1024), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuLibraryUnload)(library), CUDA_SUCCESS);
    CHECK_EQUAL(setting_used(&s), before);
}

/* Takes whatever it gets, in contexts that come and go, until it is told to end. */
static void take_all(int ready) {
    static const char *codes[] = {code_huge, code_large, code_small, deep};
    CUcontext context;
    CUmodule module;
    CUfunction f;
    uint64_t state = (uint64_t)getpid();
    setting_open(&s);
    CHECK_EQUAL(CUDA(&s, cuInit)(0), CUDA_SUCCESS);
    for (int i = 0; i < ROUNDS; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        if (CUDA(&s, cuCtxCreate_v2)(&context, 0, 0) != CUDA_SUCCESS) {
            continue;
        }
        for (unsigned k = 0; k < 6; k++) {
            CUDA(&s, cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, (state >> (30 + k) & 15) * 4096);
            const char *code = codes[state >> (40 + k) & 3];
            if (CUDA(&s, cuModuleLoadData)(&module, code) == CUDA_SUCCESS && code == deep &&
                CUDA(&s, cuModuleGetFunction)(&f, module, "deep") == CUDA_SUCCESS) {
                launch(f, NULL);
            }
        }
        if (i % 8 != 7) { /* some stay */
            CHECK_EQUAL(CUDA(&s, cuCtxDestroy_v2)(context), CUDA_SUCCESS);
        }
    }
    CHECK(write(ready, "", 1) == 1);
    pause();
}

static void many_processes(void) {
    pid_t pids[PROCESSES];
    int ready[2], status;
    char byte;
    CHECK(pipe(ready) == 0);
    fflush(stdout);
    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        CHECK(pids[i] >= 0);
        if (pids[i] == 0) {
            close(ready[0]);
            take_all(ready[1]);
            _exit(0);
        }
    }
    close(ready[1]);
    for (int i = 0; i < PROCESSES; i++) {
        CHECK(read(ready[0], &byte, 1) == 1);
    }
    for (int i = 0; i < PROCESSES; i++) {
        kill(pids[i], SIGKILL);
        CHECK(waitpid(pids[i], &status, 0) == pids[i]);
    }
    CHECK(sim_peak(&s, 0) > LIMIT / 2);
    CHECK(sim_peak(&s, 0) <= LIMIT);
    CHECK_EQUAL(sim_used(&s, 0), 0);
}

/* Each GPU has a limit of its own. */
static void another_gpu(CUcontext first) {
    CUcontext second;
    uint64_t before = setting_used(&s);
    CHECK_EQUAL(CUDA(&s, cuCtxCreate_v2)(&second, 0, 1), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 65536), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(CUDA(&s, cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 20000), CUDA_SUCCESS);
    CHECK_EQUAL(setting_used(&s), before);
    CHECK(sim_used(&s, 1) >= stack_bytes(20000));
    CHECK_EQUAL(CUDA(&s, cuCtxSetCurrent)(first), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 20000), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 1024), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxDestroy_v2)(second), CUDA_SUCCESS);
    CHECK(sim_peak(&s, 1) <= LIMIT);
    CHECK_EQUAL(sim_used(&s, 1), 0);
    CHECK_EQUAL(CUDA(&s, cuCtxSetCurrent)(first), CUDA_SUCCESS);
}

/* Threads of one context, of which some raise what others lower. */
static CUfunction of_threads;
static void *change(void *context) {
    uint64_t state = (uint64_t)(uintptr_t)&state;
    CUdeviceptr piece;
    CHECK_EQUAL(CUDA(&s, cuCtxSetCurrent)((CUcontext)context), CUDA_SUCCESS);
    for (int i = 0; i < 400; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        unsigned what = state >> 40 & 7;
        if (what < 4) {
            CUDA(&s, cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 1024 + (state >> 50 & 3) * 9000);
        } else if (what < 6) {
            launch(of_threads, NULL);
        } else if (CUDA(&s, cuMemAlloc_v2)(&piece, (1 + (state >> 50 & 127)) * 2 * MIB) ==
                   CUDA_SUCCESS) {
            CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(piece), CUDA_SUCCESS);
        }
    }
    return NULL;
}

static void threads(CUcontext context) {
    pthread_t all[5];
    CUmodule module;
    CUdeviceptr piece;
    uint64_t before = setting_used(&s);
    CHECK_EQUAL(CUDA(&s, cuModuleLoadData)(&module, deep), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuModuleGetFunction)(&of_threads, module, "deep"), CUDA_SUCCESS);
    for (int i = 0; i < 5; i++) {
        CHECK(pthread_create(&all[i], NULL, change, context) == 0);
    }
    for (int i = 0; i < 5; i++) {
        CHECK(pthread_join(all[i], NULL) == 0);
    }
    /* Of a limit that was set while a kernel was launched nobody knows which came first, so the stack may be charged that
     * is not there any more, until the limit is set again. */
    CHECK(setting_used(&s) >= sim_used(&s, 0));
    CHECK(sim_peak(&s, 0) <= LIMIT);
    CHECK_EQUAL(CUDA(&s, cuCtxSynchronize)(), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 1024), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuModuleUnload)(module), CUDA_SUCCESS);
    /* What the driver showed may have been memory of calls under way. It is asked again before an allocation, some times in
     * a second. */
    for (int i = 0; i < 5000 && setting_used(&s) != before; i++) {
        CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&piece, 1), CUDA_SUCCESS);
        CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(piece), CUDA_SUCCESS);
        usleep(1000);
    }
    CHECK_EQUAL(setting_used(&s), before);
    CHECK_TRUE_ACCOUNT(&s);
}

int main(void) {
    sim_make_closed(&s, 2, LIMIT);
    many_processes();
    setting_open(&s);
    CUcontext context = setting_context(&s);
    dv_reap(s.share);
    CHECK_TRUE_ACCOUNT(&s);
    stacks(context);
    contexts(context);
    kernels();
    graphs();
    another_gpu(context);
    threads(context);
    CHECK(sim_peak(&s, 0) <= LIMIT);
    CHECK_EQUAL(CUDA(&s, cuCtxDestroy_v2)(context), CUDA_SUCCESS);
    CHECK_EQUAL(setting_used(&s), 0);
    CHECK_EQUAL(sim_used(&s, 0), 0);
    return 0;
}
