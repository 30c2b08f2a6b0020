#include "share/test/tenant.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static struct tenant *made;

static void remove_at_exit(void) {
    if (made != NULL && made->owner == getpid()) {
        tenant_remove(made);
    }
}

const char *tenant_path(const struct tenant *tenant, const char *file) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", tenant->directory, file);
    return path;
}

static void write_page(const struct tenant *tenant, const char *file, const void *bytes,
                       size_t size, size_t whole) {
    int fd = open(tenant_path(tenant, file), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    CHECK_EQUAL(write(fd, bytes, size), size);
    CHECK(ftruncate(fd, (off_t)whole) == 0);
    CHECK(close(fd) == 0);
}

void tenant_make(struct tenant *tenant, unsigned gpus, uint64_t limit) {
    static dv_page_config config;
    static dv_page_state state;
    *tenant = (struct tenant){.directory = "/tmp/divvy-share-test-XXXXXX", .owner = getpid()};
    CHECK(mkdtemp(tenant->directory) != NULL);
    if (made == NULL) {
        atexit(remove_at_exit);
    }
    made = tenant;
    tenant->state_size = sizeof state + gpus * sizeof(dv_page_gpu);
    memset(&config, 0, sizeof config);
    memset(&state, 0, sizeof state);
    config.header = (dv_page_header){DV_PAGE_CONFIG_MAGIC, DV_PAGE_VERSION, sizeof config};
    config.device_count = gpus;
    config.pid_namespace = os_pid_namespace();
    strcpy(config.id, "t1");
    strcpy(config.name, "tenant one");
    for (unsigned i = 0; i < gpus; i++) {
        memset(config.device[i].uuid, (int)(i + 1), sizeof config.device[i].uuid);
        strcpy(config.device[i].pci_bus_id, "00000000:3b:00.0");
        config.device[i].limit = limit;
        config.device[i].total = 80 * (MIB << 10);
        config.device[i].context_bytes = 400 * MIB;
        config.device[i].pool_chunk = 32 * MIB;
        config.device[i].weight = 1;
    }
    state.header =
        (dv_page_header){DV_PAGE_STATE_MAGIC, DV_PAGE_VERSION, (uint32_t)tenant->state_size};
    state.device_count = gpus;
    write_page(tenant, "config", &config, sizeof config, sizeof config);
    write_page(tenant, "state", &state, sizeof state, tenant->state_size);
}

void tenant_grant(const struct tenant *tenant, unsigned gpu, const dv_page_budget *budget) {
    size_t offset = offsetof(dv_page_config, device) + gpu * sizeof(dv_page_device) +
                    offsetof(dv_page_device, budget);
    tenant_write(tenant, "config", offset, budget, sizeof *budget);
}

void tenant_remove(struct tenant *tenant) {
    DIR *directory = opendir(tenant->directory);
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        unlinkat(dirfd(directory), entry->d_name, 0);
    }
    if (directory != NULL) {
        closedir(directory);
    }
    rmdir(tenant->directory);
    if (made == tenant) {
        made = NULL;
    }
}

void tenant_write(const struct tenant *tenant, const char *file, size_t offset, const void *bytes,
                  size_t size) {
    int fd = open(tenant_path(tenant, file), O_WRONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK_EQUAL(pwrite(fd, bytes, size, (off_t)offset), size);
    CHECK(close(fd) == 0);
}

static dv_share *open_directory(const char *directory) {
    dv_share *share = NULL;
    dv_reason reason;
    if (dv_share_open(directory, &share, &reason) != DV_OK) {
        fprintf(stderr, "%s\n", reason.text);
        exit(1);
    }
    return share;
}

dv_share *tenant_open(const struct tenant *tenant) {
    return open_directory(tenant->directory);
}

dv_share *tenant_open_again(const dv_share *share) {
    char directory[sizeof share->path];
    memcpy(directory, share->path, sizeof directory);
    *strrchr(directory, '/') = '\0';
    return open_directory(directory);
}

uint64_t used_bytes(dv_share *share, unsigned device) {
    dv_usage_t usage;
    CHECK(dv_usage(share, device, &usage));
    return usage.used;
}

uint64_t pending_bytes(dv_share *share, unsigned device) {
    dv_usage_t usage;
    CHECK(dv_usage(share, device, &usage));
    return usage.pending;
}

void check_sums(dv_share *share) {
    for (unsigned device = 0; device < share->device_count; device++) {
        uint64_t used = 0, pending = 0;
        for (unsigned slot = 0; slot < DV_PAGE_SLOTS; slot++) {
            balance held = journal_balance(&share->gpu[device], slot);
            used += held_bytes(held) / DV_PAGE_UNIT;
            pending += amounts_pending(held.amounts);
        }
        for (unsigned i = 0; i < DV_PAGE_EXPORTS; i++) {
            const dv_page_export *export = &share->state->export[i];
            if (export->state == DV_PAGE_EXPORT_LIVE && export->device == device) {
                used += export->units;
            }
        }
        CHECK_EQUAL(used_bytes(share, device), used * DV_PAGE_UNIT);
        CHECK_EQUAL(pending_bytes(share, device), pending * DV_PAGE_UNIT);
    }
}

void die_with_parent(void) {
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
}

pid_t spawn(void (*body)(void *arg), void *arg) {
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        die_with_parent();
        body(arg);
        _exit(0);
    }
    return child;
}

void wait_exited(pid_t child) {
    int status;
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    CHECK_EQUAL(WEXITSTATUS(status), 0);
}

void wait_killed(pid_t child) {
    int status;
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status));
    CHECK_EQUAL(WTERMSIG(status), SIGKILL);
}

void wait_stopped(pid_t child) {
    int status;
    CHECK_EQUAL(waitpid(child, &status, WUNTRACED), child);
    CHECK(WIFSTOPPED(status));
}
