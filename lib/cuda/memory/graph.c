#define _GNU_SOURCE
#include "cuda/memory/graph.h"

#include <string.h>
#include <sys/mman.h>

#include "cuda/attach.h"
#include "cuda/device.h"
#include "cuda/fork.h"
#include "cuda/memory/blocks.h"
#include "cuda/memory/meter.h"
#include "cuda/table.h"

#define CHILDREN_MAX 16 /* depth of graphs in graphs */

/* One GPU's executable graphs with allocation nodes, by handle: amount is what the nodes need,
 * owner the period in which the graph was launched last, 0 if it was not. */
static struct {
    table execs;
    uint64_t need; /* of all of them */
    uint32_t trims;
    struct meter held;
} memory[DV_PAGE_DEVICES];

static uint32_t used;  /* allocation nodes were made */
static uint32_t known; /* executable graphs in the tables, of all GPUs */

void graph_memory_used(void) {
    if (__atomic_load_n(&used, __ATOMIC_RELAXED) == 0) {
        __atomic_store_n(&used, 1, __ATOMIC_RELAXED);
    }
}

static bool read_held(void *device, uint64_t *bytes) {
    cuuint64_t value = 0;
    bool told = DV_CALL(cuDeviceGetGraphMemAttribute, *(CUdevice *)device,
                        CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &value) == CUDA_SUCCESS;
    *bytes = value;
    return told;
}

static int64_t follow(unsigned number) {
    CUdevice device;
    return device_of_number(number, &device)
               ? meter_follow(&memory[number].held, read_held, &device)
               : 0;
}

static void search(CUgraph graph, uint64_t need[DV_PAGE_DEVICES], int depth);

static void search_node(CUgraphNode node, uint64_t need[DV_PAGE_DEVICES], int depth) {
    CUgraphNodeType type;
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    CUgraph child;
    if (DV_CALL(cuGraphNodeGetType, node, &type) != CUDA_SUCCESS) {
        return;
    }
    if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
        DV_CALL(cuGraphMemAllocNodeGetParams, node, &params) == CUDA_SUCCESS &&
        params.poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        int number = device_number(params.poolProps.location.id);
        if (number >= 0) {
            need[number] += blocks_worst(params.bytesize);
        }
    }
    if (type == CU_GRAPH_NODE_TYPE_GRAPH && depth < CHILDREN_MAX &&
        DV_CALL(cuGraphChildGraphNodeGetGraph, node, &child) == CUDA_SUCCESS) {
        search(child, need, depth + 1);
    }
}

/* Adds what the graph's allocation nodes ask for. */
static void search(CUgraph graph, uint64_t need[DV_PAGE_DEVICES], int depth) {
    size_t count = 0;
    if (DV_CALL(cuGraphGetNodes, graph, NULL, &count) != CUDA_SUCCESS || count == 0) {
        return;
    }
    size_t room = count * sizeof(CUgraphNode);
    CUgraphNode *nodes =
        mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (nodes == MAP_FAILED) {
        return;
    }
    if (DV_CALL(cuGraphGetNodes, graph, nodes, &count) == CUDA_SUCCESS) {
        for (size_t i = 0; i < count; i++) {
            search_node(nodes[i], need, depth);
        }
    }
    munmap(nodes, room);
}

/* Reserves growth[device] on each device; all or none. */
static CUresult open_all(struct graph_reservation *reservation,
                         const uint64_t growth[DV_PAGE_DEVICES]) {
    reservation->open = 0;
    for (unsigned i = 0; i < DV_PAGE_DEVICES; i++) {
        if (growth[i] == 0) {
            continue;
        }
        CUresult result = reservation_open_number(&reservation->reservations[i], i, growth[i]);
        if (result != CUDA_SUCCESS) {
            for (unsigned j = 0; j < i; j++) {
                if (reservation->open >> j & 1) {
                    reservation_settle(&reservation->reservations[j], 0);
                }
            }
            return result;
        }
        reservation->open |= 1u << i;
    }
    return CUDA_SUCCESS;
}

/* The driver has answered. Settles each reservation to what it holds for graphs now. */
static void settle_all(struct graph_reservation *reservation, CUresult result) {
    for (unsigned i = 0; i < DV_PAGE_DEVICES; i++) {
        if (reservation->open >> i & 1) {
            if (result == CUDA_ERROR_OUT_OF_MEMORY) {
                const struct reservation *refused = &reservation->reservations[i];
                dv_refused(attached_share(), refused->account, refused->bytes, true);
            }
            int64_t more = follow(i);
            reservation_settle(&reservation->reservations[i], more > 0 ? (uint64_t)more : 0);
            reservation_release(i, more < 0 ? (uint64_t)-more : 0);
        }
    }
}

