/* Streams, events, code, launches, graphs, and questions that any program asks. */
#include "remote/test/difference.h"

#define draw difference_draw
#define see difference_see

static void make_stream(void) {
    unsigned i = 1 + (unsigned)draw(STREAMS - 1), flags = 77;
    int priority = 77;

    switch (draw(4)) {
    case 0:
        POSTS(cuStreamDestroy_v2, w.streams[i]);
        WAITS(cuStreamCreateWithPriority, &w.streams[i], draw(20) ? CU_STREAM_NON_BLOCKING : 64,
              (int)draw(9) - 6);
        return;
    case 1:
        WAITS(cuStreamGetFlags, w.streams[i], &flags);
        see(flags);
        return;
    case 2:
        WAITS(cuStreamGetPriority, w.streams[i], &priority);
        see((uint64_t)priority);
        return;
    default:
        WAITS(cuStreamSynchronize, w.streams[i]);
        WAITS(cuStreamQuery, w.streams[i]);
    }
}

static void make_event(void) {
    unsigned i = (unsigned)draw(EVENTS);

    POSTS(cuEventDestroy_v2, w.events[i]);
    WAITS(cuEventCreate, &w.events[i], draw(20) ? (unsigned)draw(4) : 0x100u);
}

static void record(void) {
    POSTS(cuEventRecord, difference_event(), difference_stream());
}

static void wait_event(void) {
    CUevent e = difference_event();

    if (draw(2)) {
        POSTS(cuStreamWaitEvent, difference_stream(), e, draw(30) ? 0 : 9);
    } else {
        WAITS(cuEventSynchronize, e);
        WAITS(cuEventQuery, e);
    }
}

static void write_value(void) {
    POSTS(cuStreamWriteValue32, difference_stream(), w.buffers[draw(BUFFERS)].at + draw(40),
          (cuuint32_t)draw(1000), 0);
}

static void launch(void) {
    unsigned i = (unsigned)draw(BUFFERS);
    CUdeviceptr at = w.buffers[i].at;
    uint32_t value = (uint32_t)draw(1u << 30);
    uint64_t words = w.buffers[i].held ? draw(w.buffers[i].size / 4 + 1) : 0;
    void *each[] = {&at, &value, &words};
    struct {
        CUdeviceptr at;
        uint32_t value;
        uint64_t words;
    } packed = {at, value, words};
    size_t bytes = sizeof packed;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    unsigned grid = draw(30) ? 600 : 0, block = draw(30) ? 32 : 2000;

    if (draw(2)) {
        POSTS(cuLaunchKernel, w.fill, grid, 1, 1, block, 1, 1, 0, difference_stream(), each, NULL);
    } else {
        POSTS(cuLaunchKernel, w.fill, grid, 1, 1, block, 1, 1, 0, difference_stream(), NULL, extra);
    }
}

static void ask_code(void) {
    static const char *const names[] = {"divvy_fill", "none", "table", "nothing"};
    CUfunction f = NULL;
    CUdeviceptr at = 0;
    size_t bytes = 0, offset = 0;
    int value = 0;

    switch (draw(4)) {
    case 0:
        WAITS(cuModuleGetFunction, draw(20) ? &f : NULL, w.module, names[draw(4)]);
        see(f != NULL);
        return;
    case 1:
        WAITS(cuModuleGetGlobal_v2, &at, &bytes, w.module, names[draw(4)]);
        see(bytes);
        return;
    case 2:
        WAITS(cuFuncGetParamInfo, w.fill, draw(5), &offset, &bytes);
        see(offset ^ bytes << 8);
        return;
    default:
        WAITS(cuFuncGetAttribute, &value, (CUfunction_attribute)draw(18), w.none);
        see((uint64_t)value);
    }
}

static void ask_device(void) {
    int value = 77;
    char text[64] = "";
    CUdevice device = 77;

    switch (draw(4)) {
    case 0:
        WAITS(cuDeviceGetAttribute, &value, (CUdevice_attribute)(1 + draw(17)), (int)draw(6) - 1);
        see((uint64_t)value);
        return;
    case 1:
        WAITS(cuDeviceGetName, text, 1 + (int)draw(60), (int)draw(6) - 1);
        difference_see_bytes(text, sizeof text);
        return;
    case 2:
        WAITS(cuDeviceGet, &device, (int)draw(7) - 1);
        see((uint64_t)device);
        return;
    default:
        WAITS(cuDeviceCanAccessPeer, &value, (int)draw(5), (int)draw(4));
        see((uint64_t)value);
    }
}

static void ask_context(void) {
    CUcontext ctx = NULL;
    CUdevice device = 77;
    size_t value = 7;
    int least = 7, greatest = 7;

    switch (draw(4)) {
    case 0:
        WAITS(cuCtxGetCurrent, &ctx);
        see(ctx == w.context);
        return;
    case 1:
        WAITS(cuCtxGetDevice, &device);
        see((uint64_t)device);
        return;
    case 2:
        WAITS(cuCtxGetLimit, &value, (CUlimit)draw(12));
        see(value);
        return;
    default:
        WAITS(cuCtxGetStreamPriorityRange, &least, &greatest);
        see((uint64_t)least << 8 ^ (uint64_t)greatest);
    }
}

static void ask_error(void) {
    const char *text = NULL;
    CUresult of = (CUresult)draw(1000);
    CUresult result =
        draw(2) ? WAITS(cuGetErrorName, of, &text) : WAITS(cuGetErrorString, of, &text);

    difference_see_bytes(result ? "" : text, result ? 0 : strlen(text));
}

static void use_graph(void) {
    CUDA_MEMSET_NODE_PARAMS p = {w.kept, 0, (unsigned)draw(256), 1, draw(100), 1};
    CUgraphNode node = NULL;
    size_t count = 77;

    switch (draw(6)) {
    case 0:
        WAITS(cuGraphDestroy, w.graph);
        WAITS(cuGraphCreate, &w.graph, draw(20) ? 0 : 3);
        return;
    case 1:
        WAITS(cuGraphAddMemsetNode, &node, w.graph, NULL, 0, &p, w.context);
        return;
    case 2:
        WAITS(cuGraphGetNodes, w.graph, NULL, &count);
        see(count);
        return;
    case 3:
        POSTS(cuGraphExecDestroy, w.exec);
        WAITS(cuGraphInstantiateWithFlags, &w.exec, w.graph, 0);
        return;
    default:
        POSTS(cuGraphLaunch, w.exec, w.streams[0]);
    }
}

static void use_host(void) {
    unsigned i = (unsigned)draw(BUFFERS);
    size_t n = draw(4096);

    if (draw(2)) {
        w.pinned[draw(4096)] ^= (unsigned char)draw(256);
        POSTS(cuMemcpyHtoDAsync_v2, w.buffers[i].at, w.pinned, n, w.streams[0]);
        WAITS(cuStreamSynchronize, w.streams[0]);
    } else {
        POSTS(cuMemcpyDtoHAsync_v2, w.pinned, w.buffers[i].at, n, w.streams[0]);
        WAITS(cuStreamSynchronize, w.streams[0]);
        difference_see_bytes(w.pinned, 4096);
    }
}

difference_operation *const difference_work[WORK_KINDS] = {
    make_stream, make_event, record,      wait_event, write_value, launch,
    ask_code,    ask_device, ask_context, ask_error,  use_graph,   use_host};
