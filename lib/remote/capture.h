/* Records about what a capture tells of itself. */
#ifndef DIVVY_REMOTE_CAPTURE_H
#define DIVVY_REMOTE_CAPTURE_H

#include "remote/record.h"

enum capture_word { CAPTURE_STREAM, CAPTURE_WANTED, CAPTURE_WORDS };

/* What is wanted, and what is told. */
enum capture_fact {
    CAPTURE_STATUS = 1,
    CAPTURE_ID = 2,
    CAPTURE_GRAPH = 4,
    CAPTURE_BEFORE = 8,
    CAPTURE_EDGES = 16,
    CAPTURE_COUNT = 32,
};

/* The first piece of an answer. The second has numbers of nodes, the third their edges, where these are told. */
struct capture_facts {
    uint64_t told;
    uint64_t no_edges; /* 1 if the driver has said that there are none */
    uint64_t status;
    uint64_t id;
    uint64_t graph;
    uint64_t count;
};

#endif
