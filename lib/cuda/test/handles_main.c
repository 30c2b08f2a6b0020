/* Random legal operations with driver objects, see handles.h: handles OPERATIONS SEED. Run in a
 * share, it shows whether a handle reaches the driver after its object was destroyed. */
#include "cuda/test/handles.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "abi/generated/cuda_functions.h"
#include "test/check.h"

#define THREADS 8

int main(int count, char **words) {
    CHECK_EQUAL(count, 3);
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(library != NULL);
    __extension__ CUresult (*init)(unsigned) = (CUresult (*)(unsigned))dlsym(library, "cuInit");
    CHECK(init != NULL);
    CHECK_EQUAL(init(0), CUDA_SUCCESS);
    handles_run(library, THREADS, strtoull(words[1], NULL, 10), strtoull(words[2], NULL, 10));
    return 0;
}
