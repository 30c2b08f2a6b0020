/* A jump to the driver for every name that no other file defines. A name that must have a hook has
 * no jump, so linking fails without the hook. A name that must not have a hook has a strong jump,
 * so linking fails with a second definition. */
#include "abi/cuda/types.h"
#include "substitute/substitute.h"

/* Labels around the jumps, by which lookup.c tells a jump from a hook. */
#define LABEL(name)                                                                                \
    __asm__(".pushsection .text.dv_forward,\"ax\"\n"                                               \
            "\t.globl " #name "\n\t.hidden " #name "\n" #name ":\n"                                \
            ".popsection\n");

LABEL(forwards_begin)
#define FORWARD_must(name) DV_FORWARD_SLOT(name)
#define FORWARD_may(name) DV_FORWARD_SLOT(name) DV_FORWARD_JUMP(name, ".weak")
#define FORWARD_never(name) DV_FORWARD_SLOT(name) DV_FORWARD_JUMP(name, ".globl")
#define CUDA_FN(name, base, since, variant, kind, hooked) FORWARD_##hooked(name)
#include "abi/generated/cuda_names.inc"
#undef CUDA_FN
LABEL(forwards_end)

/* Every function of the driver returns a CUresult. */
int dv_missing(void) {
    return CUDA_ERROR_NOT_SUPPORTED;
}

__attribute__((constructor)) static void find_driver(void) {
    dv_substitute("libcuda-real.so.1");
}
