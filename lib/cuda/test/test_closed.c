/* Without a good page nothing is allowed, and the reason is told to whoever asks for it only. */
#define _GNU_SOURCE
#include "cuda/test/setting.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct setting s;

static void refuse_everything(void *arg) {
    CUcontext context;
    CUdeviceptr address = 4711;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    (void)arg;
    setting_open(&s);
    CHECK_EQUAL(CUDA(&s, cuInit)(0), CUDA_ERROR_SYSTEM_NOT_READY);
    CHECK_EQUAL(CUDA(&s, cuCtxCreate_v2)(&context, 0, 0), CUDA_ERROR_SYSTEM_NOT_READY);
    CHECK_EQUAL(CUDA(&s, cuDevicePrimaryCtxRetain)(&context, 0), CUDA_ERROR_SYSTEM_NOT_READY);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, 100), CUDA_ERROR_SYSTEM_NOT_READY);
    CHECK_EQUAL(CUDA(&s, cuMemAllocAsync)(&address, 100, NULL), CUDA_ERROR_SYSTEM_NOT_READY);
    CHECK_EQUAL(CUDA(&s, cuMemCreate)(&handle, 2 * MIB, &prop, 0), CUDA_ERROR_SYSTEM_NOT_READY);
    CHECK_EQUAL(address, 0);

    /* A driver that was initialised without us does not open the way either. */
    __extension__ CUresult (*init)(unsigned) = (CUresult (*)(unsigned))setting_real(&s, "cuInit");
    CHECK_EQUAL(init(0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, 100), CUDA_ERROR_SYSTEM_NOT_READY);
    CHECK_EQUAL(s.driver->allocs, 0);
}

/* Runs with the log in a file; *text is what it says. */
static void refuse(const char *value, char *text, size_t size) {
    char path[128];
    ssize_t got = 0;
    snprintf(path, sizeof path, "%s", setting_path(&s, "log"));
    unlink(path);
    if (value != NULL) {
        setenv("DIVVY_LOG", strcmp(value, "file") == 0 ? path : value, 1);
    } else {
        unsetenv("DIVVY_LOG");
    }
    wait_exited(spawn(refuse_everything, NULL));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        got = read(fd, text, size - 1);
        close(fd);
    }
    text[got > 0 ? got : 0] = '\0';
}

static void with_page_of(const char *file, off_t size, const char *reason) {
    char text[4096], kept[160], path[128];
    snprintf(path, sizeof path, "%s", setting_path(&s, file));
    snprintf(kept, sizeof kept, "%s.kept", path);
    CHECK(rename(path, kept) == 0);
    if (size >= 0) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        CHECK(fd >= 0 && ftruncate(fd, size) == 0 && close(fd) == 0);
    }
    refuse("file", text, sizeof text);
    CHECK(strstr(text, reason) != NULL);
    if (size >= 0) {
        CHECK(unlink(path) == 0);
    }
    CHECK(rename(kept, path) == 0);
}

int main(void) {
    char text[4096];
    uint32_t version = DV_PAGE_VERSION + 1, right = DV_PAGE_VERSION;
    size_t at = offsetof(dv_page_header, version);
    setting_make(&s, 1, 64 * MIB, NULL);
    with_page_of("config", -1, "config");
    with_page_of("state", -1, "state");
    with_page_of("config", 0, "config");
    with_page_of("config", 1 << 20, "config");
    with_page_of("state", 100, "state");
    tenant_write(&s.tenant, "config", at, &version, sizeof version);
    refuse("file", text, sizeof text);
    CHECK(strstr(text, "version") != NULL);
    refuse(NULL, text, sizeof text);
    CHECK(text[0] == '\0');
    tenant_write(&s.tenant, "config", at, &right, sizeof right);
    setting_open(&s);
    CHECK_EQUAL(CUDA(&s, cuInit)(0), CUDA_SUCCESS);
    return 0;
}
