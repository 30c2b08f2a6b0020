/* Whose slot is alive: fork, exec, closed descriptors, several copies, many processes. */
#define _GNU_SOURCE
#include "share/test/copy.h"
#include "share/test/tenant.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct tenant tenant;
static const char *program;

/* What test and children tell each other; each step is a word that only grows. */
struct steps {
    uint32_t charged, done;
    uint64_t start_time;
};
static struct steps *steps;

/* Not for ever: one of those who wait outlives its parent on purpose. */
static void await(const uint32_t *word, uint32_t value) {
    uint64_t end = os_now_ns() + 300000000000u;
    for (uint32_t now = load32(word); now < value; now = load32(word)) {
        CHECK(os_now_ns() < end);
        os_futex_wait(word, now, 10000000);
    }
}

static void reach(uint32_t *word, uint32_t value) {
    store32(word, value);
    os_futex_wake(word);
}

static void begin(uint64_t limit) {
    tenant_make(&tenant, 1, limit);
    memset(steps, 0, sizeof *steps);
}

static void charge(dv_share *share, uint64_t bytes) {
    CHECK_EQUAL(dv_reserve(share, 0, bytes), DV_OK);
    dv_settle(share, 0, bytes, bytes);
}

static bool count(const dv_process *process, void *arg) {
    (void)process;
    ++*(unsigned *)arg;
    return true;
}

static unsigned process_count(dv_share *share) {
    unsigned processes = 0;
    dv_processes(share, count, &processes);
    return processes;
}

static void fork_and_die(void *arg) {
    bool told = *(bool *)arg;
    dv_share *share = tenant_open(&tenant);
    charge(share, 2 * MIB);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child > 0) {
        await(&steps->charged, 1);
        raise(SIGKILL);
    }
    if (told) {
        dv_share_forked(share);
        CHECK_EQUAL(share->slot, SLOT_NONE);
        dv_release(share, 0, 2 * MIB); /* the parent's, not ours */
        charge(share, MIB);
        CHECK_EQUAL(process_count(share), 2);
    }
    reach(&steps->charged, 1);
    await(&steps->done, 1);
    _exit(0);
}

/* The child outlives its parent. The parent's balance goes all the same, the child's stays; so even
 * if the child's fork went past the handlers. */
static void a_fork_child_is_a_process_of_its_own(bool told) {
    begin(8 * MIB);
    dv_share *share = tenant_open(&tenant);
    wait_killed(spawn(fork_and_die, &told));
    CHECK_EQUAL(used_bytes(share, 0), told ? 3 * MIB : 2 * MIB);
    CHECK_EQUAL(dv_reap(share), 1);
    CHECK_EQUAL(used_bytes(share, 0), told ? MIB : 0);
    reach(&steps->done, 1);
    tenant_remove(&tenant);
}

static void close_everything(void *arg) {
    (void)arg;
    dv_share *share = tenant_open(&tenant);
    charge(share, 2 * MIB);
    CHECK(syscall(SYS_close_range, 3, ~0u, 0) == 0 || errno == ENOSYS);
    reach(&steps->charged, 1);
    await(&steps->done, 1);
}

static void closing_descriptors_changes_nothing(void) {
    begin(8 * MIB);
    dv_share *share = tenant_open(&tenant);
    pid_t child = spawn(close_everything, NULL);
    await(&steps->charged, 1);
    CHECK_EQUAL(dv_reap(share), 0);
    CHECK_EQUAL(used_bytes(share, 0), 2 * MIB);
    reach(&steps->done, 1);
    wait_exited(child);
    CHECK_EQUAL(dv_reap(share), 1);
    tenant_remove(&tenant);
}

/* Becomes a program that writes a byte to the pipe on descriptor 1 and waits for the end of 0. */
static void exec_other(void *arg) {
    int *pipes = arg;
    dv_share *share = tenant_open(&tenant);
    charge(share, 2 * MIB);
    CHECK(dup2(pipes[0], 0) == 0 && dup2(pipes[3], 1) == 1);
    CHECK(syscall(SYS_close_range, 3, ~0u, 0) == 0 || errno == ENOSYS);
    execl(program, program, "wait", (char *)NULL);
    _exit(2);
}

