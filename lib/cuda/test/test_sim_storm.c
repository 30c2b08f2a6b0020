/* Random exports, copies, passes, imports, closes and kills by several processes of two tenants, and by
 * processes that do not use CUDA. After each round, while all rest, each tenant must be charged to
 * the byte for what the simulated driver says it has, and for what it imported of the other.
 *
 *     sim_storm [OPERATIONS [SEED]]
 *
 * prints one JSON object. A failure repeats with its seed up to the order in which the kernel lets
 * the processes run. */
#define _GNU_SOURCE
#include "cuda/test/sim.h"
#include "cuda/test/storm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT (6144 * MIB)
#define STRAYS 32u
#define ROUND_SHARE 500u /* part of all operations that a process may do in one round */

static struct setting tenants[STORM_TENANTS];

/* What the parent knows of a process. */
static struct {
    pid_t pid;
    int control;
} processes[STORM_PROCESSES];

static int mailbox[STORM_PROCESSES][2]; /* the parent keeps them, and so what lies in them */
static int leash[2];                    /* whoever reads it ends with the parent */
static uint64_t seed, kills, done;
static uint64_t uncharged, stale; /* the most at the end of a round */

static void start(unsigned number) {
    int control[2];
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) == 0);
    fflush(stdout);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setpgid(0, 0);
        close(leash[1]);
        for (unsigned i = 0; i < STORM_PROCESSES; i++) {
            if (i != number && processes[i].pid != 0) {
                close(processes[i].control);
            }
        }
        close(control[0]);
        struct storm_self self = {.number = number, .control = control[1], .leash = leash[0]};
        for (unsigned i = 0; i < STORM_PROCESSES; i++) {
            self.mailbox[i] = mailbox[i][1];
        }
        self.inbox = mailbox[number][0];
        storm_serve(&self, number < STORM_USERS ? &tenants[number % STORM_TENANTS] : NULL);
        _exit(0);
    }
    close(control[1]);
    processes[number].pid = pid;
    processes[number].control = control[0];
}

/* Process groups of processes that were killed; their children live on for a while. */
static pid_t strays[STRAYS + STORM_PROCESSES];
static unsigned stray_count;

static void end_stray(unsigned which) {
    kill(-strays[which], SIGKILL);
    while (waitpid(-strays[which], NULL, 0) > 0) {
    }
    strays[which] = strays[--stray_count];
}

static void end(unsigned number) {
    kill(processes[number].pid, SIGKILL);
    wait_killed(processes[number].pid);
    strays[stray_count++] = processes[number].pid;
    close(processes[number].control);
    processes[number].pid = 0;
}

/* Waits for the end of a process's round; false if it was killed. */
static bool hear(unsigned number) {
    struct storm_report report;
    ssize_t size = read(processes[number].control, &report, sizeof report);
    if (size != sizeof report) {
        return false;
    }
    done += report.done;
    return true;
}

static void compare(unsigned tenant, uint64_t round) {
    struct setting *of = &tenants[tenant];
    dv_reap(of->share);
    dv_export_settle(of->share);
    check_sums(of->share);
    /* What only the other tenant's processes hold is charged to them. */
    uint64_t truth =
        sim_seen(of, 0, "used") - sim_seen(of, 0, "abroad") + sim_seen(of, 0, "imported");
    uint64_t used = used_bytes(of->share, 0);
    CHECK_EQUAL(pending_bytes(of->share, 0), 0);
    if (used != truth) {
        fprintf(stderr, "seed %llu, round %llu: tenant %u is charged %lld MiB too much\n",
                (unsigned long long)seed, (unsigned long long)round, tenant,
                ((long long)used - (long long)truth) / (long long)MIB);
    }
    uncharged = used < truth && truth - used > uncharged ? truth - used : uncharged;
    stale = used > truth && used - truth > stale ? used - truth : stale;
}

