#include "remote/test/script.h"

#include "test/check.h"

#include <string.h>

static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                          ".visible .entry divvy_busy_ns(.param .u64 a) { ret; }\n"
                          ".visible .entry divvy_fill(.param .u64 a, .param .u32 b, .param .u64 c) "
                          "{ ret; }\n";

uint64_t script_draw(struct script *s, uint64_t below) {
    s->state ^= s->state << 13;
    s->state ^= s->state >> 7;
    s->state ^= s->state << 17;
    return (s->state >> 11) % below;
}

void script_call(void *script) {
    __atomic_add_fetch(&((struct script *)script)->calls, 1, __ATOMIC_RELAXED);
}

void script_begin(struct script *s, uint64_t seed, FILE *out) {
    CUmodule module;
    CUlibrary library;

    memset(s, 0, sizeof *s);
    s->state = seed * 2654435761u + 88172645463325252u;
    s->out = out;
    s->has_functions = script_draw(s, 2);
    OK(cu.cuCtxCreate_v2(&s->context, 0, 0));
    for (unsigned i = 0; i < SCRIPT_STREAMS; i++) {
        OK(cu.cuStreamCreate(&s->streams[i], 1));
    }
    for (unsigned i = 0; i < 2; i++) {
        OK(cu.cuEventCreate(&s->events[i], 0));
        OK(cu.cuMemAlloc_v2(&s->memory[i], SCRIPT_BYTES));
        OK(cu.cuMemsetD8_v2(s->memory[i], (unsigned char)i, SCRIPT_BYTES));
    }
    OK(cu.cuMemHostAlloc((void **)&s->host, SCRIPT_BYTES, 0));
    memset(s->host, 7, SCRIPT_BYTES);
    OK(cu.cuModuleLoadData(&module, ptx));
    OK(cu.cuModuleGetFunction(&s->function, module, "divvy_fill"));
    OK(cu.cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    OK(cu.cuLibraryGetKernel(&s->kernel, library, "divvy_fill"));
}

unsigned script_node(const struct script *s, unsigned graph, CUgraphNode node) {
    for (unsigned i = s->of[graph].count; node && i > 0; i--) {
        if (s->of[graph].nodes[i - 1] == node) {
            return i;
        }
    }
    return node ? 99 : 0;
}

const char *script_place(const struct script *s, uint64_t address) {
    static char texts[4][32];
    static unsigned next;
    char *text = texts[next++ % 4];
    const uint64_t known[] = {s->memory[0], s->memory[1], (uint64_t)s->host};

    for (unsigned i = 0; i < 3; i++) {
        if (address >= known[i] && address < known[i] + SCRIPT_BYTES) {
            snprintf(text, sizeof texts[0], "%u+%llu", i, (unsigned long long)(address - known[i]));
            return text;
        }
    }
    return address ? "else" : "none";
}

static void say_nodes(struct script *s, unsigned graph) {
    CUgraphNode from[128], to[128];
    size_t count = 128;

    int result = cu.cuGraphGetNodes(s->graphs[graph], from, &count);
    fprintf(s->out, "nodes %d %zu:", result, count);
    for (size_t i = 0; result == 0 && i < count; i++) {
        fprintf(s->out, " %u", script_node(s, graph, from[i]));
    }
    count = 128;
    result = cu.cuGraphGetEdges(s->graphs[graph], from, to, &count);
    fprintf(s->out, " edges %d %zu:", result, count);
    for (size_t i = 0; result == 0 && i < count; i++) {
        fprintf(s->out, " %u-%u", script_node(s, graph, from[i]), script_node(s, graph, to[i]));
    }
    fprintf(s->out, "\n");
}

/* The nodes that a graph has now, in the driver's order: after a copy or a capture. */
static void learn_nodes(struct script *s, unsigned graph) {
    size_t count = SCRIPT_NODES;

    s->of[graph].count = 0;
    if (cu.cuGraphGetNodes(s->graphs[graph], s->of[graph].nodes, &count) == CUDA_SUCCESS) {
        s->of[graph].count = (unsigned)count;
    }
    for (unsigned i = 0; i < s->of[graph].count; i++) {
        OK(cu.cuGraphNodeGetType(s->of[graph].nodes[i], &s->of[graph].types[i]));
    }
}

static void make_graph(struct script *s, unsigned graph) {
    unsigned other = (unsigned)script_draw(s, SCRIPT_GRAPHS);

    if (s->graphs[graph]) {
        int result = cu.cuGraphDestroy(s->graphs[graph]);
        fprintf(s->out, "destroy %d\n", result);
        s->graphs[graph] = NULL;
    } else if (s->graphs[other] && script_draw(s, 2)) {
        int result = cu.cuGraphClone(&s->graphs[graph], s->graphs[other]);
        fprintf(s->out, "clone %d\n", result);
        learn_nodes(s, graph);
    } else if (script_draw(s, 2)) {
        script_capture(s, graph);
        if (s->graphs[graph]) {
            learn_nodes(s, graph);
        }
    } else {
        int result = cu.cuGraphCreate(&s->graphs[graph], 0);
        fprintf(s->out, "create %d\n", result);
        s->of[graph].count = 0;
    }
}

static void use_exec(struct script *s, unsigned exec, unsigned graph) {
    CUstream stream = s->streams[script_draw(s, SCRIPT_STREAMS)];
    CUgraphExecUpdateResultInfo info;
    unsigned of = s->exec_of[exec];
    int result;

    if (!s->execs[exec]) {
        if (s->graphs[graph]) {
            result = cu.cuGraphInstantiateWithFlags(&s->execs[exec], s->graphs[graph], 0);
            fprintf(s->out, "instantiate %d\n", result);
            s->exec_of[exec] = graph;
        }
        return;
    }
    switch (script_draw(s, 8)) {
    case 0:
        result = cu.cuGraphExecDestroy(s->execs[exec]);
        fprintf(s->out, "exec destroy %d\n", result);
        s->execs[exec] = NULL;
        return;
    case 1:
        if (s->graphs[graph]) {
            memset(&info, 0, sizeof info);
            result = cu.cuGraphExecUpdate_v2(s->execs[exec], s->graphs[graph], &info);
            fprintf(s->out, "update %d %d\n", result, info.result);
        }
        return;
    case 2:
        if (s->graphs[of] && s->of[of].count) {
            script_change(s, of, (unsigned)script_draw(s, s->of[of].count), s->execs[exec]);
        }
        return;
    default:
        result = cu.cuGraphLaunch(s->execs[exec], stream);
        fprintf(s->out, "launch %d sync %d\n", result, cu.cuStreamSynchronize(stream));
    }
}

static void change_graph(struct script *s, unsigned graph) {
    unsigned count = s->of[graph].count;
    int result;

    if (count < 2) {
        return;
    }
    unsigned one = (unsigned)script_draw(s, count - 1);
    unsigned other = one + 1 + (unsigned)script_draw(s, count - 1 - one);
    CUgraphNode *nodes = s->of[graph].nodes;
    switch (script_draw(s, 4)) {
    case 0:
        result = cu.cuGraphAddDependencies(s->graphs[graph], &nodes[one], &nodes[other], 1);
        fprintf(s->out, "depend %d\n", result);
        return;
    case 1:
        result = cu.cuGraphRemoveDependencies(s->graphs[graph], &nodes[one], &nodes[other], 1);
        fprintf(s->out, "part %d\n", result);
        return;
    case 2:
        result = cu.cuGraphDestroyNode(nodes[other]);
        fprintf(s->out, "destroy node %d\n", result);
        if (result == CUDA_SUCCESS) {
            memmove(&nodes[other], &nodes[other + 1], (count - other - 1) * sizeof *nodes);
            memmove(&s->of[graph].types[other], &s->of[graph].types[other + 1],
                    (count - other - 1) * sizeof s->of[graph].types[0]);
            s->of[graph].count--;
        }
        return;
    default:
        script_change(s, graph, one, NULL);
    }
}

void script_step(struct script *s) {
    unsigned graph = (unsigned)script_draw(s, SCRIPT_GRAPHS);

    if (!s->graphs[graph] || script_draw(s, 16) == 0) {
        make_graph(s, graph);
        return;
    }
    switch (script_draw(s, 8)) {
    case 0:
    case 1:
        use_exec(s, (unsigned)script_draw(s, SCRIPT_EXECS), graph);
        return;
    case 2:
        say_nodes(s, graph);
        return;
    case 3:
        change_graph(s, graph);
        return;
    case 4:
    case 5:
        if (s->of[graph].count) {
            script_tell(s, graph, (unsigned)script_draw(s, s->of[graph].count));
        }
        return;
    default:
        if (s->of[graph].count < SCRIPT_NODES) {
            script_add(s, graph);
        }
    }
}

/* What is in memory at the end, and how often functions were called. */
void script_end(struct script *s) {
    static unsigned char bytes[SCRIPT_BYTES];
    uint64_t digest = 0;

    for (unsigned i = 0; i < SCRIPT_STREAMS; i++) {
        OK(cu.cuStreamSynchronize(s->streams[i]));
    }
    for (unsigned i = 0; i < 3; i++) {
        if (i < 2) {
            OK(cu.cuMemcpyDtoH_v2(bytes, s->memory[i], SCRIPT_BYTES));
        } else {
            memcpy(bytes, s->host, SCRIPT_BYTES);
        }
        for (unsigned k = 0; k < SCRIPT_BYTES; k++) {
            digest = digest * 1099511628211u + bytes[k];
        }
    }
    fprintf(s->out, "memory: %llx\n", s->has_functions ? 0 : (unsigned long long)digest);
    fprintf(s->out, "functions called: %u\n", s->calls);
    for (unsigned i = 0; i < SCRIPT_EXECS; i++) {
        if (s->execs[i]) {
            OK(cu.cuGraphExecDestroy(s->execs[i]));
        }
    }
    for (unsigned i = 0; i < SCRIPT_GRAPHS; i++) {
        if (s->graphs[i]) {
            OK(cu.cuGraphDestroy(s->graphs[i]));
        }
    }
    OK(cu.cuCtxDestroy_v2(s->context));
}
