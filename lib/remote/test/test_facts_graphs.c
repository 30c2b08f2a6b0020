/* Memory whose life the client does not see: that of graphs, which have it each time they run, and variables of modules. What
 * the client says of it, and whether it can be freed, is what the simulated driver says. */
#include "remote/test/sequence.h"

#define RELAXED ((CUstreamCaptureMode)2)
#define OK(call) CHECK_EQUAL(sequence_told(#call, sequence_driver.call), CUDA_SUCCESS)
#define NOTE(call) sequence_noted(sequence_told(#call, sequence_driver.call))

static CUstream stream;

/* All attributes, and the range. */
static void ask(CUdeviceptr at) {
    CUdeviceptr base = 0;
    size_t size = 0;

    for (int i = 1; i < 22; i++) {
        uint64_t value = 0;
        CUresult result = sequence_driver.cuPointerGetAttribute(&value, (CUpointer_attribute)i, at);
        if (result == CUDA_SUCCESS) {
            see_attribute((CUpointer_attribute)i, value, at);
        }
        sequence_noted(result);
    }
    CUresult result = sequence_driver.cuMemGetAddressRange_v2(&base, &size, at);
    see(result == CUDA_SUCCESS ? at - base : 0);
    see(size);
    sequence_noted(result);
}

static CUgraphExec capture(CUdeviceptr *at, CUdeviceptr end, bool ends) {
    CUgraphExec exec = NULL;
    CUgraph graph = NULL;

    OK(cuStreamBeginCapture_v2(stream, RELAXED));
    if (at) {
        NOTE(cuMemAllocAsync(at, 3 * MIB, stream));
        ask(*at);
    }
    if (ends) {
        NOTE(cuMemFreeAsync(end ? end : *at, stream));
        ask(end ? end : *at);
    }
    NOTE(cuStreamEndCapture(stream, &graph));
    NOTE(cuGraphInstantiateWithFlags(&exec, graph, 0));
    NOTE(cuGraphDestroy(graph));
    return exec;
}

static void launch(CUgraphExec exec) {
    NOTE(cuGraphLaunch(exec, stream));
    NOTE(cuStreamSynchronize(stream));
}

/* The graph allocates, and the program frees: in order of the stream, or at once; then it runs again. */
static void script_freed(void) {
    CUdeviceptr at = 0;
    CUgraphExec exec = capture(&at, 0, false);

    NOTE(cuMemFree_v2(at));
    launch(exec);
    ask(at + 5);
    NOTE(cuMemFree_v2(at));
    ask(at);
    NOTE(cuMemFree_v2(at));
    launch(exec);
    ask(at);
    NOTE(cuMemFreeAsync(at, stream));
    NOTE(cuStreamSynchronize(stream));
    ask(at);
    launch(exec);
    NOTE(cuMemFree_v2(at));
    NOTE(cuGraphExecDestroy(exec));
    ask(at);
    NOTE(cuMemFree_v2(at));
}

/* It frees what it has allocated. */
static void script_whole(void) {
    CUdeviceptr at = 0, other = 0;
    CUgraphExec exec = capture(&at, 0, true);

    launch(exec);
    ask(at);
    NOTE(cuMemFree_v2(at));
    launch(exec);
    NOTE(cuGraphExecDestroy(exec));
    /* Its addresses are had again by others. */
    for (int i = 0; i < 8; i++) {
        NOTE(cuMemAlloc_v2(&other, 3 * MIB));
        ask(other + 1);
    }
    NOTE(cuMemFree_v2(other));
    ask(other);
    NOTE(cuMemFree_v2(other));
}

/* It frees what the program has allocated. */
static void script_of_program(void) {
    CUdeviceptr at = 0;

    OK(cuMemAlloc_v2(&at, 3 * MIB));
    CUgraphExec exec = capture(NULL, at, true);
    ask(at);
    if (exec) {
        launch(exec);
        ask(at);
        NOTE(cuGraphExecDestroy(exec));
    }
    NOTE(cuMemFree_v2(at));
    ask(at);
}

static void script_variables(void) {
    static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                              ".visible .global .align 8 .u64 table[2];\n"
                              ".visible .entry none() { ret; }\n";
    CUdeviceptr at = 0;
    CUmodule module = NULL;
    size_t size = 0;

    OK(cuModuleLoadData(&module, ptx));
    NOTE(cuModuleGetGlobal_v2(&at, &size, module, "table"));
    see(size);
    ask(at + 8);
    NOTE(cuMemFree_v2(at));
    NOTE(cuMemFreeAsync(at, stream));
    NOTE(cuModuleUnload(module));
    ask(at + 8);
}

static void (*current)(void);

static void with_context(void) {
    OK(cuCtxCreate_v2(&world.contexts[0], 0, 0));
    OK(cuStreamCreate(&stream, 0));
    current();
    OK(cuCtxDestroy_v2(world.contexts[0]));
}

int main(void) {
    void (*const scripts[])(void) = {script_freed, script_whole, script_of_program,
                                     script_variables};

    for (unsigned i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        current = scripts[i];
        /* A posted call that frees what a graph does not have at the moment tells its error late. */
        sequence_compare_script(with_context, DIRECT, APART_STRICT);
    }
    sequence_compare_script(with_context, DIRECT, APART);
    return 0;
}
