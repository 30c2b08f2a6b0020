/*
 * The command `order`: which work waits for which. A kernel runs for a known time in one stream;
 * something is done in another one, and then the first is asked whether it still runs. Somebody who
 * records events into the legacy stream meanwhile makes streams wait that otherwise would not.
 */
#include "probe.h"

#include <stdio.h>

/* The long kernel is given this long. What is done meanwhile takes far less on any machine that is
 * not overloaded, and the answer says how long it took. */
#define LONG_NS 400000000u

static const char kernel_text[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                                  ".visible .entry divvy_busy_ns(.param .u64 ns) {\n"
                                  ".reg .u64 %t<5>; .reg .pred %p;\n"
                                  "ld.param.u64 %t1, [ns]; mov.u64 %t2, %globaltimer;\n"
                                  "again: mov.u64 %t3, %globaltimer; sub.u64 %t4, %t3, %t2;\n"
                                  "setp.lt.u64 %p, %t4, %t1; @%p bra again; ret; }\n";

static CUfunction busy;

static CUresult launch(CUstream stream, uint64_t ns) {
    void *parameters[] = {&ns};
    return cuda.cuLaunchKernel(busy, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

/* What is done while the long kernel runs, and waited for. */
static CUresult one_launch(CUstream stream) {
    CUresult result = launch(stream, 1000);
    return result == CUDA_SUCCESS ? cuda.cuStreamSynchronize(stream) : result;
}

/* So many that whoever measures launches has reason to measure some of these. */
static CUresult many_launches(CUstream stream) {
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < 512 && result == CUDA_SUCCESS; i++) {
        result = launch(stream, 1000);
    }
    return result == CUDA_SUCCESS ? cuda.cuStreamSynchronize(stream) : result;
}

static CUresult one_event(CUstream stream) {
    CUevent event = NULL;
    CUresult result = cuda.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) {
        result = cuda.cuEventRecord(event, stream);
    }
    return result == CUDA_SUCCESS ? cuda.cuEventSynchronize(event) : result;
}

struct question {
    const char *name;
    unsigned flags; /* of the stream in which the long kernel runs */
    int legacy; /* the other work goes to the legacy stream, else to a stream of the same flags */
    CUresult (*work)(CUstream);
};

static CUresult ask(const struct question *question) {
    CUstream first = NULL, second = NULL;
    CUresult result = cuda.cuStreamCreate(&first, question->flags);
    if (result == CUDA_SUCCESS) {
        result = cuda.cuStreamCreate(&second, question->flags);
    }
    if (result == CUDA_SUCCESS) {
        result = launch(first, LONG_NS);
    }
    uint64_t begin = now_ns();
    if (result == CUDA_SUCCESS) {
        result = question->work(question->legacy ? NULL : second);
    }
    CUresult state = cuda.cuStreamQuery(first);
    uint64_t taken = now_ns() - begin;
    if (result == CUDA_SUCCESS) {
        result = cuda.cuStreamSynchronize(first);
    }
    printf(",\"%s\":{\"waited\":%s,\"ms\":%.1f,\"result\":\"%s\"}", question->name,
           state == CUDA_SUCCESS ? "true" : "false", (double)taken / 1e6, result_name(result));
    (void)cuda.cuStreamDestroy_v2(first);
    (void)cuda.cuStreamDestroy_v2(second);
    return result;
}

int command_order(void) {
    static const struct question questions[] = {
        {"other_stream_one_launch", CU_STREAM_DEFAULT, 0, one_launch},
        {"other_stream_many_launches", CU_STREAM_DEFAULT, 0, many_launches},
        {"other_stream_event", CU_STREAM_DEFAULT, 0, one_event},
        {"legacy_after_blocking", CU_STREAM_DEFAULT, 1, one_launch},
        {"legacy_event_after_blocking", CU_STREAM_DEFAULT, 1, one_event},
        {"legacy_after_nonblocking", CU_STREAM_NON_BLOCKING, 1, many_launches},
    };
    CUdevice device;
    CUmodule module;
    if (!open_cuda()) {
        return 3;
    }
    CUresult result = start_cuda(&device);
    if (result == CUDA_SUCCESS) {
        result = cuda.cuModuleLoadData(&module, kernel_text);
    }
    if (result == CUDA_SUCCESS) {
        result = cuda.cuModuleGetFunction(&busy, module, "divvy_busy_ns");
    }
    if (result == CUDA_SUCCESS) {
        result = one_launch(NULL); /* the code is loaded before anything is timed */
    }
    printf("{\"command\":\"order\",\"start\":\"%s\"", result_name(result));
    for (size_t i = 0; i < sizeof questions / sizeof questions[0] && result == CUDA_SUCCESS; i++) {
        result = ask(&questions[i]);
    }
    printf(",\"result\":\"%s\"}\n", result_name(result));
    return result == CUDA_SUCCESS ? 0 : 1;
}
