/* Recordings of streams into graphs. */
#ifndef SIMGPU_CUDA_CAPTURE_H
#define SIMGPU_CUDA_CAPTURE_H

#include "simgpu/cuda/graph.h"

struct recording {
    unsigned long long id;
    CUgraph graph;
    bool own_graph; /* begun by cuStreamBeginCapture, not into a graph of the user's */
    CUstream origin;
    CUstreamCaptureMode mode;
    pthread_t thread;
    bool invalid;
    struct link arms;
    struct link of_all;
};

/* A stream's part in a recording, or what an event noted of one. */
struct capture {
    struct recording *recording; /* of a stream */
    unsigned long long recorded; /* of an event: the recording's id, as that may be over */
    CUstream stream;
    CUgraphNode *before; /* what the next operation depends on */
    size_t count;
    struct link of_recording;
};

bool capture_set(struct capture *arm, const CUgraphNode *nodes, size_t count);
bool capture_join(struct capture *arm, const CUgraphNode *nodes, size_t count);
CUresult capture_begin(CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
                       const CUgraphNode *before, size_t count);
/* Ends the recording that began in the stream; ILLEGAL_STATE when there is none. */
CUresult capture_end(CUstream stream, CUgraph *out);

extern _Thread_local CUstreamCaptureMode capture_thread_mode
    __attribute__((tls_model("initial-exec")));

#endif
