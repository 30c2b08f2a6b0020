/* A share whose pages cannot be trusted: NVML does not start, says why only when asked, and starts
 * once the pages are right. */
#define _GNU_SOURCE
#include "nvml/test/setting.h"

#include "abi/generated/page_layout.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static struct setting setting;

static void check_closed(void) {
    unsigned int count = 77;
    CHECK_EQUAL(NVML(&setting, nvmlInit_v2)(), NVML_ERROR_UNKNOWN);
    CHECK_EQUAL(NVML(&setting, nvmlInit)(), NVML_ERROR_UNKNOWN);
    CHECK_EQUAL(NVML(&setting, nvmlInitWithFlags)(0), NVML_ERROR_UNKNOWN);
    CHECK_EQUAL(setting.driver->sessions, 0);
    CHECK_EQUAL(NVML(&setting, nvmlDeviceGetCount_v2)(&count), NVML_ERROR_UNINITIALIZED);
    CHECK_EQUAL(count, 77);
}

static void change(const char *file, off_t offset, const void *bytes, size_t size) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", setting.directory, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK(pwrite(fd, bytes, size, offset) == (ssize_t)size);
    close(fd);
}

static void move(const char *from, const char *to) {
    char old[128], new[128];
    snprintf(old, sizeof old, "%s/%s", setting.directory, from);
    snprintf(new, sizeof new, "%s/%s", setting.directory, to);
    CHECK(rename(old, new) == 0);
}

static size_t read_log(const char *path, char *text, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, size - 1) : 0;
    CHECK(got >= 0);
    text[got] = '\0';
    close(fd);
    return (size_t)got;
}

/* The reason names the directory, and nothing is written anywhere without being asked. */
static void test_log(void) {
    char log[128], text[2048];
    snprintf(log, sizeof log, "%s/log", setting.directory);
    CHECK(setenv("DIVVY_LOG", log, 1) == 0);
    CHECK_EQUAL(NVML(&setting, nvmlInit_v2)(), NVML_ERROR_UNKNOWN);
    CHECK(unsetenv("DIVVY_LOG") == 0);
    size_t length = read_log(log, text, sizeof text);
    CHECK(length > 0 && text[length - 1] == '\n');
    CHECK(strstr(text, setting.directory) != NULL);
    CHECK_EQUAL(NVML(&setting, nvmlInit_v2)(), NVML_ERROR_UNKNOWN);
    CHECK_EQUAL(read_log(log, text, sizeof text), length);
    CHECK(unlink(log) == 0);
}

int main(void) {
    const uint32_t other = DV_PAGE_VERSION + 1, version = DV_PAGE_VERSION;
    const off_t version_at = offsetof(dv_page_header, version);
    unsigned int count = 0;
    setting_make(&setting);

    move("config", "away");
    check_closed();
    test_log();
    move("away", "config");

    move("state", "away");
    check_closed();
    move("away", "state");

    change("config", version_at, &other, sizeof other);
    check_closed();
    change("config", version_at, &version, sizeof version);

    change("state", version_at, &other, sizeof other);
    check_closed();
    change("state", version_at, &version, sizeof version);

    CHECK_EQUAL(NVML(&setting, nvmlInit_v2)(), NVML_SUCCESS);
    CHECK_EQUAL(NVML(&setting, nvmlDeviceGetCount_v2)(&count), NVML_SUCCESS);
    CHECK_EQUAL(count, SHARE_GPUS);
    return 0;
}
