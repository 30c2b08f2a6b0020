/* Opening a share: what it tells, and that a damaged page is refused with its cause and next
   step. */
#define _GNU_SOURCE /* syscall */
#include "share/test/tenant.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The file whose opening answers the one at `instead`; NULL for none. */
static const char *replaced, *instead;

/* Stands before libc's function, as a preloaded one of a program that wants another limit. */
int open(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    mode_t mode = (flags & O_CREAT) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    if (replaced != NULL && strcmp(path, replaced) == 0) {
        path = instead;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

static void expect(const struct tenant *tenant, dv_status status, const char *word) {
    dv_share *share = (dv_share *)(uintptr_t)1;
    dv_reason reason;
    CHECK_EQUAL(dv_share_open(tenant->directory, &share, &reason), status);
    CHECK(share == NULL);
    if (strstr(reason.text, word) == NULL || strchr(reason.text, '\n') != NULL) {
        fprintf(stderr, "\"%s\" is not about \"%s\"\n", reason.text, word);
        exit(1);
    }
    /* The next step is what follows the semicolon. */
    CHECK(strchr(reason.text, ';') != NULL);
    CHECK_EQUAL(dv_share_open(tenant->directory, &share, NULL), status);
}

static void tells_what_is_configured(void) {
    struct tenant tenant;
    tenant_make(&tenant, 3, 64 * MIB);
    dv_share *share = tenant_open(&tenant);
    CHECK_EQUAL(dv_share_device_count(share), 3);
    const dv_page_device *device = dv_share_device(share, 2);
    CHECK_EQUAL(device->limit, 64 * MIB);
    CHECK_EQUAL(device->context_bytes, 400 * MIB);
    CHECK_EQUAL(dv_share_find(share, device->uuid), 2);
    CHECK(dv_share_find(share, (const uint8_t *)"no such device..") == -1);
    CHECK(dv_share_device(share, 3) == NULL);
    CHECK_EQUAL(dv_share_limit(share, 3), 0);
    dv_usage_t usage;
    CHECK(!dv_usage(share, 3, &usage));
    CHECK(dv_usage(share, 0, &usage));
    CHECK_EQUAL(usage.limit, 64 * MIB);
    CHECK_EQUAL(usage.used, 0);
    CHECK_EQUAL(dv_reserve(share, 3, 1), DV_NO_DEVICE);
    tenant_remove(&tenant);
}

/* One field of a page takes a value it must not have. */
struct damage {
    const char *file;
    size_t offset;
    uint64_t value;
    size_t size;
    dv_status status;
    const char *word;
};

#define DEVICE(field) offsetof(dv_page_config, device) + offsetof(dv_page_device, field)

static const struct damage damages[] = {
    {"config", 0, 0, 8, DV_CORRUPT, "not a page"},
    {"config", 8, 2, 4, DV_OLD_PAGE, "reads 6; stop the share and start it"},
    {"config", 8, 1, 4, DV_OLD_PAGE, "version 1"},
    {"config", 8, 0, 4, DV_OLD_PAGE, "version 0"},
    {"config", 12, 64, 4, DV_CORRUPT, "bytes"},
    {"config", 12, UINT32_MAX, 4, DV_CORRUPT, "bytes"},
    {"config", offsetof(dv_page_config, sequence), 1, 4, DV_CORRUPT, "half written"},
    {"config", offsetof(dv_page_config, device_count), 0, 4, DV_CORRUPT, "0 GPUs"},
    {"config", offsetof(dv_page_config, device_count), DV_PAGE_DEVICES + 1, 4, DV_CORRUPT, "GPUs"},
    {"config", offsetof(dv_page_config, device_count), 2, 4, DV_CORRUPT, "GPU 1"},
    {"config", DEVICE(limit), 0, 8, DV_CORRUPT, "impossible"},
    {"config", DEVICE(limit), UINT64_MAX, 8, DV_CORRUPT, "impossible"},
    {"config", DEVICE(cores), 101, 4, DV_CORRUPT, "impossible"},
    {"config", DEVICE(max_cores), 101, 4, DV_CORRUPT, "impossible"},
    {"config", DEVICE(weight), 0, 4, DV_CORRUPT, "impossible"},
    {"config", DEVICE(policy), 3, 4, DV_CORRUPT, "impossible"},
    {"config", DEVICE(class), 2, 4, DV_CORRUPT, "impossible"},
    {"config", offsetof(dv_page_config, flags), DV_PAGE_FLAG_MPS, 4, DV_CORRUPT, "MPS"},
    {"config", offsetof(dv_page_config, mps_pipe), '/', 1, DV_CORRUPT, "MPS"},
    {"config", offsetof(dv_page_config, flags), DV_PAGE_FLAG_MIG, 4, DV_CORRUPT, "MIG"},
    {"config", DEVICE(parent), 1, 1, DV_CORRUPT, "MIG"},
    {"config", offsetof(dv_page_config, flags), DV_PAGE_FLAG_SWAP, 4, DV_CORRUPT,
     "devices of a swap share"},
    {"state", 0, DV_PAGE_CONFIG_MAGIC, 8, DV_CORRUPT, "not a page"},
    {"state", 8, 7, 4, DV_OLD_PAGE, "version 7"},
    {"state", 12, 16, 4, DV_CORRUPT, "bytes"},
    {"state", offsetof(dv_page_state, device_count), 2, 4, DV_CORRUPT, "GPUs"},
};

static void refuses_damaged_pages(void) {
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        const struct damage *damage = &damages[i];
        struct tenant tenant;
        tenant_make(&tenant, 1, 64 * MIB);
        tenant_write(&tenant, damage->file, damage->offset, &damage->value, damage->size);
        expect(&tenant, damage->status, damage->word);
        tenant_remove(&tenant);
    }
}

static void knows_its_control_daemon(void) {
    static const struct {
        const char *pipe;
        unsigned gpus;
        dv_status status;
    } pages[] = {
        {"/run/pipe", 1, DV_OK}, {"run/pipe", 1, DV_CORRUPT}, {"/run/pipe", 2, DV_CORRUPT}};
    uint32_t flags = DV_PAGE_FLAG_MPS;
    for (size_t i = 0; i <= sizeof pages / sizeof pages[0]; i++) {
        struct tenant tenant;
        char pipe[DV_PAGE_PIPE_BYTES] = "/";
        bool longest = i == sizeof pages / sizeof pages[0];
        if (longest) {
            memset(pipe + 1, 'p', sizeof pipe - 1); /* ends with no zero byte */
        } else {
            strcpy(pipe, pages[i].pipe);
        }
        tenant_make(&tenant, longest ? 1 : pages[i].gpus, 64 * MIB);
        tenant_write(&tenant, "config", offsetof(dv_page_config, flags), &flags, sizeof flags);
        tenant_write(&tenant, "config", offsetof(dv_page_config, mps_pipe), pipe, sizeof pipe);
        if (!longest && pages[i].status == DV_OK) {
            dv_share *share = tenant_open(&tenant);
            CHECK(strcmp(dv_share_mps_pipe(share), pipe) == 0);
            CHECK_EQUAL(dv_share_owner(share), geteuid());
        } else {
            expect(&tenant, DV_CORRUPT, "MPS");
        }
        tenant_remove(&tenant);
    }
    struct tenant other;
    tenant_make(&other, 1, 64 * MIB);
    CHECK(dv_share_mps_pipe(tenant_open(&other)) == NULL);
    tenant_remove(&other);
}

static void refuses_truncated_and_missing_pages(void) {
    static const char *const files[] = {"config", "state"};
    static const off_t sizes[] = {0, 1, 15, 16, 4096, sizeof(dv_page_config) - 1};
    for (size_t file = 0; file < 2; file++) {
        struct tenant tenant;
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            tenant_make(&tenant, 1, 64 * MIB);
            CHECK(truncate(tenant_path(&tenant, files[file]), sizes[i]) == 0);
            expect(&tenant, DV_CORRUPT, files[file]);
            tenant_remove(&tenant);
        }
        tenant_make(&tenant, 1, 64 * MIB);
        CHECK(unlink(tenant_path(&tenant, files[file])) == 0);
        expect(&tenant, DV_NO_SHARE, "No such file");
        CHECK(symlink("/etc/hostname", tenant_path(&tenant, files[file])) == 0);
        expect(&tenant, DV_NO_SHARE, files[file]);
        tenant_remove(&tenant);
    }
}