/* One round: all work at once, some are killed on the way, then all rest. */
static void play(uint64_t *random, uint64_t round, uint64_t most) {
    for (unsigned i = 0; i < STORM_PROCESSES; i++) {
        struct storm_order order = {.seed = storm_random(random),
                                    .operations = (unsigned)(1 + storm_random(random) % most)};
        CHECK_EQUAL(write(processes[i].control, &order, sizeof order), sizeof order);
    }
    unsigned victim = STORM_PROCESSES;
    if (storm_random(random) % 3 == 0) {
        victim = (unsigned)(storm_random(random) % STORM_PROCESSES);
        usleep((useconds_t)(storm_random(random) % 4000));
        kill(processes[victim].pid, SIGKILL);
        kills++;
    }
    for (unsigned i = 0; i < STORM_PROCESSES; i++) {
        if (i != victim) {
            CHECK(hear(i));
        }
    }
    if (victim != STORM_PROCESSES) {
        end(victim);
    }
    if (stray_count == STRAYS || (stray_count > 0 && storm_random(random) % 2 == 0)) {
        end_stray((unsigned)(storm_random(random) % stray_count));
    }
    sim_look();
    for (unsigned tenant = 0; tenant < STORM_TENANTS; tenant++) {
        compare(tenant, round);
    }
    if (victim != STORM_PROCESSES) {
        start(victim);
    }
}

/* Everybody ends, and what lies in the mailboxes goes last. */
static void end_all(void) {
    for (unsigned i = 0; i < STORM_PROCESSES; i++) {
        end(i);
    }
    while (stray_count > 0) {
        end_stray(stray_count - 1);
    }
    close(leash[0]);
    close(leash[1]);
    sim_look();
    compare(0, UINT64_MAX);
    for (unsigned i = 0; i < STORM_PROCESSES; i++) {
        close(mailbox[i][0]);
        close(mailbox[i][1]);
    }
    sim_look();
    for (unsigned tenant = 0; tenant < STORM_TENANTS; tenant++) {
        compare(tenant, UINT64_MAX);
        CHECK_EQUAL(sim_seen(&tenants[tenant], 0, "used"), 0);
    }
}

int main(int argc, char **argv) {
    uint64_t operations = argc > 1 ? strtoull(argv[1], NULL, 10) : 3000;
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    uint64_t random = seed;
    struct rlimit files = {4096, 4096};
    setrlimit(RLIMIT_NOFILE, &files);
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* for the children of those that are killed */
    sim_make_closed(&tenants[0], 1, LIMIT);
    sim_make_neighbour(&tenants[1], 1, LIMIT);
    for (unsigned tenant = 0; tenant < STORM_TENANTS; tenant++) {
        tenants[tenant].share = tenant_open(&tenants[tenant].tenant);
        /* The parent looks for marks where they are, as fast as a process that uses CUDA. */
        int exports = open(setting_path(&tenants[tenant], "simgpu/exports"), O_RDONLY | O_CLOEXEC);
        mark_learn(tenants[tenant].share->mark_file, exports);
        CHECK(close(exports) == 0 && tenants[tenant].share->mark_file[0].path[0] != '\0');
    }
    CHECK(pipe2(leash, O_CLOEXEC) == 0);
    for (unsigned i = 0; i < STORM_PROCESSES; i++) {
        CHECK(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, mailbox[i]) == 0);
    }
    for (unsigned i = 0; i < STORM_PROCESSES; i++) {
        start(i);
    }
    uint64_t round = 0, most = 60 + operations / ROUND_SHARE;
    while (done < operations) {
        play(&random, round++, most);
    }
    end_all();
    printf("{\"operations\": %llu, \"rounds\": %llu, \"kills\": %llu, \"uncharged\": %llu, "
           "\"stale\": %llu}\n",
           (unsigned long long)done, (unsigned long long)round, (unsigned long long)kills,
           (unsigned long long)uncharged, (unsigned long long)stale);
    return uncharged + stale == 0 ? 0 : 1;
}
