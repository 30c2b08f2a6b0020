/* Calls of NVML that are decoded by hand, because the structure has the address of a list. */
#include "remote/worker/hand.h"

#include <unistd.h>

enum remote_outcome remote_hand_process(struct remote_decoder *d) {
    uint64_t process = (uint64_t)getpid();

    if (!remote_words(d, 0) || !remote_taken(d, true)) {
        return REMOTE_GARBLED;
    }
    remote_answer(d, 0);
    remote_give(d, 0, &process, sizeof process, false);
    return remote_finish(d);
}

/* A list of a structure: the words are the device, the structure's first word, a word of the call's own and how many
 * elements there is room for; the answer has how many there are, and the elements. */
struct list {
    nvmlDevice_t device;
    uint64_t own;
    unsigned version, room;
    void *elements;
    unsigned count;
};

static bool take_list(struct remote_decoder *d, struct list *list, size_t size) {
    if (!remote_words(d, 4)) {
        return false;
    }
    list->device = (nvmlDevice_t)remote_handle(d, 0, REMOTE_KIND_nvmlDevice_t); /* NOLINT */
    list->version = (unsigned)d->words[1];
    list->own = d->words[2];
    list->room = (unsigned)d->words[3];
    list->elements = remote_out_maybe(d, 1, list->room, size);
    return true;
}

static enum remote_outcome give_list(struct remote_decoder *d, const struct list *list,
                                     nvmlReturn_t result, size_t size) {
    unsigned filled = result == NVML_SUCCESS && list->elements ? list->count : 0;

    remote_answer(d, (int32_t)result);
    remote_give_count(d, 0, list->count, true);
    remote_give_some(d, 1, list->elements, filled < list->room ? filled : list->room, size, false);
    return remote_finish(d);
}

enum remote_outcome remote_hand_nvmlDeviceGetProcessesUtilizationInfo(struct remote_decoder *d) {
    struct list list;

    if (!take_list(d, &list, sizeof(nvmlProcessUtilizationInfo_v1_t))) {
        return REMOTE_GARBLED;
    }
    if (!remote_taken(d, d->nvml->nvmlDeviceGetProcessesUtilizationInfo != NULL)) {
        return remote_not_called(d);
    }
    nvmlProcessesUtilizationInfo_t info = {.version = list.version,
                                           .processSamplesCount = list.room,
                                           .lastSeenTimeStamp = list.own,
                                           .procUtilArray = list.elements};
    nvmlReturn_t result = d->nvml->nvmlDeviceGetProcessesUtilizationInfo(list.device, &info);
    list.count = info.processSamplesCount;
    return give_list(d, &list, result, sizeof *info.procUtilArray);
}

enum remote_outcome remote_hand_nvmlDeviceGetRunningProcessDetailList(struct remote_decoder *d) {
    struct list list;

    if (!take_list(d, &list, sizeof(nvmlProcessDetail_v1_t))) {
        return REMOTE_GARBLED;
    }
    if (!remote_taken(d, d->nvml->nvmlDeviceGetRunningProcessDetailList != NULL)) {
        return remote_not_called(d);
    }
    nvmlProcessDetailList_t details = {.version = list.version,
                                       .mode = (unsigned)list.own,
                                       .numProcArrayEntries = list.room,
                                       .procArray = list.elements};
    nvmlReturn_t result = d->nvml->nvmlDeviceGetRunningProcessDetailList(list.device, &details);
    list.count = details.numProcArrayEntries;
    return give_list(d, &list, result, sizeof *details.procArray);
}
