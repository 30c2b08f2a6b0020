/* The client's files as programs load them: by their paths, one after the other. Both have one connection, and what they
 * export is the description's. */
#include "remote/client/test/setting.h"

#include <dlfcn.h>
#include <string.h>

#include "abi/generated/nvml_functions.h"

static void answer(struct remote_link *link, const struct remote_head *head,
                   const uint64_t *words) {
    (void)words;
    setting_answer(link, head, 0, 0, 12040);
}

static void *load(const char *file) {
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);

    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
    }
    CHECK(library);
    return library;
}

static void find(void *to, void *library, const char *name) {
    void *at = dlsym(library, name);

    CHECK(at);
    memcpy(to, &at, sizeof at);
}

int main(void) {
    void *cuda, *nvml;
    __typeof__(cuInit) *init;
    __typeof__(nvmlInit_v2) *nvml_init;
    __typeof__(nvmlUnitGetCount) *count;
    unsigned units = 0;

    setting_start(REMOTE_LINK_RINGS, answer);
    nvml = load(REMOTE_FOLDER "libnvidia-ml.so.1");
    find(&nvml_init, nvml, "nvmlInit_v2");
    CHECK_EQUAL(nvml_init(), 0);
    CHECK_EQUAL(setting_connections(), 1);
    cuda = load(REMOTE_FOLDER "libcuda.so.1");
    find(&init, cuda, "cuInit");
    CHECK(init != cuInit); /* the test has the same code, for the worker's side */
    CHECK_EQUAL(init(0), 0);
    find(&count, nvml, "nvmlUnitGetCount");
    CHECK_EQUAL(count(&units), 0);
    CHECK_EQUAL(units, 12040);
    CHECK_EQUAL(setting_connections(), 1);
    CHECK_EQUAL(setting_records(), 3);
    return 0;
}
