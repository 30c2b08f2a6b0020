#include "cuda/reread.h"

#include "cuda/graph.h"
#include "cuda/limbo.h"
#include "cuda/pool.h"
#include "cuda/vmm.h"

bool reread_device(unsigned device) {
    bool less = pools_reread(device);
    less = graphs_reread(device) || less;
    less = vmm_reread() || less;
    return limbo_reread() || less;
}
