#define _GNU_SOURCE
#include "cuda/test/storm.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MEMORIES 48u
#define DESCRIPTORS 32u
#define CHILDREN 3u

/* What a descriptor stands for; travels beside it. */
struct label {
    uint64_t id; /* 0: unused */
    uint64_t bytes;
    unsigned tenant; /* that made it */
    bool is_dma_buf;
};

struct memory {
    struct label label; /* id 0: unused */
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address; /* where it is mapped, 0 if it is not */
};

struct descriptor {
    struct label label;
    int fd;
};

static const struct storm_self *self;
static struct setting *tenant;
static uint64_t state, serial;
static struct memory memories[MEMORIES];
static struct descriptor descriptors[DESCRIPTORS];
static pid_t children[CHILDREN];

/* SplitMix64. */
uint64_t storm_random(uint64_t *sequence) {
    uint64_t z = (*sequence += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static unsigned below(unsigned bound) {
    return (unsigned)(storm_random(&state) % bound);
}

static unsigned own_tenant(void) {
    return self->number % STORM_TENANTS;
}

static uint64_t new_id(void) {
    return ((uint64_t)getpid() << 32) + ++serial;
}

/* A used entry at or after a random place; NULL if all are unused. */
static struct memory *some_memory(void) {
    for (unsigned i = 0, at = below(MEMORIES); i < MEMORIES; i++, at = (at + 1) % MEMORIES) {
        if (memories[at].label.id != 0) {
            return &memories[at];
        }
    }
    return NULL;
}

static struct memory *unused_memory(void) {
    for (struct memory *m = memories; m < memories + MEMORIES; m++) {
        if (m->label.id == 0) {
            return m;
        }
    }
    return NULL;
}

static struct descriptor *some_descriptor(void) {
    for (unsigned i = 0, at = below(DESCRIPTORS); i < DESCRIPTORS;
         i++, at = (at + 1) % DESCRIPTORS) {
        if (descriptors[at].label.id != 0) {
            return &descriptors[at];
        }
    }
    return NULL;
}

static void keep_descriptor(int fd, const struct label *label) {
    for (struct descriptor *d = descriptors; d < descriptors + DESCRIPTORS; d++) {
        if (d->label.id == 0) {
            *d = (struct descriptor){*label, fd};
            return;
        }
    }
    close(fd);
}

/* ---- operations with CUDA ---- */

static void create(void) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    struct memory *m = unused_memory();
    uint64_t bytes = (1 + below(8)) * BLOCK;
    if (m != NULL && CUDA(tenant, cuMemCreate)(&m->handle, bytes, &prop, 0) == CUDA_SUCCESS) {
        m->label = (struct label){.id = new_id(), .bytes = bytes, .tenant = own_tenant()};
        m->address = 0;
    }
}

static void export(void) {
    const struct memory *m = some_memory();
    int fd;
    /* Memory of the other tenant, exported again, would be charged as long as his descriptors
     * live: that is documented, but no figure of the oracle's. */
    if (m != NULL && m->label.tenant == own_tenant() &&
        CUDA(tenant, cuMemExportToShareableHandle)(
            &fd, m->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS) {
        keep_descriptor(fd, &m->label);
    }
}

static bool map(struct memory *m) {
    if (CUDA(tenant, cuMemAddressReserve)(&m->address, m->label.bytes, 0, 0, 0) != CUDA_SUCCESS) {
        return false;
    }
    if (CUDA(tenant, cuMemMap)(m->address, m->label.bytes, 0, m->handle, 0) == CUDA_SUCCESS) {
        return true;
    }
    CHECK_EQUAL(CUDA(tenant, cuMemAddressFree)(m->address, m->label.bytes), CUDA_SUCCESS);
    m->address = 0;
    return false;
}

static void release(struct memory *m) {
    if (m->address != 0) {
        CHECK_EQUAL(CUDA(tenant, cuMemUnmap)(m->address, m->label.bytes), CUDA_SUCCESS);
        CHECK_EQUAL(CUDA(tenant, cuMemAddressFree)(m->address, m->label.bytes), CUDA_SUCCESS);
    }
    CHECK_EQUAL(CUDA(tenant, cuMemRelease)(m->handle), CUDA_SUCCESS);
    m->label.id = 0;
}

/* Imports and maps, so that the size is known; what does not fit is let go at once. */
static void import(void) {
    const struct descriptor *d = some_descriptor();
    struct memory *m = unused_memory();
    if (d == NULL || m == NULL || d->label.is_dma_buf) {
        return;
    }
    CHECK_EQUAL(CUDA(tenant, cuMemImportFromShareableHandle)(
                    &m->handle, (void *)(intptr_t)d->fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                CUDA_SUCCESS);
    m->label = d->label;
    m->address = 0;
    if (!map(m)) {
        release(m);
    }
}

static void make_dma_buf(void) {
    uint64_t bytes = (1 + below(4)) * BLOCK;
    CUdeviceptr address;
    CUipcMemHandle handle;
    int fd;
    if (CUDA(tenant, cuMemAlloc_v2)(&address, bytes) != CUDA_SUCCESS) {
        return;
    }
    if (below(3) == 0) {
        CHECK_EQUAL(CUDA(tenant, cuIpcGetMemHandle)(&handle, address), CUDA_SUCCESS);
    }
    if (CUDA(tenant, cuMemGetHandleForAddressRange)(
            &fd, address, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0) == CUDA_SUCCESS) {
        struct label label = {new_id(), bytes, own_tenant(), true};
        keep_descriptor(fd, &label);
    }
    CHECK_EQUAL(CUDA(tenant, cuMemFree_v2)(address), CUDA_SUCCESS);
}

static void ask(void) {
    size_t free, total;
    CHECK_EQUAL(CUDA(tenant, cuMemGetInfo_v2)(&free, &total), CUDA_SUCCESS);
    CHECK(free <= total);
    if (below(4) == 0) { /* measures the overhead anew */
        CHECK_EQUAL(CUDA(tenant, cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 4096), CUDA_SUCCESS);
    }
}

/* What others have exported may leave no room for it now. */
static bool make_context(void) {
    CUcontext context;
    return CUDA(tenant, cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS;
}

static void operate(void) {
    struct memory *m;
    switch (below(8)) {
    case 0:
    case 1:
        create();
        break;
    case 2:
        export();
        break;
    case 3:
        import();
        break;
    case 4:
    case 5:
        m = some_memory();
        if (m != NULL) {
            release(m);
        }
        break;
    case 6:
        make_dma_buf();
        break;
    default:
        ask();
        break;
    }
}

/* ---- operations that any process can do ---- */

static void post(const struct descriptor *d) {
    char room[CMSG_SPACE(sizeof d->fd)] = {0};
    struct iovec data = {(void *)(uintptr_t)&d->label, sizeof d->label};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof d->fd);
    memcpy(CMSG_DATA(head), &d->fd, sizeof d->fd);
    sendmsg(self->mailbox[below(STORM_PROCESSES)], &message, MSG_DONTWAIT); /* it may be full */
}

static void fetch(void) {
    char room[CMSG_SPACE(sizeof(int))];
    struct label label;
    int fd;
    struct iovec data = {&label, sizeof label};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    if (recvmsg(self->inbox, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != (ssize_t)sizeof label) {
        return;
    }
    const struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (head != NULL) {
        memcpy(&fd, CMSG_DATA(head), sizeof fd);
        keep_descriptor(fd, &label);
    }
}

static void close_one(struct descriptor *d) {
    CHECK(close(d->fd) == 0);
    d->label.id = 0;
}

/* A child that has copies of all descriptors, and dies at any time. */
static void fork_or_kill(void) {
    pid_t *child = &children[below(CHILDREN)];
    char byte;
    if (*child != 0) {
        kill(*child, SIGKILL);
        wait_killed(*child);
        *child = 0;
        return;
    }
    pid_t pid = fork();
    if (pid == 0) {
        close(self->control);
        while (read(self->leash, &byte, 1) > 0) {
        }
        _exit(0);
    }
    *child = pid > 0 ? pid : 0;
}

static void pass(void) {
    struct descriptor *d = some_descriptor();
    int copy;
    switch (below(8)) {
    case 0:
        copy = d != NULL ? dup(d->fd) : -1;
        if (copy >= 0) {
            keep_descriptor(copy, &d->label);
        }
        break;
    case 1:
    case 2:
    case 3:
        if (d != NULL) {
            close_one(d);
        }
        break;
    case 4:
        if (d != NULL) {
            post(d);
        }
        break;
    case 5:
    case 6:
        fetch();
        break;
    default:
        if (below(4) == 0) {
            fork_or_kill();
        }
        break;
    }
}

void storm_serve(const struct storm_self *as, struct setting *of) {
    struct storm_order order;
    self = as;
    tenant = of;
    bool ready = false;
    if (tenant != NULL) {
        setting_open(tenant);
        CHECK_EQUAL(CUDA(tenant, cuInit)(0), CUDA_SUCCESS);
    }
    while (read(self->control, &order, sizeof order) == (ssize_t)sizeof order) {
        state = order.seed;
        ready = ready || (tenant != NULL && make_context());
        for (unsigned i = 0; i < order.operations; i++) {
            if (ready && below(2) == 0) {
                operate();
            } else {
                pass();
            }
        }
        struct storm_report report = {order.operations};
        CHECK_EQUAL(write(self->control, &report, sizeof report), sizeof report);
    }
}
