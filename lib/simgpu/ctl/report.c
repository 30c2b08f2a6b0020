/* simgpuctl report: the oracle. Memory in bytes, time in nanoseconds; internal/simgpu reads it.
 *
 * Everything is read under one hold of the state lock, after everything of dead processes has been
 * freed, so that the sums of a report agree. It is formatted in memory first: a slow reader of the
 * output must not keep the machine locked. */
#define _GNU_SOURCE
#include "simgpu/ctl/ctl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

typedef unsigned long long ull;

static const char *const categories[SG_CATEGORIES] = {
    [SG_CONTEXT] = "context", [SG_LINEAR] = "linear",   [SG_POOL] = "pool",   [SG_VMM] = "vmm",
    [SG_ARRAY] = "array",     [SG_MANAGED] = "managed", [SG_GRAPH] = "graph",
};

static const char *const compute_modes[] = {
    [SG_COMPUTE_DEFAULT] = "default",
    [SG_COMPUTE_PROHIBITED] = "prohibited",
    [SG_COMPUTE_EXCLUSIVE_PROCESS] = "exclusive-process",
};

/* By enum sg_process_state. */
static const char *const process_states[] = {"running", "locked", "checkpointed", "failed"};

static const char *const slice_levels[SG_SLICE_LEVELS] = {"default", "short", "medium", "long"};

