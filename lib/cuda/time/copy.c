#include "cuda/time/copy.h"

#include "cuda/memory/linear.h"

#define OVERHEAD_NS 2000u /* cost of the smallest copy, until it is learned */
#define BYTES_PER_NS 500u /* about the speed of a GPU's memory */

bool copy_on_device(uint64_t address) {
    struct entry note;
    CUpointer_attribute asked = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    unsigned type = 0;
    void *answer = &type;
    if (address == 0) {
        return false;
    }
    if (linear_find(address, &note)) {
        return true;
    }
    /* The function for one attribute would fail for memory that is not the driver's. */
    return DV_CALL(cuPointerGetAttributes, 1, &asked, &answer, address) == CUDA_SUCCESS &&
           type == CU_MEMORYTYPE_DEVICE;
}

CUresult copy_begin(struct copy *copy, CUstream stream, struct move move, bool blocks) {
    copy->crosses = move.kind == 0;
    copy->blocks = blocks;
    if (!copy->crosses) {
        struct work work = cost_moved(move.kind, cost_bytes(move.bytes));
        return launch_begin(&copy->launch, stream, work, OVERHEAD_NS + move.bytes / BYTES_PER_NS);
    }
    CUresult result = launch_passes(&copy->launch, stream);
    if (blocks) {
        launch_waits(&copy->wait, stream);
        copy->since = launch_blocks();
    } else {
        launch_follows(stream);
    }
    return result;
}

void copy_end(struct copy *copy, CUresult result) {
    launch_end(&copy->launch, result);
    if (copy->crosses && copy->blocks) {
        launch_blocked(copy->since, true);
        launch_waited(&copy->wait, result);
    }
}
