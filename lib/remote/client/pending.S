/* Functions whose subject's file is not there: what the description makes alone, or the answer that it is not supported. */
    .text
    .macro pending name, result
    .weak \name
    .type \name, %function
\name:
    mov $\result, %eax
    ret
    .endm
    .macro plain name
    .weak \name
    .type \name, %function
\name:
    jmp remote_call_\name
    .endm
#define CUDA_hand(name) pending name, 801
#define CUDA_local(name) pending name, 801
#define CUDA_front(name) plain name
#define CUDA_back(name)
#define NVML_hand(name) pending name, 3
#define NVML_local(name) pending name, 3
#define NVML_front(name) plain name
#define NVML_back(name)
#define CUDA_BY_HAND(name, manner, reason) CUDA_##manner(name)
#define NVML_BY_HAND(name, manner, reason) NVML_##manner(name)
#include "remote/generated/cuda_by_hand.inc"
#include "remote/generated/nvml_by_hand.inc"
    pending remote_send_bulk, 0
    .section .note.GNU-stack, "", %progbits
