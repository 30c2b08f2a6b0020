/* Answers about nodes, captures and attributes that no worker of ours would give: the client writes nothing beyond what the
 * program has room for, lends nothing that is not whole, and calls no function that it was not given. ANSWERS=n says how
 * many. */
#include "abi/generated/cuda_functions.h"
#include "remote/client/callback.h"
#include "remote/client/graphs.h"
#include "remote/test/exercise.h"
#include "remote/test/graphs_driver.h"
#include "remote/worker/hand.h"

#include "test/check.h"

#include <string.h>

static uint64_t state = 11;
static remote_notice *hear;
static unsigned long succeeded;

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state >> 7;
}

/* What of the client these files stand on. */
void remote_notice_register(uint16_t call, remote_notice *notice) {
    CHECK_EQUAL(call, REMOTE_CALLBACK);
    hear = notice;
}

const struct remote_layout *remote_layout_of(CUfunction function, CUresult *result) {
    static const struct remote_param params[] = {{0, 8}, {8, 4}, {16, 8}};
    static struct remote_layout *layout;

    (void)function;
    *result = CUDA_SUCCESS;
    if (!layout) {
        layout = remote_layout_new(params, 3);
        CHECK(layout);
    }
    return layout;
}

static bool ended;
void remote_session_end(const char *why) {
    (void)why;
    ended = true;
}

/* Words of an answer become others; its size, too. */
static void spoil(struct remote_answer *head, unsigned char *body, size_t *size) {
    for (uint64_t i = next() % 4; i > 0 && *size; i--) {
        uint64_t value = next() % 3 ? next() % 8 : next() % 2 ? UINT64_MAX - next() % 64 : next();

        memcpy(body + 8 * (next() % (*size / 8)), &value, sizeof value);
    }
    if (next() % 4 == 0) {
        head->given ^= 1u << next() % 10;
    }
    if (next() % 4 == 0 && *size) {
        *size -= 8 * (next() % (*size / 8 + 1));
    }
    if (next() % 8 == 0) {
        head->result = (int32_t)(next() % 3);
    }
}

/* Reads what was lent, so that a sanitizer sees what is not there. */
static void read_lent(const CUgraphNodeParams *p) {
    static volatile unsigned char sum;
    const unsigned char *bytes = NULL;
    size_t size = 0;

    if (p->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) {
        bytes = (const unsigned char *)p->memOp.paramArray;
        size = p->memOp.count * sizeof *p->memOp.paramArray;
    } else if (p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        bytes = (const unsigned char *)p->alloc.accessDescs;
        size = p->alloc.accessDescCount * sizeof *p->alloc.accessDescs;
    } else if (p->type == CU_GRAPH_NODE_TYPE_KERNEL && p->kernel.extra) {
        bytes = p->kernel.extra[1];
        memcpy(&size, p->kernel.extra[3], sizeof size);
    } else if (p->type == CU_GRAPH_NODE_TYPE_KERNEL && p->kernel.kernelParams) {
        bytes = p->kernel.kernelParams[2];
        size = 8;
    }
    for (size_t i = 0; bytes && i < size; i++) {
        sum = (unsigned char)(sum + bytes[i]);
    }
}

/* What the driver tells: parameters of any kind. */
static void draw_told(void) {
    static CUstreamBatchMemOpParams operations[3];
    static CUmemAccessDesc access[3];
    static uint64_t values[3];
    static void *each[3] = {&values[0], &values[1], &values[2]};
    static size_t size = sizeof values;
    static void *extra[5];
    const void *const list[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, values, CU_LAUNCH_PARAM_BUFFER_SIZE,
                                &size, CU_LAUNCH_PARAM_END};
    CUgraphNodeParams *p = &graphs_told;

    memcpy(extra, list, sizeof list);
    *p = (CUgraphNodeParams){.type = (CUgraphNodeType)(next() % 13)};
    if (p->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) {
        p->memOp.count = (unsigned)(next() % 4);
        p->memOp.paramArray = operations;
    } else if (p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        p->alloc.accessDescCount = next() % 4;
        p->alloc.accessDescs = access;
    } else if (p->type == CU_GRAPH_NODE_TYPE_KERNEL) {
        p->kernel.func = (CUfunction)(uint64_t)0x2001;
        if (next() % 2) {
            p->kernel.kernelParams = each;
        } else {
            p->kernel.extra = extra;
        }
    }
}

static void ask(CUgraphNode node) {
    struct {
        CUgraphNodeParams p;
        uint64_t guard;
    } to = {.guard = 0x5a5a5a5a5a5a5a5a};
    const CUgraphNode *before = NULL;
    CUstreamCaptureStatus status;
    cuuint64_t id;
    CUgraph graph;
    size_t count = 0;

    draw_told();
    CUresult result = cuGraphNodeGetParams(node, &to.p);
    CHECK_EQUAL(to.guard, 0x5a5a5a5a5a5a5a5a);
    succeeded += result == CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) {
        read_lent(&to.p);
    }
    result = cuStreamGetCaptureInfo_v2(0, &status, &id, &graph, &before, &count);
    for (size_t i = 0; result == CUDA_SUCCESS && before && i < count; i++) {
        to.guard ^= (uint64_t)before[i];
    }
}

static unsigned calls;
static void call(void *data) {
    CHECK(data == &calls);
    calls++;
}

/* Notices of any function, of which one was given. */
static void check_notices(void) {
    const struct remote_callback callback = {.plain = call, .data = &calls};
    struct due_notice {
        uint64_t ticket, function;
        uint32_t status, last;
        uint64_t unused;
    } notice = {0};
    const struct remote_answer head = {.call = REMOTE_CALLBACK};
    uint64_t number = remote_callback_keep(&callback);

    for (unsigned i = 0; i < 100000; i++) {
        notice.function = next() % 2 ? next() % 64 : next();
        if (notice.function != number) {
            hear(&head, (const unsigned char *)&notice, sizeof notice);
        }
    }
    CHECK_EQUAL(calls, 0);
    notice.function = number;
    notice.last = 1;
    for (unsigned i = 0; i < 3; i++) {
        hear(&head, (const unsigned char *)&notice, sizeof notice);
    }
    CHECK_EQUAL(calls, 1);
    CHECK(!ended);
    hear(&head, (const unsigned char *)&notice, sizeof notice - 8);
    CHECK(ended);
}

int main(void) {
    const char *answers = getenv("ANSWERS");
    uint64_t count = answers ? strtoull(answers, NULL, 10) : 100000;

    loopback_start(&graphs_driver, &nvml_mock);
    CUgraphNode node = (CUgraphNode)loopback_number(REMOTE_KIND_CUgraphNode, GRAPHS_PARENT_NODE);
    ask(node);
    loopback_spoil = spoil;
    for (uint64_t i = 0; i < count; i++) {
        ask(node);
    }
    printf("%lu of %llu taken for whole\n", succeeded, (unsigned long long)count);
    loopback_spoil = NULL;
    check_notices();
    return 0;
}
