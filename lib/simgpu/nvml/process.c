/* NVML: which processes use a device. */
#include "simgpu/nvml/call.h"

/* A process and what it holds, as the widest of the lists wants it. */
struct user {
    unsigned int pid;
    unsigned int gi, ci; /* NVML_INSTANCE_ID_ANY outside MIG */
    uint64_t used;
    struct sg_who who;
};

/* Drops the processes that the caller does not see. */
static unsigned int name_users(struct user users[], unsigned int n) {
    struct sg_pids pids = {.count = 0};
    unsigned int seen = 0;

    for (unsigned int i = 0; i < n; i++) {
        users[i].pid = (unsigned int)sg_pids_of(&pids, &users[i].who);
        if (users[i].pid) {
            users[seen++] = users[i];
        }
    }
    sg_pids_end(&pids);
    return seen;
}

/* What NVML tells of processes stays as it is for the machine's lag. The state is locked. */
static void take_figures(struct nvml_call *call) {
    struct sg_gpu *gpu = &call->in->state->gpus[call->index];
    uint64_t now = sg_time(call->in);

    if (call->machine->figures_lag_ns == 0 || now - gpu->told_at < call->machine->figures_lag_ns) {
        return;
    }
    gpu->told_at = now;
    for (uint32_t i = 0; (i = sg_next_client(call->in, i)) < SG_CLIENTS_MAX; i++) {
        call->in->state->clients[i].told[call->index] = sg_client_used(call->in, i, call->index);
    }
}

/* A pid that no process can have here: above every kernel's largest. */
#define FOREIGN_PID 0x40000000u

/* Lists the processes with a context on the device, or of those the clients of MPS alone; returns their number. */
static unsigned int collect(struct nvml_call *call, bool mps, struct user users[SG_CLIENTS_MAX]) {
    unsigned int n = 0;

    nvml_lock_state(call);
    take_figures(call);
    for (uint32_t i = 0; (i = sg_next_client(call->in, i)) < SG_CLIENTS_MAX; i++) {
        const struct sg_client *client = &call->in->state->clients[i];
        bool late = call->machine->figures_lag_ns != 0;
        uint64_t used = late ? client->told[call->index] : sg_client_used(call->in, i, call->index);

        if (call->place && client->place != call->place) {
            continue;
        }
        if (((late || client->contexts[call->index] == 0) && used == 0) ||
            (mps && client->membership.server == 0)) {
            continue;
        }
        users[n].who = client->who;
        users[n].gi = client->place ? sg_place_gi(client->place) : NVML_INSTANCE_ID_ANY;
        users[n].ci = client->place ? sg_place_ci(client->place) : NVML_INSTANCE_ID_ANY;
        users[n].pid = FOREIGN_PID + i;
        users[n++].used = call->machine->figures == SIM_FIGURES_HIDDEN ? UINT64_MAX : used;
    }
    sg_state_unlock(call->in);
    return call->machine->figures == SIM_FIGURES_FOREIGN ? n : name_users(users, n);
}

/* A list in its first form, which has no room for MIG. */
static nvmlReturn_t list_narrow(struct nvml_call *call, bool mps, unsigned int *count,
                                nvmlProcessInfo_v1_t *infos) {
    struct user users[SG_CLIENTS_MAX];
    unsigned int n = collect(call, mps, users);
    nvmlReturn_t result = nvml_room(count, infos, n);

    for (unsigned int i = 0; result == NVML_SUCCESS && i < n; i++) {
        infos[i] = (nvmlProcessInfo_v1_t){.pid = users[i].pid, .usedGpuMemory = users[i].used};
    }
    return result;
}

static nvmlReturn_t list_wide(struct nvml_call *call, bool mps, unsigned int *count,
                              nvmlProcessInfo_t *infos) {
    struct user users[SG_CLIENTS_MAX];
    unsigned int n = collect(call, mps, users);
    nvmlReturn_t result = nvml_room(count, infos, n);

    for (unsigned int i = 0; result == NVML_SUCCESS && i < n; i++) {
        infos[i] = (nvmlProcessInfo_t){
            .pid = users[i].pid,
            .usedGpuMemory = users[i].used,
            .gpuInstanceId = users[i].gi,
            .computeInstanceId = users[i].ci,
        };
    }
    return result;
}

/* Clients of MPS stand in this list and in their own, as nvidia-smi's type M+C has it, and servers in this one. */
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                  nvmlProcessInfo_v1_t *infos) {
    NVML_ANY_DEVICE(call, device)
    return list_narrow(&call, false, count, infos);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                     nvmlProcessInfo_t *infos) {
    NVML_ANY_DEVICE(call, device)
    return list_wide(&call, false, count, infos);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                                     nvmlProcessInfo_v2_t *infos) {
    return nvmlDeviceGetComputeRunningProcesses_v3(device, count, infos);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                     nvmlProcessInfo_v1_t *infos) {
    NVML_ANY_DEVICE(call, device)
    return list_narrow(&call, true, count, infos);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                        nvmlProcessInfo_t *infos) {
    NVML_ANY_DEVICE(call, device)
    return list_wide(&call, true, count, infos);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                                        nvmlProcessInfo_v2_t *infos) {
    return nvmlDeviceGetMPSComputeRunningProcesses_v3(device, count, infos);
}

/* Nobody draws. */
static nvmlReturn_t nobody(nvmlDevice_t device, unsigned int *count) {
    NVML_ANY_DEVICE(call, device)
    NVML_REQUIRE(count);
    *count = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                   nvmlProcessInfo_v1_t *infos) {
    (void)infos;
    return nobody(device, count);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                                      nvmlProcessInfo_v2_t *infos) {
    (void)infos;
    return nobody(device, count);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                      nvmlProcessInfo_t *infos) {
    (void)infos;
    return nobody(device, count);
}

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                   nvmlProcessDetailList_t *list) {
    struct user users[SG_CLIENTS_MAX];
    unsigned int n = 0;

    NVML_ANY_DEVICE(call, device)
    NVML_REQUIRE(list);
    if (list->version != NVML_STRUCT_VERSION(nvmlProcessDetailList_t, 1)) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    NVML_REQUIRE(list->mode <= 2);
    if (list->mode != 1) { /* 0 is computing, 1 drawing, 2 MPS */
        n = collect(&call, list->mode == 2, users);
    }
    nvmlReturn_t result = nvml_room(&list->numProcArrayEntries, list->procArray, n);
    for (unsigned int i = 0; result == NVML_SUCCESS && i < n; i++) {
        list->procArray[i] = (nvmlProcessDetail_v1_t){
            .pid = users[i].pid,
            .usedGpuMemory = users[i].used,
            .gpuInstanceId = users[i].gi,
            .computeInstanceId = users[i].ci,
            .usedGpuCcProtectedMemory = 0,
        };
    }
    return result;
}
