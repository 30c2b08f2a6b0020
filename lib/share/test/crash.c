/* Crash injection: see crash.h. Without an argument every state of the pages that a crash can leave
 * is tried once or twice; with --full every instruction of the short scenarios too, with busy
 * neighbours, and the result is printed as JSON. */
#define _GNU_SOURCE
#include "share/test/crash.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define HANG_MS 300000u
#define STEPS_MAX 2000000u

struct counts {
    uint64_t kills, lost_bytes, gained_bytes, hangs, broken_sums;
};

/* What the process that looks afterwards has found. */
struct finding {
    uint64_t used, pending;
    bool sums_agree, usable;
};

static struct tenant tenant;
static dv_share *mine;
static struct finding *finding;
static struct counts counts;
static bool verbose;

/* How one kill is chosen. */
struct attempt {
    const struct scenario *scenario;
    uint64_t stores; /* kill after so many changes of the pages ... */
    uint64_t steps;  /* ... or so many instructions, whichever comes first */
    uint64_t meddle; /* the neighbour operates every so many instructions, 0 never */
    bool after;      /* the neighbour operates between death and reaping */
};

/* The parts of the pages that the scenarios touch, to see when they change. */
#define LOOK_SLOTS 8u
struct look {
    dv_page_slot slot[LOOK_SLOTS];
    dv_page_export export[LOOK_SLOTS];
    dv_page_journal journal[LOOK_SLOTS];
    uint64_t applied[LOOK_SLOTS];
    dv_page_gate gate[LOOK_SLOTS];
    uint64_t amounts, tag, turn;
    uint32_t slot_count, export_lock, waiting, refused;
};

/* Byte by byte: looks are static and so zero where fields leave gaps. */
static bool differ(const void *one, const void *other, size_t size) {
    return memcmp(one, other, size) != 0;
}

static void look_at_pages(struct look *look) {
    memcpy(look->slot, mine->state->slot, sizeof look->slot);
    memcpy(look->export, mine->state->export, sizeof look->export);
    memcpy(look->journal, mine->gpu->journal, sizeof look->journal);
    memcpy(look->applied, mine->gpu->applied, sizeof look->applied);
    look->amounts = mine->gpu->amounts;
    look->tag = mine->gpu->tag;
    memcpy(look->gate, mine->gpu->gate, sizeof look->gate);
    look->turn = mine->gpu->turn;
    look->waiting = mine->gpu->waiting;
    look->refused = mine->gpu->refused;
    look->slot_count = mine->state->slot_count;
    look->export_lock = mine->state->export_lock;
}

static void operate_as_neighbour(void) {
    CHECK(dv_reserve(mine, 0, DV_PAGE_UNIT) == DV_OK);
    dv_settle(mine, 0, DV_PAGE_UNIT, DV_PAGE_UNIT);
    dv_release(mine, 0, DV_PAGE_UNIT);
}

static pid_t start(const struct scenario *scenario) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        die_with_parent();
        CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
        dv_share *share = tenant_open(&tenant);
        if (scenario->prepare != NULL) {
            scenario->prepare(share);
        }
        raise(SIGSTOP);
        scenario->act(share);
        _exit(0);
    }
    int status;
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    return child;
}

/* Steps the process to where it is to die and kills it. False if it ended before. */
static bool step_and_kill(pid_t child, const struct attempt *attempt) {
    static struct look before, now;
    uint64_t stores = 0;
    int status;
    look_at_pages(&before);
    for (uint64_t step = 1; stores < attempt->stores && step <= attempt->steps; step++) {
        CHECK(step < STEPS_MAX);
        CHECK(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) == 0);
        CHECK_EQUAL(waitpid(child, &status, 0), child);
        if (!WIFSTOPPED(status)) {
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
            return false;
        }
        look_at_pages(&now);
        if (differ(&before, &now, sizeof now)) {
            stores++;
        }
        if (attempt->meddle != 0 && step % attempt->meddle == 0) {
            operate_as_neighbour();
            look_at_pages(&now);
        }
        before = now;
    }
    kill(child, SIGKILL);
    wait_killed(child);
    return true;
}

/* The look afterwards, in a process of its own: reaps, adds up, and takes all that is free. */
static void find_out(void *arg) {
    const struct scenario *scenario = arg;
    dv_share *share = tenant_open(&tenant);
    dv_reap(share);
    dv_export_settle(share);
    finding->used = used_bytes(share, 0);
    finding->pending = pending_bytes(share, 0);
    uint64_t free_bytes = CRASH_LIMIT - scenario->left;
    bool fits = dv_reserve(share, 0, free_bytes) == DV_OK;
    dv_settle(share, 0, free_bytes, fits ? free_bytes : 0);
    finding->usable = fits && dv_reserve(share, 0, DV_PAGE_UNIT) == DV_NO_MEMORY;
    dv_release(share, 0, free_bytes);
    check_sums(share);
    finding->sums_agree = true;
}

