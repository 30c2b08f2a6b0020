/* Variables of modules: the worker's driver has placed them, and cannot be asked for another address. Where the program has
 * something there already the address is told nevertheless: a call that says which way bytes go finds the variable. */
#include "remote/client/client.h"
#include "remote/generated/cuda_stubs.h"

static CUresult note(CUresult result, CUdeviceptr at, size_t size, CUdeviceptr *address,
                     size_t *bytes) {
    const struct remote_range range = {.start = at, .size = size, .kind = REMOTE_RANGE_CODE};
    struct remote_range known;

    if (result == CUDA_SUCCESS) {
        if (!remote_range_find(at, &known) || known.start != at || known.size != size ||
            known.kind != REMOTE_RANGE_CODE) {
            remote_range_add(&range);
        }
        if (address) {
            *address = at;
        }
        if (bytes) {
            *bytes = size;
        }
    }
    return result;
}

CUresult REMOTE_STUB(cuModuleGetGlobal_v2)(CUdeviceptr *address, size_t *bytes, CUmodule module,
                                           const char *name) {
    CUdeviceptr at = 0;
    size_t size = 0;

    if (!address && !bytes) {
        return remote_call_cuModuleGetGlobal_v2(NULL, NULL, module, name);
    }
    CUresult result = remote_call_cuModuleGetGlobal_v2(&at, &size, module, name);
    return note(result, at, size, address, bytes);
}

CUresult REMOTE_STUB(cuLibraryGetGlobal)(CUdeviceptr *address, size_t *bytes, CUlibrary library,
                                         const char *name) {
    CUdeviceptr at = 0;
    size_t size = 0;

    if (!address && !bytes) {
        return remote_call_cuLibraryGetGlobal(NULL, NULL, library, name);
    }
    CUresult result = remote_call_cuLibraryGetGlobal(&at, &size, library, name);
    return note(result, at, size, address, bytes);
}
