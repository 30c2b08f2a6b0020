/* Servers and clients: who gets which server, what it allows, and what becomes of the machine when one of
 * them ends. */
#define _GNU_SOURCE
#include "simgpu/mps/test/daemon.h"

#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST 4u

static struct sg_instance seen; /* the machine, as somebody sees it who uses no GPU */

static CUresult begin(void) {
    CUcontext ctx;
    CUresult result = cuInit(0);

    if (result == CUDA_SUCCESS && (result = cuDevicePrimaryCtxRetain(&ctx, 0)) == CUDA_SUCCESS) {
        OK(cuCtxSetCurrent(ctx));
    }
    return result;
}

/* Says what beginning answered, waits, and says what a synchronisation answers. */
static int simple(int channel) {
    worker_tell(channel, begin());
    worker_hear(channel);
    worker_tell(channel, cuCtxSynchronize());
    worker_hear(channel);
    return 0;
}

/* The same with a kernel of an hour to wait for. */
static int computing(int channel) {
    CUresult result = begin();

    OK(cuda_busy(NULL, 3600000000000u));
    worker_tell(channel, result);
    worker_hear(channel);
    worker_tell(channel, cuCtxSynchronize());
    worker_hear(channel);
    return 0;
}

static int outside(int channel) {
    CHECK_EQUAL(unsetenv("CUDA_MPS_PIPE_DIRECTORY"), 0);
    return simple(channel);
}

static struct worker start(int (*body)(int channel), CUresult result) {
    struct worker worker = worker_start(body, 0);

    CHECK_EQUAL(worker_hear(worker.channel), result);
    return worker;
}

static CUresult synchronise(const struct worker *worker) {
    worker_tell(worker->channel, 0);
    return (CUresult)worker_hear(worker->channel);
}

static void stop(struct worker *worker) {
    worker_tell(worker->channel, 0);
    CHECK_EQUAL(worker_end(worker), 0);
}

/* Everything that is left of servers, clients and their memory; the daemon has none. */
static uint64_t left(void) {
    uint64_t sum = 0;

    sg_state_lock(&seen);
    sg_reap(&seen);
    for (uint32_t i = 0; (i = sg_next_client(&seen, i)) < SG_CLIENTS_MAX; i++) {
        sum++;
    }
    for (uint32_t i = 0; i < SG_SERVERS_MAX; i++) {
        sum += seen.state->servers[i].status != SG_SERVER_NONE;
    }
    sum += sg_gpu_used(&seen, 0);
    sg_state_unlock(&seen);
    return sum;
}

static void check_answers(void) {
    char line[64], want[64];

    CHECK(strcmp(daemon_ask("get_server_list"), "") == 0);
    struct worker a = start(simple, CUDA_SUCCESS);
    int server = daemon_server();
    CHECK(server > 0);
    snprintf(line, sizeof line, "get_server_status %d", server);
    CHECK(strcmp(daemon_ask(line), "ACTIVE\n") == 0);
    snprintf(line, sizeof line, "get_client_list %d", server);
    snprintf(want, sizeof want, "%d\n", a.pid);
    CHECK(strcmp(daemon_ask(line), want) == 0);
    CHECK(strstr(daemon_ask("get_device_client_list"), want));
    CHECK(strstr(daemon_ask("ps"), "PID       ID        SERVER         DEVICE"));
    snprintf(want, sizeof want, "\n%-10d", a.pid);
    CHECK(strstr(daemon_ask("ps"), want));
    snprintf(line, sizeof line, "set_active_thread_percentage %d 30", server);
    CHECK(strcmp(daemon_ask(line), "30.0\n") == 0);
    snprintf(line, sizeof line, "set_device_pinned_mem_limit %d 0 8M", server);
    CHECK(strcmp(daemon_ask(line), "") == 0);
    snprintf(line, sizeof line, "get_device_pinned_mem_limit %d 0", server);
    CHECK(strcmp(daemon_ask(line), "8M\n") == 0);
    OK(synchronise(&a));
    stop(&a);
    /* A server outlives its clients. */
    CHECK_EQUAL(daemon_server(), server);
}

