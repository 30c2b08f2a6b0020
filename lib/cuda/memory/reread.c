#include "cuda/memory/reread.h"

#include "cuda/memory/graph.h"
#include "cuda/memory/limbo.h"
#include "cuda/memory/pool.h"
#include "cuda/memory/vmm.h"

bool reread_device(unsigned device) {
    bool less = pools_reread(device);
    less = graphs_reread(device) || less;
    less = vmm_reread() || less;
    return limbo_reread() || less;
}
