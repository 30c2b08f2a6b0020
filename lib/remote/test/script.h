/* What random sequences of calls about graphs have seen: every result, and everything that was written, with handles and
 * addresses by the order in which they came. Two drivers that behave alike give the same. */
#ifndef DIVVY_REMOTE_TEST_SCRIPT_H
#define DIVVY_REMOTE_TEST_SCRIPT_H

#include "remote/test/whole.h"

#include <stdint.h>
#include <stdio.h>

#define SCRIPT_NODES 64u
#define SCRIPT_GRAPHS 6u
#define SCRIPT_EXECS 6u
#define SCRIPT_STREAMS 3u
#define SCRIPT_BYTES 4096u

struct script {
    uint64_t state; /* of the draws */
    FILE *out;      /* a line for each call */
    CUcontext context;
    CUstream streams[SCRIPT_STREAMS];
    CUevent events[2];
    CUdeviceptr memory[2];
    unsigned char *host; /* memory that both sides see */
    CUfunction function;
    CUkernel kernel;
    CUgraph graphs[SCRIPT_GRAPHS]; /* NULL where there is none */
    struct {
        CUgraphNode nodes[SCRIPT_NODES];
        CUgraphNodeType types[SCRIPT_NODES];
        unsigned count;
    } of[SCRIPT_GRAPHS];
    CUgraphExec execs[SCRIPT_EXECS];
    unsigned exec_of[SCRIPT_EXECS]; /* graph that it was made from */
    unsigned calls;                 /* of the program's functions */
    bool
        has_functions; /* then what nothing orders comes in any order, and memory is not compared */
};

/* script.c */
uint64_t script_draw(struct script *s, uint64_t below);
void script_begin(struct script *s, uint64_t seed, FILE *out);
void script_end(struct script *s);
/* Does one thing that was drawn. */
void script_step(struct script *s);
/* Which node of a graph it is, plus one; 0 for none, 99 for another. */
unsigned script_node(const struct script *s, unsigned graph, CUgraphNode node);
/* Addresses as offsets in what they belong to. */
const char *script_place(const struct script *s, uint64_t address);
/* A function of the program. */
void script_call(void *script);

/* script_nodes.c: adds a node of a drawn kind, says what a node says, and changes one. */
void script_add(struct script *s, unsigned graph);
void script_tell(struct script *s, unsigned graph, unsigned node);
void script_change(struct script *s, unsigned graph, unsigned node, CUgraphExec exec);

/* script_capture.c: captures drawn work. */
void script_capture(struct script *s, unsigned graph);

#endif
