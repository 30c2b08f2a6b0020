#include "cuda/affinity.h"

#include <string.h>

CUexecAffinityParam *affinity_cut(struct affinity *room, CUdevice device,
                                  CUexecAffinityParam *given, int count) {
    int most = 0;
    if (given == NULL || count <= 0) {
        return given;
    }
    if (count > AFFINITIES_MAX ||
        DV_CALL(cuDeviceGetAttribute, &most, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) !=
            CUDA_SUCCESS) {
        return NULL;
    }
    memcpy(room->list, given, (size_t)count * sizeof *given);
    for (int i = 0; i < count; i++) {
        unsigned *sms = &room->list[i].param.smCount.val;
        if (room->list[i].type == CU_EXEC_AFFINITY_TYPE_SM_COUNT && *sms > (unsigned)most) {
            *sms = (unsigned)most;
        }
    }
    return room->list;
}

CUctxCreateParams *affinity_cut_params(struct affinity *room, CUdevice device,
                                       CUctxCreateParams *given) {
    if (given == NULL) {
        return NULL;
    }
    room->params = *given;
    room->params.execAffinityParams =
        affinity_cut(room, device, given->execAffinityParams, given->numExecAffinityParams);
    return &room->params;
}
