/* Operations from the parameters of nodes. */
#ifndef SIMGPU_CUDA_GRAPH_NODES_H
#define SIMGPU_CUDA_GRAPH_NODES_H

#include "simgpu/cuda/copy.h"
#include "simgpu/cuda/graph.h"

CUresult op_of_kernel(const CUDA_KERNEL_NODE_PARAMS *p, struct stream_op *op);
CUresult op_of_kernel_v1(const CUDA_KERNEL_NODE_PARAMS_v1 *p, struct stream_op *op);
CUresult op_of_copy(const CUDA_MEMCPY3D *p, struct stream_op *op);
CUresult op_of_fill(const CUDA_MEMSET_NODE_PARAMS *p, struct stream_op *op);
CUresult op_of_host(const CUDA_HOST_NODE_PARAMS *p, struct stream_op *op);
CUresult op_of_event(enum op_kind kind, CUevent event, struct stream_op *op);
CUresult op_of_values(const CUDA_BATCH_MEM_OP_NODE_PARAMS *p, struct stream_op *op);
CUresult op_of_alloc(CUDA_MEM_ALLOC_NODE_PARAMS *p, struct stream_op *op);
CUresult op_of_free(CUdeviceptr address, struct stream_op *op);
CUresult op_of_child(CUgraph child, struct stream_op *op);
CUresult op_of_params(CUgraphNodeParams *p, struct stream_op *op);

#endif