/* A page that lies elsewhere serves nobody, however sound it is. */
static void refuses_pages_of_elsewhere(void) {
    static const char *const files[] = {"config", "state"};
    struct tenant tenant, other;
    char from[128], to[128];
    tenant_make(&tenant, 1, 64 * MIB);
    tenant_make(&other, 1, 128 * MIB);
    for (size_t file = 0; file < 2; file++) {
        snprintf(from, sizeof from, "%s", tenant_path(&tenant, files[file]));
        snprintf(to, sizeof to, "%s", tenant_path(&other, files[file]));
        replaced = from;
        instead = to;
        expect(&tenant, DV_NO_SHARE, files[file]);
        replaced = NULL;
    }
    tenant_open(&tenant);
    tenant_remove(&other);
    tenant_remove(&tenant);
}

/* A few bytes anywhere take any value: an answer, with a reason unless the page is still sound. */
static void answers_random_damage(void) {
    unsigned seed = 1;
    for (unsigned round = 0; round < 400; round++) {
        struct tenant tenant;
        tenant_make(&tenant, 2, 64 * MIB);
        for (unsigned i = (unsigned)rand_r(&seed) % 8; i > 0; i--) {
            bool config = rand_r(&seed) % 2 == 0;
            size_t size = config ? sizeof(dv_page_config) : tenant.state_size;
            size_t reach = rand_r(&seed) % 2 == 0 ? 64 : size;
            uint8_t value = (uint8_t)rand_r(&seed);
            tenant_write(&tenant, config ? "config" : "state", (size_t)rand_r(&seed) % reach,
                         &value, 1);
        }
        dv_share *share;
        dv_reason reason;
        if (dv_share_open(tenant.directory, &share, &reason) == DV_OK) {
            CHECK(reason.text[0] == '\0');
            dv_reserve(share, dv_share_device_count(share) - 1, MIB);
        } else {
            CHECK(share == NULL && reason.text[0] != '\0');
        }
        tenant_remove(&tenant);
    }
}