static void exec_ends_a_slot(void) {
    begin(8 * MIB);
    dv_share *share = tenant_open(&tenant);
    int pipes[4];
    char byte;
    CHECK(pipe2(pipes, O_CLOEXEC) == 0 && pipe2(pipes + 2, O_CLOEXEC) == 0);
    pid_t child = spawn(exec_other, pipes);
    close(pipes[3]);
    CHECK_EQUAL(read(pipes[2], &byte, 1), 1);
    CHECK_EQUAL(dv_reap(share), 1);
    CHECK_EQUAL(used_bytes(share, 0), 0);
    close(pipes[1]);
    wait_exited(child);
    close(pipes[0]);
    close(pipes[2]);
    tenant_remove(&tenant);
}

static void load_copies(void *arg) {
    (void)arg;
    void *first = dlopen(COPY_UNDER_TEST, RTLD_NOW | RTLD_LOCAL);
    void *second = dlmopen(LM_ID_NEWLM, COPY_UNDER_TEST, RTLD_NOW | RTLD_LOCAL);
    CHECK(first != NULL && second != NULL && first != second);
    __typeof__(&copy_charge) one = (__typeof__(&copy_charge))(uintptr_t)dlsym(first, "copy_charge");
    __typeof__(&copy_charge) two =
        (__typeof__(&copy_charge))(uintptr_t)dlsym(second, "copy_charge");
    CHECK(one != NULL && two != NULL && one != two);
    int slot = one(tenant.directory, MIB);
    CHECK(slot >= 0);
    CHECK_EQUAL(two(tenant.directory, 2 * MIB), slot);
    CHECK_EQUAL(one(tenant.directory, 512), slot);
    dv_share *share = tenant_open(&tenant);
    CHECK_EQUAL(used_bytes(share, 0), 3 * MIB + 512);
    CHECK_EQUAL(process_count(share), 1);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ONE_RUNTIME true
#else
#define ONE_RUNTIME false
#endif

static void copies_share_a_slot(void) {
    if (ONE_RUNTIME) {
        puts("skipped: a sanitizer's runtime cannot be loaded twice; the plain build tests this");
        return;
    }
    begin(8 * MIB);
    wait_exited(spawn(load_copies, NULL));
    dv_share *share = tenant_open(&tenant);
    CHECK_EQUAL(dv_reap(share), 1);
    CHECK_EQUAL(used_bytes(share, 0), 0);
    tenant_remove(&tenant);
}

static void start_and_stay(void *arg) {
    (void)arg;
    dv_share *share = tenant_open(&tenant);
    charge(share, 512);
    __atomic_fetch_add(&steps->charged, 1, __ATOMIC_SEQ_CST);
    os_futex_wake(&steps->charged);
    await(&steps->done, 1);
}

static void many_start_at_once(void) {
    enum { PROCESSES = 200 };
    pid_t children[PROCESSES];
    begin(8 * MIB);
    dv_share *share = tenant_open(&tenant);
    for (unsigned i = 0; i < PROCESSES; i++) {
        children[i] = spawn(start_and_stay, NULL);
    }
    await(&steps->charged, PROCESSES);
    CHECK_EQUAL(process_count(share), PROCESSES);
    CHECK_EQUAL(used_bytes(share, 0), PROCESSES * 512);
    CHECK_EQUAL(dv_reap(share), 0);
    reach(&steps->done, 1);
    for (unsigned i = 0; i < PROCESSES; i++) {
        wait_exited(children[i]);
    }
    CHECK_EQUAL(dv_reap(share), PROCESSES);
    CHECK_EQUAL(used_bytes(share, 0), 0);
    CHECK_EQUAL(process_count(share), 0);
    tenant_remove(&tenant);
}

static void die_charged(void *arg) {
    (void)arg;
    charge(tenant_open(&tenant), 6 * MIB);
    raise(SIGKILL);
}

static void reserve_at_the_word(void *arg) {
    (void)arg;
    dv_share *share = tenant_open(&tenant);
    charge(share, 512);
    __atomic_fetch_add(&steps->charged, 1, __ATOMIC_SEQ_CST);
    while (load32(&steps->done) == 0) {
    }
    CHECK_EQUAL(dv_reserve(share, 0, 2 * MIB - 512), DV_OK);
    dv_settle(share, 0, 2 * MIB - 512, 2 * MIB - 512);
}

/* The dead process's memory counts as free for all who ask, also while one of them frees it. */
static void nobody_is_refused_while_another_reaps(void) {
    enum { ROUNDS = 30, PROCESSES = 4 };
    for (unsigned round = 0; round < ROUNDS; round++) {
        pid_t children[PROCESSES];
        begin(8 * MIB);
        for (unsigned i = 0; i < PROCESSES; i++) {
            children[i] = spawn(reserve_at_the_word, NULL);
        }
        await(&steps->charged, PROCESSES);
        wait_killed(spawn(die_charged, NULL));
        store32(&steps->done, 1);
        for (unsigned i = 0; i < PROCESSES; i++) {
            wait_exited(children[i]);
        }
        tenant_remove(&tenant);
    }
}

static void *stay(void *arg) {
    (void)arg;
    await(&steps->done, 1);
    _exit(0);
}

static void leave_a_thread(void *arg) {
    (void)arg;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, stay, NULL) == 0);
    steps->start_time = os_start_time();
    reach(&steps->charged, 1);
    syscall(SYS_exit, 0); /* this thread alone */
}

