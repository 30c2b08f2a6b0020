/* The report of instances of divided GPUs. */
#include "simgpu/ctl/ctl.h"

static void print_uuid(FILE *out, const struct sg_instance *in, uint32_t place) {
    uint8_t uuid[16];

    sg_mig_uuid(in, place, uuid);
    fputs("\"MIG-", out);
    for (int i = 0; i < 16; i++) {
        fprintf(out, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
    }
    fputc('"', out);
}

static void print_computes(FILE *out, const struct sg_instance *in, uint32_t gpu, uint32_t gi) {
    bool first = true;

    for (uint32_t ci = 0; ci < SG_MIG_COMPUTE_INSTANCES; ci++) {
        uint32_t place = sg_place_of(gpu, gi, ci);
        const struct sg_compute_instance *compute = sg_mig_compute_instance(in, place);
        if (compute) {
            fprintf(out,
                    "%s{\"id\": %u, \"start\": %u, \"slices\": %u, \"uuid\": ", first ? "" : ", ",
                    ci, compute->start, compute->size);
            print_uuid(out, in, place);
            fputc('}', out);
            first = false;
        }
    }
}

void ctl_print_mig(FILE *out, const struct sg_instance *in, const sim_machine *machine,
                   uint32_t gpu) {
    const struct sg_mig *mig = &in->state->gpus[gpu].mig;
    bool first = true;

    if (!machine->gpus[gpu].mig) {
        return;
    }
    fprintf(out, ",\n   \"mig\": {\"on\": %s, \"pending\": %s, \"instances\": [",
            mig->on ? "true" : "false", mig->pending ? "true" : "false");
    for (uint32_t gi = 0; gi < SG_MIG_GPU_INSTANCES; gi++) {
        const struct sg_gpu_instance *instance = sg_mig_gpu_instance(in, gpu, gi);
        if (!instance) {
            continue;
        }
        const sim_mig_profile *profile = &machine->mig_profiles[instance->profile];
        fprintf(out, "%s\n    {\"id\": %u, \"profile\": ", first ? "" : ",", gi);
        ctl_print_string(out, profile->name, sizeof profile->name);
        fprintf(
            out,
            ", \"start\": %u, \"size\": %u, \"used\": %llu, \"capacity\": %llu, \"computes\": [",
            instance->start, profile->size,
            (unsigned long long)((instance->used_blocks + instance->resident) * SG_BLOCK_BYTES),
            (unsigned long long)(sg_mig_blocks(in, gpu, gi) * SG_BLOCK_BYTES));
        print_computes(out, in, gpu, gi);
        fputs("]}", out);
        first = false;
    }
    fputs("]}", out);
}

void ctl_print_place(FILE *out, const struct sg_instance *in, uint32_t place) {
    if (place) {
        fputs("\"mig\": ", out);
        print_uuid(out, in, place);
        fputs(", ", out);
    }
}
