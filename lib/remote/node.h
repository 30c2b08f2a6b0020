/* Records about nodes of graphs: the general parameters of CUDA 12.2 whatever the call, with numbers where there were
 * handles and without the program's addresses, and after them what these led to. */
#ifndef DIVVY_REMOTE_NODE_H
#define DIVVY_REMOTE_NODE_H

#include "abi/cuda/types.h"
#include "remote/record.h"

enum node_word {
    NODE_MADE,    /* number of the node that the call makes */
    NODE_OWNER,   /* graph, or executable graph */
    NODE_NODE,    /* node that the call is about */
    NODE_COUNT,   /* of the nodes that it comes after */
    NODE_LENGTH,  /* of what the parameters lead to, in elements */
    NODE_PASSED,  /* enum node_passed */
    NODE_FROM,    /* of a copy: region of the program's memory that is read, 0 for none, */
    NODE_FROM_AT, /* and where in it */
    NODE_TO,
    NODE_TO_AT,
    NODE_CHECK, /* nothing: the client judges handles by it */
    NODE_WORDS,
};

/* What is given in a record, and written in an answer. */
enum node_given {
    NODE_GIVEN_MADE,
    NODE_GIVEN_BEFORE,
    NODE_GIVEN_EDGES,
    NODE_GIVEN_PARAMS,
    NODE_GIVEN_MORE,    /* parameters of a kernel, operations, or who may access */
    NODE_GIVEN_ADDRESS, /* of memory that the node allocates */
    NODE_GIVEN_FACTS,   /* struct node_facts */
    NODE_GIVEN_PLACES,  /* where the parameters of a kernel are among their bytes */
};

/* How the parameters of a kernel were passed. */
enum node_passed { NODE_PASSED_NONE, NODE_PASSED_EACH, NODE_PASSED_TOGETHER };

/* What the worker tells beside the parameters of a node. */
struct node_facts {
    uint64_t length; /* bytes of what the parameters lead to */
    uint64_t places; /* how many parameters the kernel has */
    uint64_t passed;
    uint64_t function; /* of the program, that a host node calls */
};

/* What has ended with a graph, before the numbers of the nodes and then those of the graphs of its nodes. */
struct node_ended {
    uint64_t nodes;
    uint64_t graphs;
};

/* Most parameters of a kernel, and their bytes: the bounds of the driver's interface. */
#define NODE_MOST_PLACES 4096u
#define NODE_MOST_BYTES 32764u

/* How many bytes from its address on a copy touches at most on one side. False if that is more than there are. */
static inline bool node_extent(const CUDA_MEMCPY3D *c, bool from, uint64_t *bytes) {
    uint64_t pitch = from ? c->srcPitch : c->dstPitch, rows = from ? c->srcHeight : c->dstHeight;
    uint64_t x = from ? c->srcXInBytes : c->dstXInBytes, y = from ? c->srcY : c->dstY;
    uint64_t z = from ? c->srcZ : c->dstZ, slice, in_slices, in_rows;

    *bytes = 0;
    if (c->WidthInBytes == 0 || c->Height == 0 || c->Depth == 0) {
        return true;
    }
    pitch = pitch ? pitch : c->WidthInBytes;
    /* How far it is to the next slice matters only where there is one. */
    if (__builtin_mul_overflow(pitch, rows ? rows : c->Height, &slice)) {
        slice = UINT64_MAX;
    }
    return !(__builtin_add_overflow(z, c->Depth - 1, &z) ||
             __builtin_mul_overflow(z, slice, &in_slices) ||
             __builtin_add_overflow(y, c->Height - 1, &y) ||
             __builtin_mul_overflow(y, pitch, &in_rows) ||
             __builtin_add_overflow(x, c->WidthInBytes, &x) ||
             __builtin_add_overflow(in_slices, in_rows, &in_slices) ||
             __builtin_add_overflow(in_slices, x, bytes));
}

_Static_assert(NODE_WORDS <= REMOTE_MOST_WORDS, "words of a record");
_Static_assert(sizeof(CUgraphNodeParams) == 256, "CUgraphNodeParams");

#endif