static void print_uuid(FILE *out, const uint8_t uuid[16]) {
    fputs("\"GPU-", out);
    for (int i = 0; i < 16; i++) {
        fprintf(out, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
    }
    fputc('"', out);
}

static void print_gpus(FILE *out, struct sg_instance *in, const sim_machine *machine) {
    for (uint32_t i = 0; i < machine->gpu_count; i++) {
        const struct sg_gpu *gpu = &in->state->gpus[i];
        const sim_gpu *model = &machine->gpus[i];
        uint64_t used = sg_gpu_used(in, i);

        fprintf(out, "%s\n  {\"index\": %u, \"uuid\": ", i ? "," : "", i);
        print_uuid(out, model->uuid);
        fputs(", \"name\": ", out);
        ctl_print_string(out, model->name, sizeof model->name);
        fprintf(out, ", \"pci\": \"%08x:%02x:%02x.%x\", ", model->pci.domain, model->pci.bus,
                model->pci.device, model->pci.function);
        fprintf(out, "\"total\": %llu, \"reserved\": %llu, \"used\": %llu, \"peak\": %llu, ",
                (ull)gpu->total_bytes, (ull)gpu->reserved_bytes, (ull)used, (ull)gpu->peak_bytes);
        fprintf(out,
                "\"free\": %llu, \"busyNs\": %llu, \"computeMode\": \"%s\", "
                "\"timeSlice\": \"%s\"",
                (ull)(gpu->block_count * SG_BLOCK_BYTES - used), (ull)gpu->busy_ns,
                compute_modes[sg_compute_mode(in, i)], slice_levels[sg_slice_level(in, i)]);
        ctl_print_mig(out, in, machine, i);
        fputc('}', out);
    }
}

/* What became of managed memory on a GPU. */
static void print_moves(FILE *out, const struct sg_page_account *account) {
    fprintf(out, "\"bytesIn\": %llu, \"bytesOut\": %llu, \"faults\": %llu, \"stalledNs\": %llu",
            (ull)account->in, (ull)account->out, (ull)account->faults, (ull)account->stalled_ns);
}

/* What a process has on one GPU; nothing is written for a GPU that it never used. */
static bool print_process_gpu(FILE *out, struct sg_instance *in, uint32_t slot, uint32_t gpu,
                              bool first) {
    static const struct sg_page_account none;
    const struct sg_client *client = &in->state->clients[slot];
    const struct sg_membership *membership = &client->membership;
    uint32_t whole = ctl_machine(in)->gpus[gpu].multiprocessors;
    uint64_t done = sg_channel(in, slot, gpu)->executed;
    uint64_t used = sg_client_used(in, slot, gpu);

    if (client->contexts[gpu] == 0 && used == 0 && client->imported[gpu] == 0 && done == 0) {
        return false;
    }
    fprintf(out, "%s\n   {\"index\": %u, \"contexts\": %u, \"used\": %llu, ", first ? "" : ",", gpu,
            client->contexts[gpu], (ull)used);
    for (uint32_t i = 0; i < SG_CATEGORIES; i++) {
        fprintf(out, "\"%s\": %llu, ", categories[i], (ull)client->bytes[gpu][i]);
    }
    fprintf(out, "\"imported\": %llu, \"gpuNs\": %llu, \"smNs\": %llu, ",
            (ull)client->imported[gpu], (ull)done, (ull)(sg_channel(in, slot, gpu)->sm_ns / whole));
    print_moves(out, client->pages ? &sg_pager(in, slot, gpu)->account : &none);
    fprintf(out, ", \"multiprocessors\": %u, \"memoryLimit\": %llu}",
            membership->usable[gpu] ? membership->usable[gpu] : whole,
            (ull)membership->limits[gpu]);
    return true;
}

/* The process of a client's MPS server, or of a server its own; 0 for others. */
static int32_t server_of(const struct sg_instance *in, uint32_t slot, struct sg_pids *pids) {
    uint32_t party = sg_channel(in, slot, 0)->server;

    return party && party <= SG_CLIENTS_MAX ? sg_pids_of(pids, &in->state->clients[party - 1].who)
                                            : 0;
}

static void print_processes(FILE *out, struct sg_instance *in, struct sg_pids *pids) {
    bool first = true;

    for (uint32_t i = 0; (i = sg_next_client(in, i)) < SG_CLIENTS_MAX; i++) {
        const struct sg_client *client = &in->state->clients[i];
        bool first_gpu = true;

        fprintf(out, "%s\n  {\"pid\": %d, \"tenant\": ", first ? "" : ",",
                sg_pids_of(pids, &client->who));
        ctl_print_string(out, in->state->tags[client->tag % SG_TAGS_MAX].name, SG_TAG_BYTES);
        fputs(", \"command\": ", out);
        ctl_print_string(out, client->comm, sizeof client->comm);
        fprintf(out, ", \"state\": \"%s\", \"mpsServer\": %d, ",
                process_states[client->checkpoint.state % 4], server_of(in, i, pids));
        ctl_print_place(out, in, client->place);
        fputs("\"gpus\": [", out);
        for (uint32_t gpu = 0; gpu < in->state->gpu_count; gpu++) {
            if (print_process_gpu(out, in, i, gpu, first_gpu)) {
                first_gpu = false;
            }
        }
        fputs("]}", out);
        first = false;
    }
}

/* The same of multiprocessors that they occupied, as if each time it had been the whole GPU. */
static uint64_t tenant_sm_ns(struct sg_instance *in, uint32_t tag, uint32_t gpu) {
    uint64_t sum = in->state->tags[tag].sm_ns[gpu];

    for (uint32_t i = 0; (i = sg_next_client(in, i)) < SG_CLIENTS_MAX; i++) {
        if (in->state->clients[i].tag == tag) {
            sum += sg_channel(in, i, gpu)->sm_ns;
        }
    }
    return sum / ctl_machine(in)->gpus[gpu].multiprocessors;
}

/* Time of a tenant's dead and living processes. */
static uint64_t tenant_ns(struct sg_instance *in, uint32_t tag, uint32_t gpu) {
    uint64_t sum = in->state->tags[tag].gpu_ns[gpu];

    for (uint32_t i = 0; (i = sg_next_client(in, i)) < SG_CLIENTS_MAX; i++) {
        if (in->state->clients[i].tag == tag) {
            sum += sg_channel(in, i, gpu)->executed;
        }
    }
    return sum;
}

/* Whether a process of the tenant, or with `others` one of another tenant, holds the object. */
static bool is_held(const struct sg_instance *in, const struct sg_object *o, uint32_t tag,
                    bool others) {
    for (uint32_t i = 0; i < SG_CLIENTS_MAX; i++) {
        if ((o->holders[i / 64] >> (i % 64) & 1) && (in->state->clients[i].tag == tag) != others) {
            return true;
        }
    }
    return false;
}

/* Memory of others that a tenant's processes hold, and memory of its own that only others' do. */
static void count_objects(struct sg_instance *in, uint32_t tag, uint32_t gpu, uint64_t *imported,
                          uint64_t *abroad) {
    *imported = *abroad = 0;
    for (uint32_t i = 0; i < in->state->objects_end; i++) {
        const struct sg_object *o = &in->state->objects[i];
        if (!o->in_use || o->gpu != gpu) {
            continue;
        }
        bool held = is_held(in, o, tag, false);
        if (o->tag != tag && held) {
            *imported += o->blocks * SG_BLOCK_BYTES;
        } else if (o->tag == tag && !held && is_held(in, o, tag, true) &&
                   !(o->descriptors && sg_export_open(in, i))) {
            *abroad += o->blocks * SG_BLOCK_BYTES;
        }
    }
}

static void print_tenants(FILE *out, struct sg_instance *in) {
    for (uint32_t i = 0; i < SG_TAGS_MAX; i++) {
        const struct sg_tag *tag = &in->state->tags[i];

        if (i > 0 && tag->name[0] == '\0') {
            continue;
        }
        fprintf(out, "%s\n  {\"tenant\": ", i ? "," : "");
        ctl_print_string(out, tag->name, sizeof tag->name);
        fputs(", \"gpus\": [", out);
        for (uint32_t gpu = 0; gpu < in->state->gpu_count; gpu++) {
            uint64_t imported, abroad;
            count_objects(in, i, gpu, &imported, &abroad);
            fprintf(out,
                    "%s{\"index\": %u, \"used\": %llu, \"peak\": %llu, \"imported\": %llu, "
                    "\"abroad\": %llu, \"gpuNs\": %llu, \"smNs\": %llu, \"managed\": %llu, ",
                    gpu ? ", " : "", gpu, (ull)sg_tag_used(in, i, gpu), (ull)tag->peak[gpu],
                    (ull)imported, (ull)abroad, (ull)tenant_ns(in, i, gpu),
                    (ull)tenant_sm_ns(in, i, gpu),
                    (ull)(tag->pages[gpu].resident * SG_BLOCK_BYTES));
            print_moves(out, &tag->pages[gpu]);
            fputc('}', out);
        }
        fputs("]}", out);
    }
}

static unsigned visitors(const struct sg_instance *in) {
    unsigned n = 0;

    for (uint32_t i = 0; i < SG_VISITORS_MAX; i++) {
        n += SG_CLIENTS_MAX + i != in->id && sg_alive(in, SG_CLIENTS_MAX + i);
    }
    return n;
}

static void print_report(FILE *out, struct sg_instance *in, const sim_machine *machine,
                         struct sg_pids *pids) {
    fputs("{\"machine\": ", out);
    ctl_print_string(out, machine->name, sizeof machine->name);
    fputs(", \"driver\": ", out);
    ctl_print_string(out, machine->driver_version, sizeof machine->driver_version);
    fprintf(out, ", \"cuda\": %u,\n \"gpus\": [", machine->cuda_version);
    print_gpus(out, in, machine);
    fputs("],\n \"processes\": [", out);
    print_processes(out, in, pids);
    fputs("],\n \"tenants\": [", out);
    print_tenants(out, in);
    fprintf(out, "],\n \"deadHandles\": %u, \"hostBytes\": %llu, \"visitors\": ",
            in->state->dead_handles, (ull)(in->state->pages.host_chunks * SG_BLOCK_BYTES));
}

int ctl_report(const char *dir) {
    struct sg_instance in;
    const sim_machine *machine;
    char *text = NULL;
    size_t size = 0;

    if (!ctl_open(&in, dir)) {
        return 1;
    }
    machine = ctl_machine(&in);
    FILE *out = machine ? open_memstream(&text, &size) : NULL;
    if (!out) {
        sg_close(&in);
        return machine ? ctl_fail(dir, -ENOMEM) : 1;
    }
    struct sg_pids pids = {.count = 0};
    sg_pids_read(&pids);
    sg_state_lock(&in);
    sg_reap(&in);
    for (uint32_t gpu = 0; gpu < in.state->gpu_count; gpu++) {
        sg_advance(&in, gpu, sg_time(&in));
    }
    print_report(out, &in, machine, &pids);
    sg_state_unlock(&in);
    sg_pids_end(&pids);
    fprintf(out, "%u}\n", visitors(&in));
    int failed = fclose(out) != 0 || fputs(text, stdout) < 0 || fflush(stdout) != 0;
    free(text);
    sg_close(&in);
    return failed ? ctl_fail(dir, -ENOSPC) : 0;
}
