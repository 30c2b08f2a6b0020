/* Memory opened by other processes: charged once within a tenant, whoever ends first, and to each
 * of two tenants. */
#define _GNU_SOURCE
#include "cuda/test/sim.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#define LIMIT (128 * MIB)
#define SIZE (16 * MIB)

static struct setting tenant, neighbour;

/* A process with a context that does what it is told through a pipe. */
struct worker {
    pid_t pid;
    int to, from;
};

enum order { ALLOCATE, EXPORT, OPEN, CLOSE, FREE, QUIT };

struct message {
    enum order order;
    CUresult result;
    CUdeviceptr address;
    size_t bytes;
    CUipcMemHandle handle;
};

static void obey(struct setting *s, struct message *m) {
    switch (m->order) {
    case ALLOCATE:
        m->result = CUDA(s, cuMemAlloc_v2)(&m->address, m->bytes);
        break;
    case EXPORT:
        m->result = CUDA(s, cuIpcGetMemHandle)(&m->handle, m->address);
        break;
    case OPEN:
        m->result = CUDA(s, cuIpcOpenMemHandle_v2)(&m->address, m->handle,
                                                   CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
        break;
    case CLOSE:
        m->result = CUDA(s, cuIpcCloseMemHandle)(m->address);
        break;
    case FREE:
        m->result = CUDA(s, cuMemFree_v2)(m->address);
        break;
    case QUIT:
        _exit(0);
    }
}

static struct worker start(struct setting *s) {
    int there[2], back[2];
    struct message m;
    CHECK(pipe(there) == 0 && pipe(back) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setting_open(s);
        setting_context(s);
        CHECK_EQUAL(write(back[1], &m, 1), 1);
        while (read(there[0], &m, sizeof m) == sizeof m) {
            obey(s, &m);
            CHECK_EQUAL(write(back[1], &m, sizeof m), sizeof m);
        }
        _exit(1);
    }
    close(there[0]);
    close(back[1]);
    struct worker worker = {pid, there[1], back[0]};
    CHECK_EQUAL(read(worker.from, &m, 1), 1);
    return worker;
}

static void tell(const struct worker *worker, enum order order, struct message *m) {
    m->order = order;
    CHECK_EQUAL(write(worker->to, m, sizeof *m), sizeof *m);
    CHECK_EQUAL(read(worker->from, m, sizeof *m), sizeof *m);
    CHECK_EQUAL(m->result, CUDA_SUCCESS);
}

static void end(const struct worker *worker) {
    CHECK(kill(worker->pid, SIGKILL) == 0);
    wait_killed(worker->pid);
    close(worker->to);
    close(worker->from);
}

static uint64_t used(struct setting *s) {
    dv_reap(s->share);
    return used_bytes(s->share, 0);
}

/* The truth, which simgpu charges to the maker's tenant. */
static void check(uint64_t contexts, uint64_t memory) {
    CHECK_EQUAL(used(&tenant), contexts * SIM_CONTEXT + memory);
    CHECK_EQUAL(sim_used(&tenant, 0), contexts * SIM_CONTEXT + memory);
    check_sums(tenant.share);
}

/* Within one tenant an import is free, and the charge goes with the last who holds the memory. */
static void one_tenant(size_t bytes, uint64_t charge) {
    struct worker maker = start(&tenant), user = start(&tenant);
    struct message made = {.bytes = bytes}, opened;
    tell(&maker, ALLOCATE, &made);
    tell(&maker, EXPORT, &made);
    opened = made;
    tell(&maker, EXPORT, &made); /* again: the same handle */
    tell(&user, OPEN, &opened);
    CHECK(used(&tenant) >= 2 * SIM_CONTEXT + charge);
    tell(&maker, FREE, &made);
    CHECK_EQUAL(used(&tenant), 2 * SIM_CONTEXT + charge);
    end(&maker);
    check(1, charge);
    tell(&user, CLOSE, &opened);
    check(1, 0);
    end(&user);
    check(0, 0);
}

static void maker_is_killed(void) {
    struct worker maker = start(&tenant), user = start(&tenant);
    struct message made = {.bytes = SIZE}, opened;
    tell(&maker, ALLOCATE, &made);
    tell(&maker, EXPORT, &made);
    opened = made;
    tell(&user, OPEN, &opened);
    end(&maker);
    check(1, SIZE);
    end(&user);
    check(0, 0);
}

/* Opened twice is held until it is closed twice; opened by nobody it goes with the free. */
static void holds_are_counted(void) {
    struct worker maker = start(&tenant), user = start(&tenant);
    struct message made = {.bytes = SIZE}, opened;
    tell(&maker, ALLOCATE, &made);
    tell(&maker, EXPORT, &made);
    opened = made;
    tell(&user, OPEN, &opened);
    tell(&user, OPEN, &opened);
    tell(&user, CLOSE, &opened);
    tell(&maker, FREE, &made);
    check(2, SIZE);
    tell(&user, CLOSE, &opened);
    check(2, 0);
    made.bytes = SIZE;
    tell(&maker, ALLOCATE, &made);
    tell(&maker, EXPORT, &made);
    check(2, SIZE);
    tell(&maker, FREE, &made);
    check(2, 0);
    end(&maker);
    end(&user);
}

/* Between tenants nobody can tell whether the maker still pays: the user pays too. */
static void two_tenants(void) {
    struct worker maker = start(&tenant), user = start(&neighbour);
    struct message made = {.bytes = SIZE}, opened;
    tell(&maker, ALLOCATE, &made);
    tell(&maker, EXPORT, &made);
    opened = made;
    tell(&user, OPEN, &opened);
    CHECK_EQUAL(used(&tenant), SIM_CONTEXT + SIZE);
    CHECK_EQUAL(used(&neighbour), SIM_CONTEXT + SIZE);
    end(&maker);
    CHECK_EQUAL(used(&tenant), 0);
    CHECK_EQUAL(used(&neighbour), SIM_CONTEXT + SIZE);
    tell(&user, CLOSE, &opened);
    CHECK_EQUAL(used(&neighbour), SIM_CONTEXT);
    end(&user);
}

int main(void) {
    sim_make_closed(&tenant, 1, LIMIT);
    sim_make_neighbour(&neighbour, 1, LIMIT);
    CHECK_EQUAL(dv_share_open(tenant.tenant.directory, &tenant.share, NULL), DV_OK);
    CHECK_EQUAL(dv_share_open(neighbour.tenant.directory, &neighbour.share, NULL), DV_OK);
    one_tenant(SIZE, SIZE);
    one_tenant(5000, 2 * MIB);
    maker_is_killed();
    holds_are_counted();
    two_tenants();
    return 0;
}