static void refuses_a_long_path(void) {
    static char path[8192];
    memset(path, 'x', sizeof path - 1);
    dv_share *share;
    dv_reason reason;
    CHECK_EQUAL(dv_share_open(path, &share, &reason), DV_NO_SHARE);
    CHECK(strstr(reason.text, "too long") != NULL);
}

/* The agent changes a limit while processes run. */
static void follows_the_limit(void) {
    struct tenant tenant;
    tenant_make(&tenant, 1, 8 * MIB);
    dv_share *share = tenant_open(&tenant);
    CHECK_EQUAL(dv_reserve(share, 0, 8 * MIB), DV_OK);
    dv_settle(share, 0, 8 * MIB, 8 * MIB);
    CHECK_EQUAL(dv_reserve(share, 0, MIB), DV_NO_MEMORY);
    uint64_t limit = 16 * MIB;
    tenant_write(&tenant, "config", DEVICE(limit), &limit, sizeof limit);
    CHECK_EQUAL(dv_share_limit(share, 0), limit);
    CHECK_EQUAL(dv_reserve(share, 0, MIB), DV_OK);
    dv_settle(share, 0, MIB, 0);
    limit = 4 * MIB;
    tenant_write(&tenant, "config", DEVICE(limit), &limit, sizeof limit);
    CHECK_EQUAL(dv_reserve(share, 0, 512), DV_NO_MEMORY);
    CHECK_EQUAL(used_bytes(share, 0), 8 * MIB);
    tenant_remove(&tenant);
}

/* Damage to the page of a living process allows it nothing, least of all more. */
static void allows_nothing_beyond_the_gpu(void) {
    struct tenant tenant;
    tenant_make(&tenant, 1, 8 * MIB);
    dv_share *share = tenant_open(&tenant);
    CHECK_EQUAL(dv_reserve(share, 0, 2 * MIB), DV_OK);
    dv_settle(share, 0, 2 * MIB, 2 * MIB);
    const uint64_t total = dv_share_device(share, 0)->total, damaged[] = {total + 1, UINT64_MAX, 0};
    for (unsigned i = 0; i < 3; i++) {
        tenant_write(&tenant, "config", DEVICE(limit), &damaged[i], sizeof damaged[i]);
        CHECK_EQUAL(dv_share_limit(share, 0), 0);
        CHECK_EQUAL(dv_reserve(share, 0, 2 * MIB), DV_NO_MEMORY);
    }
    tenant_write(&tenant, "config", DEVICE(limit), &total, sizeof total);
    CHECK_EQUAL(dv_reserve(share, 0, 16 * MIB), DV_OK);
    tenant_remove(&tenant);
}

int main(void) {
    tells_what_is_configured();
    refuses_damaged_pages();
    knows_its_control_daemon();
    refuses_truncated_and_missing_pages();
    refuses_pages_of_elsewhere();
    answers_random_damage();
    refuses_a_long_path();
    follows_the_limit();
    allows_nothing_beyond_the_gpu();
    return 0;
}
