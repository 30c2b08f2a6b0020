/* Every name of the driver, leading there unless a file beside this one defines it. */
#include "abi/cuda/types.h"
#include "substitute/substitute.h"

/* Labels around the jumps, so that lookup.c can tell a jump from a function of ours. */
#define LABEL(name)                                                                                \
    __asm__(".pushsection .text.dv_forward,\"ax\"\n"                                               \
            "\t.globl " #name "\n\t.hidden " #name "\n" #name ":\n"                                \
            ".popsection\n");

LABEL(forwards_begin)
#define CUDA_FN(name, base, since, variant, kind) DV_FORWARD(name)
#include "abi/generated/cuda_names.inc"
#undef CUDA_FN
LABEL(forwards_end)

/* Every function of the driver answers with a CUresult. */
int dv_missing(void) {
    return CUDA_ERROR_NOT_SUPPORTED;
}

__attribute__((constructor)) static void find_driver(void) {
    dv_substitute("libcuda-real.so.1");
}