/* A process of which only parts are left has not closed its files; a zombie has, and so has whoever
 * bears its number later. */
static void knows_who_is_leaving(void) {
    begin(8 * MIB);
    CHECK(!os_process_exiting(getpid(), os_start_time()));
    pid_t child = spawn(leave_a_thread, NULL);
    await(&steps->charged, 1);
    uint64_t end = os_now_ns() + 300000000000u;
    while (!os_process_exiting(child, steps->start_time)) {
        CHECK(os_now_ns() < end);
    }
    CHECK(!os_process_exiting(child, steps->start_time + 1));
    reach(&steps->done, 1);
    siginfo_t info;
    CHECK(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) == 0);
    CHECK(!os_process_exiting(child, steps->start_time));
    wait_exited(child);
    CHECK(!os_process_exiting(child, steps->start_time));
    tenant_remove(&tenant);
}

static bool check_self(const dv_process *process, void *arg) {
    CHECK_EQUAL(process->pid, getpid());
    CHECK_EQUAL(process->host_pid, getpid()); /* the test is its own agent */
    CHECK(process->self);
    CHECK_EQUAL(process->used[0], 3 * MIB);
    return count(process, arg);
}

static void lists_processes(void) {
    begin(8 * MIB);
    dv_share *share = tenant_open(&tenant);
    unsigned seen = 0;
    dv_processes(share, check_self, &seen);
    CHECK_EQUAL(seen, 0); /* nothing charged, no slot */
    charge(share, 2 * MIB);
    dv_overhead(share, 0, MIB);
    dv_processes(share, check_self, &seen);
    CHECK_EQUAL(seen, 1);
    tenant_remove(&tenant);
}

static void a_full_table_refuses(void) {
    begin(8 * MIB);
    dv_share *share = tenant_open(&tenant);
    int file = open(tenant_path(&tenant, "state"), O_RDWR | O_CLOEXEC);
    struct flock all = {.l_type = F_WRLCK,
                        .l_whence = SEEK_SET,
                        .l_start = (off_t)DV_PAGE_LOCK_BASE,
                        .l_len = DV_PAGE_SLOTS};
    CHECK(fcntl(file, F_OFD_SETLK, &all) == 0);
    CHECK_EQUAL(dv_reserve(share, 0, 512), DV_NO_SLOT);
    CHECK(close(file) == 0);
    CHECK_EQUAL(dv_reserve(share, 0, 512), DV_OK);
    tenant_remove(&tenant);
}

/* A file that took the page's place is not the page. */
static void a_replaced_page_is_refused(void) {
    begin(8 * MIB);
    dv_share *share = tenant_open(&tenant);
    CHECK(unlink(tenant_path(&tenant, "state")) == 0);
    CHECK_EQUAL(dv_reserve(share, 0, 512), DV_NO_SHARE);
    int file = open(tenant_path(&tenant, "state"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(file >= 0 && close(file) == 0);
    CHECK_EQUAL(dv_reserve(share, 0, 512), DV_NO_SHARE);
    tenant_remove(&tenant);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        char byte = 0;
        return write(1, &byte, 1) == 1 && read(0, &byte, 1) == 0 ? 0 : 1;
    }
    program = argv[0];
    steps = mmap(NULL, sizeof *steps, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(steps != MAP_FAILED);
    a_fork_child_is_a_process_of_its_own(true);
    a_fork_child_is_a_process_of_its_own(false);
    closing_descriptors_changes_nothing();
    exec_ends_a_slot();
    copies_share_a_slot();
    many_start_at_once();
    nobody_is_refused_while_another_reaps();
    knows_who_is_leaving();
    lists_processes();
    a_full_table_refuses();
    a_replaced_page_is_refused();
    return 0;
}
