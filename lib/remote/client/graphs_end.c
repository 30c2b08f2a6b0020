/* A graph ends, and with it the numbers of its nodes, which the worker tells. */
#include "remote/client/client.h"
#include "remote/node.h"

#include <stdlib.h>

/* Forgets what has ended besides the graph. */
static void forget(const struct remote_call *call, struct remote_reply *reply,
                   const struct node_ended *ended) {
    const uint64_t most = REMOTE_ARRAY_BYTES / sizeof(uint64_t);

    if (ended->nodes > most || ended->graphs > most - ended->nodes) {
        reply->garbled = true;
        return;
    }
    uint64_t count = ended->nodes + ended->graphs;
    uint64_t *numbers = malloc((count + 1) * sizeof *numbers);
    if (!numbers) {
        reply->at = reply->size; /* they stay known, which does no harm */
        return;
    }
    remote_get(call, reply, 1, numbers, count * sizeof *numbers, false);
    for (uint64_t i = 0; !reply->garbled && i < count; i++) {
        remote_number_forget(i < ended->nodes ? REMOTE_KIND_CUgraphNode : REMOTE_KIND_CUgraph,
                             numbers[i]);
    }
    free(numbers);
}

CUresult cuGraphDestroy(CUgraph graph) {
    struct node_ended ended = {0};
    struct remote_call call;
    struct remote_reply reply;

    remote_begin(&call, REMOTE_cuGraphDestroy, 1);
    remote_use(&call, 0, REMOTE_KIND_CUgraph, (uint64_t)graph);
    call.head.given = 3;
    if (remote_ask(&call, &reply)) {
        remote_get(&call, &reply, 0, &ended, sizeof ended, false);
        if (reply.head.result == 0 && !reply.garbled) {
            forget(&call, &reply, &ended);
            remote_get_ended(&reply, REMOTE_KIND_CUgraph, (uint64_t)graph);
        }
    }
    return (CUresult)remote_end(&call, &reply);
}
