/* What the client's functions for nodes of graphs share. */
#ifndef DIVVY_REMOTE_CLIENT_GRAPHS_H
#define DIVVY_REMOTE_CLIENT_GRAPHS_H

#include "remote/client/graphs_lent.h"
#include "remote/client/pack.h"
#include "remote/node.h"

/* A call about a node. */
struct node_call {
    struct remote_call call;
    CUgraphNodeParams form;       /* as the record has them */
    struct remote_packed *packed; /* parameters of a kernel */
    uint64_t function;            /* of the program, that a host node calls */
};

/* graphs_form.c: writes a node's parameters into the record, after all other pieces. */
void node_params(struct node_call *n, const CUgraphNodeParams *p);
/* Frees what that needed, and forgets a host node's function if there is no node with it. */
void node_end(struct node_call *n, bool made);
/* Notes a handle in the record's parameters. */
void node_handle(struct node_call *n, uint64_t number, enum remote_kind kind);
/* What the client answers instead of asking. The first reason counts. */
void node_refuse(struct node_call *n, CUresult result);

#endif
