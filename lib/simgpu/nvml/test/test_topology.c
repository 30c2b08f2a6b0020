/* How the test machine's GPUs reach each other. */
#include "abi/generated/nvml_functions.h"
#include "simgpu/machine/test/setting.h"

static nvmlDevice_t devices[GPU_COUNT];

static void check_ancestors(void) {
    static const nvmlGpuTopologyLevel_t levels[GPU_COUNT][GPU_COUNT] = {
        {NVML_TOPOLOGY_INTERNAL, NVML_TOPOLOGY_SINGLE, NVML_TOPOLOGY_NODE, NVML_TOPOLOGY_SYSTEM},
        {NVML_TOPOLOGY_SINGLE, NVML_TOPOLOGY_INTERNAL, NVML_TOPOLOGY_NODE, NVML_TOPOLOGY_SYSTEM},
        {NVML_TOPOLOGY_NODE, NVML_TOPOLOGY_NODE, NVML_TOPOLOGY_INTERNAL, NVML_TOPOLOGY_SYSTEM},
        {NVML_TOPOLOGY_SYSTEM, NVML_TOPOLOGY_SYSTEM, NVML_TOPOLOGY_SYSTEM, NVML_TOPOLOGY_INTERNAL},
    };
    nvmlGpuTopologyLevel_t level;

    for (unsigned int i = 0; i < GPU_COUNT; i++) {
        for (unsigned int k = 0; k < GPU_COUNT; k++) {
            CHECK_EQUAL(nvmlDeviceGetTopologyCommonAncestor(devices[i], devices[k], &level),
                        NVML_SUCCESS);
            CHECK_EQUAL(level, levels[i][k]);
        }
    }
    CHECK_EQUAL(nvmlDeviceGetTopologyCommonAncestor(devices[0], NULL, &level),
                NVML_ERROR_INVALID_ARGUMENT);
}

static void check_nearest(void) {
    nvmlDevice_t near[GPU_COUNT];
    unsigned int count = 0;

    CHECK_EQUAL(nvmlDeviceGetTopologyNearestGpus(devices[3], NVML_TOPOLOGY_SYSTEM, &count, NULL),
                NVML_SUCCESS);
    CHECK_EQUAL(count, 3);
    CHECK_EQUAL(nvmlDeviceGetTopologyNearestGpus(devices[3], NVML_TOPOLOGY_SYSTEM, &count, NULL),
                NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlDeviceGetTopologyNearestGpus(devices[3], NVML_TOPOLOGY_SYSTEM, &count, near),
                NVML_SUCCESS);
    CHECK(near[0] == devices[0] && near[2] == devices[2]);
    count = GPU_COUNT;
    CHECK_EQUAL(nvmlSystemGetTopologyGpuSet(5, &count, near), NVML_SUCCESS);
    CHECK(count == 1 && near[0] == devices[3]);
}

static void check_affinity(void) {
    unsigned long mask[2] = {~0ul, ~0ul};

    CHECK_EQUAL(nvmlDeviceGetCpuAffinity(devices[3], 2, mask), NVML_SUCCESS);
    CHECK_EQUAL(mask[0], 0xf0);
    CHECK_EQUAL(mask[1], 0);
    CHECK_EQUAL(nvmlDeviceGetMemoryAffinity(devices[3], 1, mask, NVML_AFFINITY_SCOPE_NODE),
                NVML_SUCCESS);
    CHECK_EQUAL(mask[0], 2);
    CHECK_EQUAL(nvmlDeviceGetCpuAffinity(devices[3], 0, mask), NVML_ERROR_INVALID_ARGUMENT);
}

static nvmlGpuP2PStatus_t p2p(unsigned int from, unsigned int to, nvmlGpuP2PCapsIndex_t what) {
    nvmlGpuP2PStatus_t status;

    CHECK_EQUAL(nvmlDeviceGetP2PStatus(devices[from], devices[to], what, &status), NVML_SUCCESS);
    return status;
}

static void check_p2p(void) {
    CHECK_EQUAL(p2p(0, 1, NVML_P2P_CAPS_INDEX_NVLINK), NVML_P2P_STATUS_OK);
    CHECK_EQUAL(p2p(0, 2, NVML_P2P_CAPS_INDEX_NVLINK), NVML_P2P_STATUS_NOT_SUPPORTED);
    CHECK_EQUAL(p2p(0, 2, NVML_P2P_CAPS_INDEX_READ), NVML_P2P_STATUS_OK);
    CHECK_EQUAL(p2p(0, 3, NVML_P2P_CAPS_INDEX_READ), NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED);
}

