/* The program divvy-reap, as the agent runs it. */
#define _GNU_SOURCE
#include "share/test/tenant.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct tenant tenant;

static void charge_and(dv_share *share, int end) {
    CHECK_EQUAL(dv_reserve(share, 0, 2 * MIB), DV_OK);
    dv_settle(share, 0, 2 * MIB, MIB);
    raise(end);
}

static void die(void *arg) {
    (void)arg;
    charge_and(tenant_open(&tenant), SIGKILL);
}

static void stop(void *arg) {
    (void)arg;
    charge_and(tenant_open(&tenant), SIGSTOP);
}

/* Runs the program on the tenant's directory; returns its exit status and what it printed. */
static int run(char *printed, size_t size) {
    int ends[2], status;
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        execl(REAPER_UNDER_TEST, "divvy-reap", tenant.directory, (char *)NULL);
        _exit(126);
    }
    close(ends[1]);
    size_t filled = 0;
    for (ssize_t got; (got = read(ends[0], printed + filled, size - 1 - filled)) > 0;) {
        filled += (size_t)got;
    }
    printed[filled] = '\0';
    close(ends[0]);
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void expect(int status, const char *output) {
    char printed[4096];
    CHECK_EQUAL(run(printed, sizeof printed), status);
    if (strcmp(printed, output) != 0) {
        fprintf(stderr, "printed %s, not %s\n", printed, output);
        exit(1);
    }
}

/* A close after writing is the agent's notice of a death: looking must not look like one. */
static bool noticed(int watch) {
    char events[4096];
    return read(watch, events, sizeof events) > 0;
}

static void reaps_the_dead_alone(void) {
    char expected[160];
    tenant_make(&tenant, 1, 16 * MIB);
    dv_share *share = tenant_open(&tenant);
    expect(0, "{\"reaped\": [], \"live\": 0, \"unfinished\": 0, \"settled\": 0}\n");
    pid_t living = spawn(stop, NULL);
    wait_stopped(living);
    pid_t dead = spawn(die, NULL);
    wait_killed(dead);
    snprintf(expected, sizeof expected,
             "{\"reaped\": [{\"slot\": 1, \"pid\": %d, \"bytes\": %llu}], \"live\": 1, "
             "\"unfinished\": 0, \"settled\": 0}\n",
             (int)dead, (unsigned long long)MIB);
    expect(0, expected);
    CHECK_EQUAL(used_bytes(share, 0), MIB);
    int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    CHECK(inotify_add_watch(watch, tenant_path(&tenant, "state"), IN_CLOSE_WRITE) >= 0);
    expect(0, "{\"reaped\": [], \"live\": 1, \"unfinished\": 0, \"settled\": 0}\n");
    CHECK(!noticed(watch));
    CHECK(kill(living, SIGKILL) == 0);
    wait_killed(living);
    CHECK(noticed(watch));
    close(watch);
    tenant_remove(&tenant);
}

/* Memory that a descriptor kept: looking alone must not look like a death here either. */
static void settles_what_descriptors_kept(void) {
    uint8_t key[DV_PAGE_EXPORT_KEY_BYTES];
    tenant_make(&tenant, 1, 16 * MIB);
    dv_share *share = tenant_open(&tenant);
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    CHECK_EQUAL(dv_reserve(share, 0, MIB), DV_OK);
    dv_settle(share, 0, MIB, MIB);
    dv_mark_key(dv_mark_new(), key);
    CHECK_EQUAL(dv_export_publish(share, 0, key, MIB), DV_OK);
    CHECK_EQUAL(dv_export_carry(share, key, fd), DV_OK);
    CHECK_EQUAL(dv_export_drop(share, key), DV_OK);
    int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    CHECK(inotify_add_watch(watch, tenant_path(&tenant, "state"), IN_CLOSE_WRITE) >= 0);
    expect(0, "{\"reaped\": [], \"live\": 1, \"unfinished\": 0, \"settled\": 0}\n");
    CHECK(!noticed(watch));
    CHECK_EQUAL(used_bytes(share, 0), MIB);
    close(fd);
    expect(0, "{\"reaped\": [], \"live\": 1, \"unfinished\": 0, \"settled\": 1048576}\n");
    CHECK_EQUAL(used_bytes(share, 0), 0);
    expect(0,
           "{\"reaped\": [], \"live\": 1, \"unfinished\": 0, \"settled\": 0}\n"); /* no slot left */
    check_sums(share);
    close(watch);
    tenant_remove(&tenant);
}

