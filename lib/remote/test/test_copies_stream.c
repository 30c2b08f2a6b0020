/* Random copies where client and worker share no memory, as over a network: the client is part of this program, and its link
 * is a stream. */
#include "remote/link_inside.h"
#include "remote/test/copies_served.h"
#include "simgpu/machine/test/setting.h"

#include <stdlib.h>
#include <string.h>

struct remote_link *__wrap_remote_link_connect(const char *path, char why[REMOTE_WHY_BYTES]);

struct remote_link *__wrap_remote_link_connect(const char *path, char why[REMOTE_WHY_BYTES]) {
    (void)path;
    return remote_link_client(copies_connect(), REMOTE_LINK_STREAM, REMOTE_HELLO_NS, why);
}

#define FUNCTIONS(X)                                                                               \
    X(cuArray3DCreate_v2)                                                                          \
    X(cuArrayDestroy)                                                                              \
    X(cuCtxCreate_v2) X(cuCtxDestroy_v2) X(cuCtxGetCurrent) X(cuCtxSynchronize) X(cuInit)          \
        X(cuMemAlloc_v2) X(cuMemFreeHost) X(cuMemFree_v2) X(cuMemHostAlloc)                        \
            X(cuMemHostGetDevicePointer_v2) X(cuMemHostGetFlags) X(cuMemHostRegister_v2)           \
                X(cuMemHostUnregister) X(cuMemcpy) X(cuMemcpy2DAsync_v2) X(cuMemcpy2DUnaligned_v2) \
                    X(cuMemcpy2D_v2) X(cuMemcpy3DAsync_v2) X(cuMemcpy3DBatchAsync)                 \
                        X(cuMemcpy3DBatchAsync_v2) X(cuMemcpy3DPeer) X(cuMemcpy3DPeerAsync)        \
                            X(cuMemcpy3D_v2) X(cuMemcpyAsync) X(cuMemcpyAtoHAsync_v2)              \
                                X(cuMemcpyAtoH_v2) X(cuMemcpyBatchAsync) X(cuMemcpyBatchAsync_v2)  \
                                    X(cuMemcpyDtoHAsync_v2) X(cuMemcpyDtoHAsync_v2_ptsz)           \
                                        X(cuMemcpyDtoH_v2) X(cuMemcpyDtoH_v2_ptds)                 \
                                            X(cuMemcpyHtoAAsync_v2) X(cuMemcpyHtoA_v2)             \
                                                X(cuMemcpyHtoDAsync_v2)                            \
                                                    X(cuMemcpyHtoDAsync_v2_ptsz)                   \
                                                        X(cuMemcpyHtoD_v2) X(cuMemcpyHtoD_v2_ptds) \
                                                            X(cuMemcpy_ptds) X(cuMemsetD8_v2)      \
                                                                X(cuStreamCreate)

#define HAS(name) driver->name = name;
/* dlsym answers with an object's address, which POSIX lets stand for a function. */
#define FIND(name)                                                                                 \
    do {                                                                                           \
        void *at = copies_find(#name);                                                             \
        CHECK(at);                                                                                 \
        memcpy(&driver->name, &at, sizeof at);                                                     \
    } while (0);

void copies_load(bool remote, struct remote_cuda_driver *driver) {
    if (remote) {
        /* Some socket has to be named, though the one above is taken. */
        setenv("DIVVY_REMOTE_SOCKET", copies_folder, 1);
        FUNCTIONS(HAS)
    } else {
        copies_open(SIMGPU_FOLDER);
        FUNCTIONS(FIND)
    }
}

int main(void) {
    const char *given = getenv("STEPS");
    uint64_t steps = given ? strtoull(given, NULL, 10) : 300;
    sim_machine machine;

    setting_describe(&machine);
    machine.cuda_version = 13040;
    setting_make(&machine);
    copies_map_nothing = true;
    copies_start_worker();
    copies_compare(false, steps);
    copies_compare(true, steps);
    copies_end_worker();
    return 0;
}
