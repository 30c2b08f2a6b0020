/* Green contexts: their streams are measured with events of the primary context, and nothing is
 * recorded in streams that take nothing. The driver of watch.c judges what our library inserts. */
#include "cuda/test/program.h"

#define KERNEL_NS (2 * (uint64_t)MS)

static CUcontext primary;
static CUfunction kernel;

static CUgreenCtx make_green(void) {
    uint64_t resource[18]; /* 144 bytes */
    CUdevResource *all = (CUdevResource *)(void *)resource;
    CUdevResourceDesc descriptor;
    CUgreenCtx green;
    DO(cuDeviceGetDevResource, 0, all, (CUdevResourceType)1);
    DO(cuDevResourceGenerateDesc, &descriptor, all, 1);
    DO(cuGreenCtxCreate, &green, descriptor, 0, 1);
    return green;
}

static CUstream make_stream(CUgreenCtx green) {
    CUstream stream;
    DO(cuGreenCtxStreamCreate, &stream, green, CU_STREAM_NON_BLOCKING, 0);
    return stream;
}

static void launch(CUstream stream, unsigned count, uint64_t ns) {
    while (count-- > 0) {
        program_launch(kernel, stream, ns);
    }
}

/* What is charged for one launch, once the cost is learned. */
static uint64_t price(CUstream stream) {
    uint64_t charged = 0;
    for (unsigned i = 0; i < 12; i++) {
        charged = busy_bucket(&program, 0).charged;
        launch(stream, 1, KERNEL_NS);
        IN(stream, cuStreamSynchronize, stream);
    }
    return busy_bucket(&program, 0).charged - charged;
}

static void a_green_stream_is_measured(void) {
    CUgreenCtx green = make_green();
    CUstream stream = make_stream(green);
    CHECK(price(stream) > KERNEL_NS / 2);
    IN(stream, cuStreamDestroy_v2, stream);
    DO(cuGreenCtxDestroy, green);
    CHECK_EQUAL(program_wrong(), 0);
}

/* A default stream of one is not recorded in while the other is current. */
static void default_streams_are_kept_apart(void) {
    CUgreenCtx green = make_green();
    CUcontext view;
    DO(cuCtxFromGreenCtx, &view, green);
    for (unsigned i = 0; i < 10; i++) {
        launch(NULL, 20, 10 * US);
        DO(cuCtxSetCurrent, view);
        launch(NULL, 20, 10 * US);
        DO(cuCtxSynchronize, );
        DO(cuCtxSetCurrent, primary);
    }
    DO(cuCtxSynchronize, );
    DO(cuGreenCtxDestroy, green);
    CHECK_EQUAL(program_wrong(), 0);
}

/* A stream whose green context has ended takes no event, and does not wait for ours. */
static void streams_are_detached(void) {
    for (unsigned i = 0; i < 10; i++) {
        CUgreenCtx green = make_green();
        CUstream streams[2] = {make_stream(green), make_stream(green)};
        launch(streams[0], 20, 10 * US);
        launch(streams[1], 20, 10 * US);
        DO(cuGreenCtxDestroy, green);
        launch(NULL, 20, 10 * US);
        DO(cuCtxSynchronize, );
        IN(streams[0], cuStreamDestroy_v2, streams[0]);
        CHECK_EQUAL(program_wrong(), 0);
        CHECK_EQUAL(busy_launch(&program, streams[1], US), CUDA_ERROR_STREAM_DETACHED);
        IN(streams[1], cuStreamDestroy_v2, streams[1]);
    }
}

/* A driver that wants events of the green context itself is asked once for each stream. */
static void a_refusal_is_remembered(void) {
    CUgreenCtx green = make_green();
    CUstream stream = make_stream(green);
    launch(NULL, 20, 10 * US);
    program_refuse(true);
    unsigned before = program_inserted("cuEventRecord");
    launch(stream, 200, 10 * US);
    IN(stream, cuStreamSynchronize, stream);
    CHECK(program_inserted("cuEventRecord") - before <= 2);
    program_refuse(false);
    IN(stream, cuStreamDestroy_v2, stream);
    DO(cuGreenCtxDestroy, green);
}

int main(void) {
    program_make(WATCH);
    DO(cuDevicePrimaryCtxRetain, &primary, 0);
    DO(cuCtxSetCurrent, primary);
    kernel = program_kernel();
    a_green_stream_is_measured();
    default_streams_are_kept_apart();
    streams_are_detached();
    a_refusal_is_remembered();
    DO(cuDevicePrimaryCtxRelease_v2, 0);
    CHECK_EQUAL(program_wrong(), 0);
    CHECK_TRUE_ACCOUNT(&program);
    return 0;
}