static void says_why_it_cannot(void) {
    tenant_make(&tenant, 1, 16 * MIB);
    CHECK(truncate(tenant_path(&tenant, "state"), 100) == 0);
    expect(1, "");
    CHECK(unlink(tenant_path(&tenant, "state")) == 0);
    expect(1, "");
    tenant_remove(&tenant);
}

static void ends_with_garbage(void) {
    tenant_make(&tenant, 1, 16 * MIB);
    char printed[1 << 17];
    static uint64_t garbage[4096];
    for (unsigned seed = 1; seed <= 8; seed++) {
        uint64_t random = seed;
        for (size_t i = 0; i < sizeof garbage / sizeof garbage[0]; i++) {
            garbage[i] = random = random * 6364136223846793005u + 1442695040888963407u;
        }
        for (size_t at = 64; at + sizeof garbage < tenant.state_size; at += sizeof garbage) {
            tenant_write(&tenant, "state", at, garbage, sizeof garbage);
        }
        int status = run(printed, sizeof printed);
        CHECK(status == 0 || status == 3);
    }
    tenant_remove(&tenant);
}

/* What a process in a container tells of itself, and when it may end. */
struct stranger {
    uint64_t pid, start_time, pid_namespace;
    uint32_t ready, over;
};

static void *stay(void *arg) {
    struct stranger *stranger = arg;
    while (load32(&stranger->over) == 0) {
        os_futex_wait(&stranger->over, 0, 10000000);
    }
    _exit(0);
}

/* Only a thread of it is left: the driver's files are open still. */
static void leave_a_thread(void *arg) {
    struct stranger *stranger = arg;
    pthread_t thread;
    stranger->pid = (uint64_t)getpid();
    stranger->start_time = os_start_time();
    stranger->pid_namespace = os_pid_namespace();
    CHECK(pthread_create(&thread, NULL, stay, stranger) == 0);
    store32(&stranger->ready, 1);
    os_futex_wake(&stranger->ready);
    syscall(SYS_exit, 0);
}

/* Makes slot 0 of the dead process the stranger's. */
static void write_slot(const struct stranger *stranger) {
    size_t slot = offsetof(dv_page_state, slot);
    uint32_t pid = (uint32_t)stranger->pid;
    tenant_write(&tenant, "state", slot + offsetof(dv_page_slot, pid), &pid, sizeof pid);
    tenant_write(&tenant, "state", slot + offsetof(dv_page_slot, start_time), &stranger->start_time,
                 sizeof stranger->start_time);
    tenant_write(&tenant, "state", slot + offsetof(dv_page_slot, pid_namespace),
                 &stranger->pid_namespace, sizeof stranger->pid_namespace);
}

/* A container's process is waited for until it has closed the driver's files, too. */
static void waits_for_strangers(void) {
    struct stranger *stranger =
        mmap(NULL, sizeof *stranger, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(stranger != MAP_FAILED);
    int own = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    CHECK(own >= 0);
    if (unshare(CLONE_NEWPID) != 0) {
        CHECK(errno == EPERM);
        puts("left out: pid namespaces cannot be made here");
        return;
    }
    pid_t child = spawn(leave_a_thread, stranger);
    CHECK_EQUAL(setns(own, CLONE_NEWPID), 0);
    close(own);
    while (load32(&stranger->ready) == 0) {
        os_futex_wait(&stranger->ready, 0, 10000000);
    }
    uint64_t end = os_now_ns() + 300000000000u;
    while (!os_process_exiting(child, stranger->start_time)) {
        CHECK(os_now_ns() < end);
    }
    CHECK_EQUAL(stranger->pid, 1);
    CHECK(stranger->pid_namespace != os_pid_namespace());

    tenant_make(&tenant, 1, 16 * MIB);
    dv_share *share = tenant_open(&tenant);
    wait_killed(spawn(die, NULL));
    write_slot(stranger);
    expect(3, "{\"reaped\": [], \"live\": 0, \"unfinished\": 1, \"settled\": 0}\n");
    CHECK_EQUAL(used_bytes(share, 0), MIB);
    store32(&stranger->over, 1);
    os_futex_wake(&stranger->over);
    wait_exited(child);
    expect(0, "{\"reaped\": [{\"slot\": 0, \"pid\": 1, \"bytes\": 1048576}], \"live\": 0, "
              "\"unfinished\": 0, \"settled\": 0}\n");
    CHECK_EQUAL(used_bytes(share, 0), 0);
    tenant_remove(&tenant);
}

int main(void) {
    reaps_the_dead_alone();
    waits_for_strangers();
    settles_what_descriptors_kept();
    says_why_it_cannot();
    ends_with_garbage();
    return 0;
}
