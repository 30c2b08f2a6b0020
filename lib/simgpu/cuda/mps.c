/* MPS as its client: how the process finds its server, and what the server lets it do.
 *
 * The manual of MPS: the driver connects to the control daemon when it is initialised and goes on without MPS where none
 * answers. The variables of the environment are read then, once, and can only tighten what the server allows. */
#define _GNU_SOURCE
#include "simgpu/cuda/driver.h"
#include "simgpu/machine/join.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The process's server; NULL where it is no client. Written once, before the driver is up. */
static struct sg_server *joined;
static uint32_t joined_number;

bool mps_is_client(void) {
    return joined != NULL;
}

/* A connection to the daemon; -1 when there is none. */
static int connect_daemon(void) {
    const char *named = getenv("CUDA_MPS_PIPE_DIRECTORY");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path, sizeof address.sun_path, "%s/control",
                          named && *named ? named : "/tmp/nvidia-mps");

    if (length >= (int)sizeof address.sun_path) {
        return -1;
    }
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static ssize_t receive(int fd, void *packet, size_t size) {
    ssize_t length;

    do {
        length = recv(fd, packet, size, 0);
    } while (length < 0 && errno == EINTR);
    return length;
}

/* Waits as long as another user's clients keep their server. */
static bool ask(int fd, struct sg_join_answer *answer) {
    const struct sg_instance *in = &sg_driver.instance;
    struct sg_join_request request = {.kind = SG_JOIN_CLIENT,
                                      .client = in->id,
                                      .generation = in->state->clients[in->id].generation,
                                      .machine = in->state->key_seed};
    char greeting[sizeof SG_JOIN_GREETING];

    return receive(fd, greeting, sizeof greeting) > 0 &&
           send(fd, &request, sizeof request, MSG_NOSIGNAL) == (ssize_t)sizeof request &&
           receive(fd, answer, sizeof *answer) == (ssize_t)sizeof *answer;
}

CUresult mps_join(void) {
    struct sg_instance *in = &sg_driver.instance;
    struct sg_join_answer answer;
    int fd = connect_daemon();

    joined = NULL;
    if (fd < 0) {
        return CUDA_SUCCESS;
    }
    bool answered = ask(fd, &answer);
    close(fd);
    switch (answered ? answer.result : SG_JOIN_GONE) {
    case SG_JOIN_ABROAD:
        return CUDA_SUCCESS;
    case SG_JOINED:
        break;
    case SG_JOIN_NOT_READY:
        return CUDA_ERROR_MPS_SERVER_NOT_READY;
    case SG_JOIN_FULL:
        return CUDA_ERROR_MPS_MAX_CLIENTS_REACHED;
    default:
        return CUDA_ERROR_MPS_CONNECTION_FAILED;
    }
    if (!(joined = sg_server_of(in, in->id))) {
        return CUDA_ERROR_MPS_CONNECTION_FAILED;
    }
    joined_number = in->state->clients[in->id].membership.number;
    return CUDA_SUCCESS;
}

uint32_t mps_place(void) {
    return joined ? joined->place : 0;
}

uint32_t mps_hidden(void) {
    return joined ? ~joined->gpus : 0;
}

/* A percentage as the environment has it; 100 where it has none that counts. */
static double own_percentage(void) {
    const char *text = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    double value = text ? strtod(text, NULL) : 0;

    return value > 0 && value <= 100 ? value : 100;
}

static bool uuid_is(const struct device *device, const char *text, size_t length) {
    char name[48], *at = name + sprintf(name, "GPU-");

    for (unsigned i = 0; i < 16; i++) {
        at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                      device->model->uuid[i]);
    }
    return length == strlen(name) && strncasecmp(name, text, length) == 0;
}

/* The device that an entry of a list of limits names, by its number or UUID; NULL when the process does not see it. */
static struct device *named(const char *text, size_t length) {
    char *end;

    for (int i = 0; i < sg_driver.device_count; i++) {
        if (uuid_is(&sg_driver.devices[i], text, length)) {
            return &sg_driver.devices[i];
        }
    }
    long number = isdigit((unsigned char)text[0]) ? strtol(text, &end, 10) : -1;
    return number >= 0 && number < INT32_MAX && end == text + length ? sg_device((int)number)
                                                                     : NULL;
}

/* Reads the list `0=1G,1=512MB` into the limits by device; false when the whole list counts for nothing: it names a
 * device that the process does not see. */
static bool read_limits(const char *list, uint64_t limits[SG_GPUS_MAX]) {
    while (*list) {
        list += strspn(list, ", \t");
        size_t length = strcspn(list, "=,");
        if (length == 0) {
            break;
        }
        struct device *device = named(list, length);
        if (list[length] != '=' || !device) {
            return false;
        }
        char *unit;
        uint64_t bytes = strtoull(list + length + 1, &unit, 10);
        limits[device->ordinal] = bytes << (toupper((unsigned char)*unit) == 'G' ? 30 : 20);
        list = unit + strcspn(unit, ",");
    }
    return true;
}

static uint64_t tighter(uint64_t limit, uint64_t other) {
    return limit == 0 || (other && other < limit) ? other : limit;
}

void mps_limit(void) {
    struct sg_instance *in = &sg_driver.instance;
    struct sg_membership *own = &in->state->clients[in->id].membership;
    uint64_t limits[SG_GPUS_MAX] = {0};
    const char *list = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");

    if (!joined) {
        return;
    }
    if (list && !read_limits(list, limits)) {
        memset(limits, 0, sizeof limits);
    }
    sg_state_lock(in);
    double percentage =
        joined->percentage < own_percentage() ? joined->percentage : own_percentage();
    for (int i = 0; i < sg_driver.device_count; i++) {
        struct device *device = &sg_driver.devices[i];
        uint32_t whole = device->model->multiprocessors;
        double part = whole * percentage / 100;
        device->usable = (uint32_t)part;
        device->usable += device->usable < part || device->usable == 0; /* rounded up */
        device->memory_limit = tighter(joined->limits[device->gpu], limits[i]);
        own->usable[device->gpu] = device->usable;
        own->limits[device->gpu] = device->memory_limit;
    }
    sg_state_unlock(in);
}

CUresult mps_result(uint32_t gpu) {
    const struct sg_instance *in = &sg_driver.instance;

    if (!joined) {
        return CUDA_SUCCESS;
    }
    if (__atomic_load_n(&joined->number, __ATOMIC_ACQUIRE) != joined_number ||
        __atomic_load_n(&joined->status, __ATOMIC_ACQUIRE) == SG_SERVER_NONE) {
        return CUDA_ERROR_MPS_RPC_FAILURE;
    }
    if (__atomic_load_n(&in->state->clients[in->id].membership.terminated, __ATOMIC_ACQUIRE)) {
        return CUDA_ERROR_MPS_CLIENT_TERMINATED;
    }
    return (CUresult)__atomic_load_n(&joined->fault[gpu], __ATOMIC_ACQUIRE);
}

void mps_look(void) {
    struct sg_instance *in = &sg_driver.instance;

    if (joined && joined->number == joined_number && !sg_alive(in, joined->client)) {
        sg_state_lock(in);
        sg_reap(in);
        sg_state_unlock(in);
    }
}

void mps_fault(uint32_t gpu, CUresult result) {
    if (joined) {
        sg_server_fault(&sg_driver.instance, gpu, result);
    }
}
