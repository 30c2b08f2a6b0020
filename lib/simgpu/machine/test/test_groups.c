/* MPS servers and their clients, killed at any instant: the machine stays whole. */
#define _GNU_SOURCE
#include "simgpu/machine/test/setting.h"
#include "simgpu/machine/turns.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORKERS 5u /* the first is the server */
#define KILLS 1000
#define WHOLE 10u

static const char *directory;

static uint32_t random_of(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static void be_server(struct sg_instance *in, uint32_t *seed) {
    const struct sg_server server = {
        .status = SG_SERVER_INITIALIZING, .gpus = 1, .percentage = 100, .any_uid = 1};
    int entry = sg_server_start(in, &server);

    CHECK(entry >= 0);
    sg_server_activate(in, (uint32_t)entry);
    for (;;) {
        struct timespec pause = {.tv_nsec = (long)(random_of(seed) % 200000)};
        nanosleep(&pause, NULL);
        sg_state_lock(in);
        sg_server_recover(in, (uint32_t)entry);
        sg_state_unlock(in);
    }
}

/* Whoever finds a server joins it; the last worker never does. */
static void join(struct sg_instance *in, uint32_t place) {
    uint32_t server = sg_next_server(in, 0);

    if (place < WORKERS - 1 && server < SG_SERVERS_MAX && !sg_server_of(in, in->id)) {
        sg_server_admit(in, server, in->id, in->state->clients[in->id].generation, WORKERS);
    }
}

_Noreturn static void work(uint32_t place, uint32_t seed) {
    struct sg_instance in;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CHECK_EQUAL(sg_open(&in, directory, place % 2 ? "odd" : "even", true), 0);
    if (place == 0) {
        be_server(&in, &seed);
    }
    sg_channel_start(&in, 0, WHOLE, 1 + random_of(&seed) % WHOLE);
    for (;;) {
        const struct sg_work piece = {.ns = 1000 + random_of(&seed) % 20000,
                                      .engine = random_of(&seed) % 8 ? SG_ON_MULTIPROCESSORS
                                                                     : SG_ON_COPY_IN,
                                      .multiprocessors = 1 + random_of(&seed) % WHOLE};
        join(&in, place);
        sg_submit(&in, 0, sg_time(&in), &piece);
        if (random_of(&seed) % 256 == 0) {
            sg_server_fault(&in, 0, 700);
        }
    }
}

static pid_t start(uint32_t place, uint32_t seed) {
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        work(place, seed);
    }
    return child;
}

/* What the GPU's multiprocessors did is what its processes and the dead of all tags did; members of a group have a
 * living server. */
static void check_whole(struct sg_instance *in) {
    struct sg_gpu *g = &in->state->gpus[0];
    uint64_t sum = 0, turns[SG_CLIENTS_MAX / 64];

    sg_state_lock(in);
    sg_reap(in);
    sg_schedule_lock(in, 0);
    sg_advance_locked(in, 0, sg_time(in));
    for (uint32_t i = 0; i < SG_TAGS_MAX; i++) {
        sum += in->state->tags[i].sm_ns[0];
    }
    for (uint32_t i = 0; (i = sg_next_client(in, i)) < SG_CLIENTS_MAX; i++) {
        const struct sg_channel *channel = sg_channel(in, i, 0);
        CHECK(channel->executed <= channel->submitted);
        CHECK(channel->server == 0 || turn_bit(in->state->clients_used, channel->server - 1));
        sum += channel->sm_ns;
    }
    CHECK_EQUAL(sum, g->sm_ns);
    CHECK(g->sm_ns <= g->busy_ns * WHOLE);
    memcpy(turns, g->turns, sizeof turns);
    turn_recount(in, 0);
    CHECK(memcmp(turns, g->turns, sizeof turns) == 0);
    sg_schedule_unlock(in, 0);
    sg_state_unlock(in);
}

/* Gives the GPU an hour's work as a client of the server, and lives. */
_Noreturn static void compute(uint32_t server) {
    const struct sg_work hour = {.ns = 3600000000000u, .engine = SG_ON_MULTIPROCESSORS};
    struct sg_instance in;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CHECK_EQUAL(sg_open(&in, directory, "client", true), 0);
    uint32_t generation = in.state->clients[in.id].generation;
    CHECK_EQUAL(sg_server_admit(&in, server, in.id, generation, WORKERS), SG_JOINED);
    sg_submit(&in, 0, sg_time(&in), &hour);
    for (;;) {
        pause();
    }
}

static bool busy(struct sg_instance *in) {
    bool any = false;

    sg_schedule_lock(in, 0);
    sg_advance_locked(in, 0, sg_time(in));
    for (uint32_t i = 0; i < SG_CLIENTS_MAX / 64; i++) {
        any |= in->state->gpus[0].turns[i] != 0;
    }
    sg_schedule_unlock(in, 0);
    return any;
}

/* The work of a dead server's client takes nobody's time, also while nobody frees what the server had. */
static void check_orphan(struct sg_instance *in) {
    pid_t server = start(0, 0);

    EVENTUALLY(sg_next_server(in, 0) < SG_SERVERS_MAX &&
               in->state->servers[sg_next_server(in, 0)].status == SG_SERVER_ACTIVE);
    pid_t client = fork();
    CHECK(client >= 0);
    if (client == 0) {
        compute(sg_next_server(in, 0));
    }
    EVENTUALLY(busy(in));
    setting_kill(server);
    EVENTUALLY(!busy(in));
    CHECK(sg_next_server(in, 0) < SG_SERVERS_MAX);
    setting_kill(client);
    check_whole(in);
    CHECK_EQUAL(sg_next_server(in, 0), SG_SERVERS_MAX);
}

int main(void) {
    pid_t workers[WORKERS];
    struct sg_instance in;
    sim_machine machine;
    uint32_t seed = 1;

    setting_describe(&machine);
    directory = setting_make(&machine);
    CHECK_EQUAL(sg_open(&in, directory, "", false), 0);
    for (uint32_t i = 0; i < WORKERS; i++) {
        workers[i] = start(i, i);
    }
    for (int i = 0; i < KILLS; i++) {
        uint32_t victim = random_of(&seed) % WORKERS;
        struct timespec pause = {.tv_nsec = (long)(random_of(&seed) % 400000)};
        nanosleep(&pause, NULL);
        CHECK_EQUAL(waitpid(workers[victim], NULL, WNOHANG), 0); /* it has found nothing wrong */
        setting_kill(workers[victim]);
        check_whole(&in);
        workers[victim] = start(victim, seed);
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        setting_kill(workers[i]);
    }
    check_whole(&in);
    CHECK_EQUAL(sg_next_server(&in, 0), SG_SERVERS_MAX);
    CHECK(in.state->gpus[0].sm_ns > 0);
    check_orphan(&in);
    sg_close(&in);
    return 0;
}