CUresult graph_instantiate(struct graph_reservation *reservation, CUgraph graph) {
    memset(reservation->need, 0, sizeof reservation->need);
    reservation->open = 0;
    if (__atomic_load_n(&used, __ATOMIC_RELAXED) == 0) {
        return CUDA_SUCCESS;
    }
    search(graph, reservation->need, 0);
    for (unsigned i = 0; i < DV_PAGE_DEVICES; i++) {
        if (reservation->need[i] > GRAINS_MAX_BYTES) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    return open_all(reservation, reservation->need);
}

CUresult graph_instantiated(struct graph_reservation *reservation, CUresult result,
                            CUgraphExec *exec) {
    for (unsigned i = 0; result == CUDA_SUCCESS && i < DV_PAGE_DEVICES; i++) {
        struct entry note = entry_of_bytes(reservation->need[i], 0, i);
        if (note.amount != 0 &&
            table_put(&memory[i].execs, (uint64_t)(uintptr_t)*exec, note, NULL, NULL)) {
            __atomic_add_fetch(&memory[i].need, entry_bytes(note), __ATOMIC_RELAXED);
            __atomic_add_fetch(&known, 1, __ATOMIC_RELEASE);
        }
    }
    settle_all(reservation, result);
    return result;
}

bool graph_has_memory(CUgraphExec exec) {
    struct entry note;
    if (__atomic_load_n(&known, __ATOMIC_ACQUIRE) == 0) {
        return false;
    }
    for (unsigned i = 0; i < DV_PAGE_DEVICES; i++) {
        if (table_get(&memory[i].execs, (uint64_t)(uintptr_t)exec, &note)) {
            return true;
        }
    }
    return false;
}

/* The number of the time between two trimmings; never 0. */
static uint32_t period(unsigned device) {
    return 1 + __atomic_load_n(&memory[device].trims, __ATOMIC_RELAXED);
}

/* What a launch may add on a device. The driver keeps a graph's memory until it is trimmed, but
 * graphs that used the same memory one after the other need more when they run at once. */
static uint64_t growth_of(unsigned device, struct entry note) {
    uint64_t all = __atomic_load_n(&memory[device].need, __ATOMIC_RELAXED);
    uint64_t held = __atomic_load_n(&memory[device].held.held, __ATOMIC_RELAXED);
    if (note.owner != period(device)) {
        return entry_bytes(note);
    }
    uint64_t missing = all > held ? all - held : 0;
    return missing < entry_bytes(note) ? missing : entry_bytes(note);
}

CUresult graph_launch(struct graph_reservation *reservation, CUgraphExec exec) {
    uint64_t growth[DV_PAGE_DEVICES] = {0};
    for (unsigned i = 0; i < DV_PAGE_DEVICES; i++) {
        struct entry note;
        if (table_get(&memory[i].execs, (uint64_t)(uintptr_t)exec, &note)) {
            growth[i] = growth_of(i, note);
        }
    }
    return open_all(reservation, growth);
}

CUresult graph_launched(struct graph_reservation *reservation, CUresult result, CUgraphExec exec) {
    settle_all(reservation, result);
    for (unsigned i = 0; result == CUDA_SUCCESS && i < DV_PAGE_DEVICES; i++) {
        struct entry note;
        if (reservation->open >> i & 1 &&
            table_get(&memory[i].execs, (uint64_t)(uintptr_t)exec, &note)) {
            note.owner = period(i);
            table_put(&memory[i].execs, (uint64_t)(uintptr_t)exec, note, NULL, NULL);
        }
    }
    return result;
}

void graph_ending(struct graph_end *end, CUgraphExec exec) {
    end->devices = 0;
    for (unsigned i = 0; i < DV_PAGE_DEVICES; i++) {
        struct entry note;
        if (exec != NULL && table_take(&memory[i].execs, (uint64_t)(uintptr_t)exec, &note)) {
            end->need[i] = entry_bytes(note);
            end->devices |= 1u << i;
        }
    }
}

/* Charges what graphs hold on a device now; true if less than before. */
static bool reread(unsigned device) {
    if (__atomic_load_n(&used, __ATOMIC_RELAXED) == 0) {
        return false;
    }
    int64_t more = follow(device);
    if (more > 0) {
        reservation_charge(device, (uint64_t)more);
    } else {
        reservation_release(device, (uint64_t)-more);
    }
    return more < 0;
}

static void graphs_reread(unsigned device, bool *less) {
    *less = reread(device) || *less;
}
ON(memory_short, graphs_reread);

void graph_ended(const struct graph_end *end, CUgraphExec exec, CUresult result) {
    for (unsigned i = 0; i < DV_PAGE_DEVICES; i++) {
        if ((end->devices >> i & 1) == 0) {
            continue;
        }
        if (result != CUDA_SUCCESS) {
            struct entry note = entry_of_bytes(end->need[i], 0, i);
            table_put(&memory[i].execs, (uint64_t)(uintptr_t)exec, note, NULL, NULL);
            continue;
        }
        __atomic_sub_fetch(&memory[i].need, end->need[i], __ATOMIC_RELAXED);
        __atomic_sub_fetch(&known, 1, __ATOMIC_RELAXED);
        reread(i);
    }
}

void graph_trimmed(unsigned device) {
    __atomic_add_fetch(&memory[device].trims, 1, __ATOMIC_RELAXED);
    reread(device);
}

static void graphs_forked(void) {
    memset(memory, 0, sizeof memory);
    used = 0;
    known = 0;
}
ON(forked, graphs_forked);