/* Says how many multiprocessors it has, and how many blocks it can have. */
static int limited(int channel) {
    CUdeviceptr address;
    uint64_t blocks = 0;
    int count;

    OK(begin());
    OK(cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    worker_tell(channel, (uint64_t)count);
    while (cuMemAlloc_v2(&address, BLOCK) == CUDA_SUCCESS) {
        blocks++;
    }
    FAILS(cuMemAlloc_v2(&address, BLOCK), CUDA_ERROR_OUT_OF_MEMORY);
    worker_tell(channel, blocks);
    return 0;
}

static void check_limit(const char *percentage, const char *memory, uint64_t count,
                        uint64_t blocks) {
    CHECK_EQUAL(setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", percentage, 1), 0);
    CHECK_EQUAL(setenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", memory, 1), 0);
    struct worker worker = worker_start(limited, 0);
    CHECK_EQUAL(worker_hear(worker.channel), count);
    CHECK_EQUAL(worker_hear(worker.channel), blocks);
    CHECK_EQUAL(worker_end(&worker), 0);
    CHECK_EQUAL(unsetenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), 0);
    CHECK_EQUAL(unsetenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), 0);
}

/* The server allows 30 % of 10 multiprocessors and 8 MiB, see check_answers. */
static void check_limits(void) {
    check_limit("", "", 3, 4);
    check_limit("100", "0=1G", 3, 4);
    check_limit("15", "0=6M", 2, 3);
    check_limit("nonsense", "0=4M,7=2M", 3, 4);
    check_limit("0.5", "GPU-a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a0a0=2MB", 1, 1);
}

static void check_exclusive(void) {
    sg_compute_mode_set(&seen, 0, SG_COMPUTE_EXCLUSIVE_PROCESS);
    struct worker a = start(simple, CUDA_SUCCESS), b = start(simple, CUDA_SUCCESS);
    struct worker c = start(outside, CUDA_ERROR_DEVICE_UNAVAILABLE);
    worker_kill(&c);
    OK(synchronise(&a));
    OK(synchronise(&b));
    stop(&a);
    stop(&b);
    sg_compute_mode_set(&seen, 0, SG_COMPUTE_DEFAULT);
}

static void check_most(void) {
    struct worker workers[MOST];

    for (unsigned i = 0; i < MOST; i++) {
        workers[i] = start(simple, CUDA_SUCCESS);
    }
    struct worker more = start(simple, CUDA_ERROR_MPS_MAX_CLIENTS_REACHED);
    worker_kill(&more);
    for (unsigned i = 0; i < MOST; i++) {
        worker_kill(&workers[i]);
    }
    more = start(simple, CUDA_SUCCESS);
    worker_kill(&more);
}

static void check_terminated(void) {
    struct worker a = start(simple, CUDA_SUCCESS), b = start(simple, CUDA_SUCCESS);
    char line[64];

    snprintf(line, sizeof line, "terminate_client %d %d", daemon_server(), a.pid);
    CHECK(strcmp(daemon_ask(line), "0\n") == 0);
    FAILS(synchronise(&a), CUDA_ERROR_MPS_CLIENT_TERMINATED);
    OK(synchronise(&b));
    stop(&a);
    stop(&b);
}

static void check_deaths(pid_t *daemon) {
    struct worker a = start(simple, CUDA_SUCCESS), b = start(simple, CUDA_SUCCESS);
    int server = daemon_server();

    CHECK_EQUAL(kill(server, SIGKILL), 0);
    EVENTUALLY(daemon_server() == 0);
    FAILS(synchronise(&a), CUDA_ERROR_MPS_RPC_FAILURE);
    /* The next server takes the dead one's entry, and its slot's owners may be as many: it is another all the same. */
    struct worker next = start(simple, CUDA_SUCCESS);
    FAILS(synchronise(&b), CUDA_ERROR_MPS_RPC_FAILURE);
    CHECK(daemon_server() > 0 && daemon_server() != server);
    worker_kill(&next);
    stop(&a);
    stop(&b);
    a = start(simple, CUDA_SUCCESS);
    /* Without its daemon a server goes on for the clients that it has. */
    CHECK_EQUAL(kill(*daemon, SIGKILL), 0);
    CHECK_EQUAL(waitpid(*daemon, NULL, 0), *daemon);
    for (int i = 0; i < 50; i++) {
        setting_pause();
    }
    CHECK(left() > 0);
    CHECK(sg_next_server(&seen, 0) < SG_SERVERS_MAX);
    OK(synchronise(&a));
    stop(&a);
    EVENTUALLY(left() == 0);
    /* A client finds out by itself that its server is dead. */
    *daemon = daemon_start();
    a = start(computing, CUDA_SUCCESS);
    server = daemon_server();
    CHECK_EQUAL(kill(*daemon, SIGKILL), 0);
    CHECK_EQUAL(waitpid(*daemon, NULL, 0), *daemon);
    CHECK_EQUAL(kill(server, SIGKILL), 0);
    FAILS(synchronise(&a), CUDA_ERROR_MPS_RPC_FAILURE);
    stop(&a);
    EVENTUALLY(left() == 0);
    b = start(simple, CUDA_SUCCESS); /* no client: there is no daemon */
    CHECK_EQUAL(sg_next_server(&seen, 0), SG_SERVERS_MAX);
    OK(synchronise(&b));
    stop(&b);
    *daemon = daemon_start();
}

static int faults(int channel) {
    CUdeviceptr nowhere = 0x1000;
    uint64_t count = 1;
    uint32_t value = 0;
    void *params[] = {&nowhere, &value, &count};

    worker_tell(channel, begin());
    worker_hear(channel);
    OK(cuLaunchKernel(cuda_kernel("divvy_fill"), 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    worker_tell(channel, cuCtxSynchronize());
    worker_hear(channel);
    return 0;
}

static void check_fault(void) {
    struct worker a = start(faults, CUDA_SUCCESS), b = start(simple, CUDA_SUCCESS);
    struct worker c = start(outside, CUDA_SUCCESS);
    int server = daemon_server();
    char line[64];

    FAILS(synchronise(&a), CUDA_ERROR_ILLEGAL_ADDRESS);
    FAILS(synchronise(&b), CUDA_ERROR_ILLEGAL_ADDRESS);
    OK(synchronise(&c));
    snprintf(line, sizeof line, "get_server_status %d", server);
    CHECK(strcmp(daemon_ask(line), "FAULT\n") == 0);
    stop(&a);
    struct worker more = start(simple, CUDA_ERROR_MPS_SERVER_NOT_READY);
    worker_kill(&more);
    stop(&b);
    EVENTUALLY(strcmp(daemon_ask(line), "ACTIVE\n") == 0);
    more = start(simple, CUDA_SUCCESS);
    OK(synchronise(&more));
    stop(&more);
    stop(&c);
}

/* Who connects and says nothing keeps everybody waiting; who gives commands keeps others from it, and no client. */
static void check_one_at_a_time(void) {
    int silent = daemon_connect();
    struct worker waits = worker_start(simple, 0);

    EVENTUALLY(daemon_logged_last("Accepting connection..."));
    for (int i = 0; i < 20; i++) {
        setting_pause();
    }
    CHECK(daemon_logged_last("Accepting connection..."));
    shutdown(silent, SHUT_RDWR); /* the worker has it too */
    close(silent);
    CHECK_EQUAL(worker_hear(waits.channel), CUDA_SUCCESS);
    int console = daemon_console();
    CHECK(strcmp(daemon_ask("get_server_list"), "") == 0);
    struct worker more = start(simple, CUDA_SUCCESS);
    shutdown(console, SHUT_RDWR);
    close(console);
    EVENTUALLY(daemon_server() > 0);
    worker_kill(&more);
    worker_kill(&waits);
}

int main(int argc, char **argv) {
    (void)argc;
    DAEMON_MAIN(argv);
    daemon_machine(NULL, MOST);
    CHECK_EQUAL(sg_open(&seen, getenv("DIVVY_SIMGPU"), "", false), 0);
    pid_t daemon = daemon_start();
    check_answers();
    check_limits();
    check_exclusive();
    check_most();
    check_terminated();
    check_deaths(&daemon);
    check_fault();
    check_one_at_a_time();
    daemon_end(daemon);
    EVENTUALLY(left() == 0);
    return 0;
}