static void check_links(void) {
    nvmlEnableState_t state;
    nvmlIntNvLinkDeviceType_t type;
    nvmlPciInfo_t remote;

    CHECK_EQUAL(nvmlDeviceGetNvLinkState(devices[0], 1, &state), NVML_SUCCESS);
    CHECK_EQUAL(state, NVML_FEATURE_ENABLED);
    CHECK_EQUAL(nvmlDeviceGetNvLinkRemoteDeviceType(devices[0], 1, &type), NVML_SUCCESS);
    CHECK_EQUAL(type, NVML_NVLINK_DEVICE_TYPE_GPU);
    CHECK_EQUAL(nvmlDeviceGetNvLinkRemotePciInfo_v2(devices[0], 1, &remote), NVML_SUCCESS);
    CHECK_EQUAL(remote.bus, 0x12);
    CHECK_EQUAL(nvmlDeviceGetNvLinkState(devices[0], 2, &state), NVML_SUCCESS);
    CHECK_EQUAL(state, NVML_FEATURE_DISABLED);
    CHECK_EQUAL(nvmlDeviceGetNvLinkRemotePciInfo_v2(devices[0], 2, &remote),
                NVML_ERROR_NOT_SUPPORTED);
    CHECK_EQUAL(nvmlDeviceGetNvLinkState(devices[0], 3, &state), NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlDeviceGetNvLinkState(devices[3], 0, &state), NVML_ERROR_NOT_SUPPORTED);
    nvmlGpuFabricInfo_t fabric;
    CHECK_EQUAL(nvmlDeviceGetGpuFabricInfo(devices[0], &fabric), NVML_ERROR_NOT_SUPPORTED);
}

static void check_fields(void) {
    nvmlFieldValue_t fields[] = {
        {.fieldId = NVML_FI_DEV_NVLINK_LINK_COUNT},
        {.fieldId = NVML_FI_DEV_NVLINK_GET_STATE, .scopeId = 2},
        {.fieldId = NVML_FI_DEV_NVLINK_GET_STATE, .scopeId = 3},
        {.fieldId = 9999},
    };

    CHECK_EQUAL(nvmlDeviceGetFieldValues(devices[0], 4, fields), NVML_SUCCESS);
    CHECK_EQUAL(fields[0].nvmlReturn, NVML_SUCCESS);
    CHECK_EQUAL(fields[0].value.uiVal, 3);
    CHECK(fields[0].timestamp > 0);
    CHECK_EQUAL(fields[1].nvmlReturn, NVML_SUCCESS);
    CHECK_EQUAL(fields[1].value.uiVal, 0);
    CHECK_EQUAL(fields[2].nvmlReturn, NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQUAL(fields[3].nvmlReturn, NVML_ERROR_NOT_SUPPORTED);
    CHECK_EQUAL(nvmlDeviceGetFieldValues(devices[0], 0, fields), NVML_ERROR_INVALID_ARGUMENT);
}

/* The same machine with Hopper GPUs behind two NVSwitches. */
static void check_switches(sim_machine *machine) {
    nvmlIntNvLinkDeviceType_t type;
    nvmlGpuFabricInfo_t fabric;
    nvmlPciInfo_t remote;

    machine->nvswitch_count = 2;
    for (unsigned int i = 0; i < GPU_COUNT; i++) {
        machine->gpus[i].architecture = NVML_DEVICE_ARCH_HOPPER;
        machine->gpus[i].link_count = 2;
        for (uint32_t link = 0; link < 2; link++) {
            machine->gpus[i].links[link] = (sim_link){SIM_REMOTE_SWITCH, link};
        }
    }
    setting_make(machine);
    CHECK_EQUAL(nvmlInit_v2(), NVML_SUCCESS);
    CHECK_EQUAL(p2p(0, 3, NVML_P2P_CAPS_INDEX_NVLINK), NVML_P2P_STATUS_OK);
    CHECK_EQUAL(p2p(0, 3, NVML_P2P_CAPS_INDEX_READ), NVML_P2P_STATUS_OK);
    CHECK_EQUAL(nvmlDeviceGetNvLinkRemoteDeviceType(devices[3], 1, &type), NVML_SUCCESS);
    CHECK_EQUAL(type, NVML_NVLINK_DEVICE_TYPE_SWITCH);
    CHECK_EQUAL(nvmlDeviceGetNvLinkRemotePciInfo_v2(devices[3], 1, &remote), NVML_SUCCESS);
    CHECK(remote.domain != 0 && remote.pciDeviceId == 0x22a310de);
    CHECK_EQUAL(nvmlDeviceGetGpuFabricInfo(devices[3], &fabric), NVML_SUCCESS);
    CHECK_EQUAL(fabric.state, 3);
    CHECK_EQUAL(nvmlShutdown(), NVML_SUCCESS);
}

int main(void) {
    sim_machine machine;

    setting_describe(&machine);
    setting_make(&machine);
    CHECK_EQUAL(nvmlInit_v2(), NVML_SUCCESS);
    for (unsigned int i = 0; i < GPU_COUNT; i++) {
        CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(i, &devices[i]), NVML_SUCCESS);
    }
    check_ancestors();
    check_nearest();
    check_affinity();
    check_p2p();
    check_links();
    check_fields();
    CHECK_EQUAL(nvmlShutdown(), NVML_SUCCESS);
    check_switches(&machine);
    return 0;
}
