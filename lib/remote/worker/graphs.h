/* What the worker's files about nodes of graphs share. */
#ifndef DIVVY_REMOTE_WORKER_GRAPHS_H
#define DIVVY_REMOTE_WORKER_GRAPHS_H

#include "remote/node.h"
#include "remote/worker/hand.h"

/* A record about a node, judged. */
struct node {
    CUgraphNode made;
    CUgraphNode *out; /* NULL where the program gave none */
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;
    CUgraphNode *before;
    CUgraphEdgeData *edges;
    size_t count;
    CUgraphNodeParams *form;
    size_t bytes;   /* of a kernel's parameters */
    void *extra[5]; /* the list that leads to them */
    void **each;    /* their addresses, which are malloc's */
};

/* graphs_form.c: turns what a record has for parameters into what the driver reads. What the client would not send garbles
 * the record. */
void node_take_params(struct remote_decoder *decoder, struct node *node);
/* What the worker answers instead of calling the driver. The first reason counts. */
void node_refuse(struct remote_decoder *decoder, CUresult result);

/* graphs_kernel.c: where the parameters of a kernel are, `places` with room for NODE_MOST_PLACES; how many there are, and
 * how many bytes up to the end of the last. False where the driver does not tell. */
struct node_place {
    uint32_t at;
    uint32_t size;
};
bool node_layout(const struct remote_cuda_driver *cuda, CUfunction function, CUkernel kernel,
                 struct node_place *places, size_t *count, size_t *bytes);

#endif