static void judge(const struct attempt *attempt) {
    memset(finding, 0, sizeof *finding);
    pid_t child = spawn(find_out, (void *)(uintptr_t)attempt->scenario);
    uint64_t end = os_now_ns() + HANG_MS * 1000000ull;
    int status;
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (os_now_ns() > end) {
            counts.hangs++;
            kill(child, SIGKILL);
            wait_killed(child);
            return;
        }
        usleep(50);
    }
    uint64_t found = finding->used + finding->pending, left = attempt->scenario->left;
    counts.kills++;
    counts.lost_bytes += found > left ? found - left : 0;
    counts.gained_bytes += found < left ? left - found : 0;
    counts.broken_sums += !finding->sums_agree || !finding->usable;
    if (verbose && (found != left || !finding->sums_agree || !finding->usable)) {
        fprintf(stderr, "%s: after %llu stores, %llu steps: %llu bytes, not %llu; usable %d\n",
                attempt->scenario->name, (unsigned long long)attempt->stores,
                (unsigned long long)attempt->steps, (unsigned long long)found,
                (unsigned long long)left, finding->usable);
    }
}

/* One crash. False if the scenario ended before it could be killed. */
static bool crash(const struct attempt *attempt) {
    const struct scenario *scenario = attempt->scenario;
    if (scenario->neighbour != NULL) {
        scenario->neighbour(&tenant, mine);
    }
    pid_t child = start(scenario);
    if (scenario->meanwhile != NULL) {
        scenario->meanwhile(mine);
    }
    bool killed = step_and_kill(child, attempt);
    if (killed && attempt->after) {
        operate_as_neighbour();
    }
    judge(attempt);
    if (scenario->restore != NULL) {
        scenario->restore(mine);
    }
    CHECK_EQUAL(used_bytes(mine, 0), CRASH_NEIGHBOUR);
    return killed;
}

static void crash_at_stores(const struct scenario *scenario, bool after) {
    struct attempt attempt = {.scenario = scenario, .steps = UINT64_MAX, .after = after};
    while (crash(&attempt)) {
        attempt.stores++;
    }
    CHECK(attempt.stores > 1); /* else the stepping saw nothing */
}

/* Every instruction, up to where a scenario becomes too long for that; the stores are covered. */
static void crash_at_steps(const struct scenario *scenario, uint64_t most) {
    struct attempt attempt = {.scenario = scenario, .stores = UINT64_MAX};
    unsigned seed = 1;
    for (attempt.steps = 1; attempt.steps <= most; attempt.steps++) {
        attempt.meddle = 60 + (uint64_t)rand_r(&seed) % 200; /* an operation takes about 50 */
        attempt.after = attempt.steps % 2 == 0;
        if (!crash(&attempt)) {
            return;
        }
    }
}

/* Tracer and traced alternate; on one CPU that takes half the time. */
static void stay_on_this_cpu(void) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET((size_t)sched_getcpu(), &cpus);
    sched_setaffinity(0, sizeof cpus, &cpus); /* where it is not allowed, it takes longer */
}

static void set_up(void) {
    stay_on_this_cpu();
    tenant_make(&tenant, 1, CRASH_LIMIT);
    mine = tenant_open(&tenant);
    CHECK(dv_reserve(mine, 0, CRASH_NEIGHBOUR) == DV_OK);
    dv_settle(mine, 0, CRASH_NEIGHBOUR, CRASH_NEIGHBOUR);
    finding =
        mmap(NULL, sizeof *finding, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(finding != MAP_FAILED);
}

int main(int argc, char **argv) {
    bool full = argc > 1 && strcmp(argv[1], "--full") == 0;
    verbose = true;
    set_up();
    for (size_t i = 0; i < scenario_count; i++) {
        uint64_t before = counts.kills, start_ns = os_now_ns();
        crash_at_stores(&scenarios[i], false);
        if (full) {
            crash_at_stores(&scenarios[i], true);
            crash_at_steps(&scenarios[i], 600);
        }
        fprintf(stderr, "%-20s %5llu kills %6.2f s\n", scenarios[i].name,
                (unsigned long long)(counts.kills - before),
                (double)(os_now_ns() - start_ns) / 1e9);
    }
    if (full) {
        printf("{\"kills\": %llu, \"lost_bytes\": %llu, \"gained_bytes\": %llu, \"hangs\": %llu}\n",
               (unsigned long long)counts.kills, (unsigned long long)counts.lost_bytes,
               (unsigned long long)counts.gained_bytes, (unsigned long long)counts.hangs);
    }
    return counts.lost_bytes + counts.gained_bytes + counts.hangs + counts.broken_sums != 0;
}
