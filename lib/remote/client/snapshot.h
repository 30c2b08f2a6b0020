/* Facts of devices, asked once of the worker. */
#ifndef DIVVY_REMOTE_CLIENT_SNAPSHOT_H
#define DIVVY_REMOTE_CLIENT_SNAPSHOT_H

#include "remote/client/client.h"
#include "remote/facts.h"

struct snapshot {
    struct remote_facts all;
    uint32_t told; /* devices */
    struct remote_device_facts devices[REMOTE_FACT_DEVICES];
};

/* The snapshot, which stays; NULL with the result if there is none. A late error is a result too. */
const struct snapshot *snapshot(CUresult *result);
/* What the program is told of an attribute of the GPU. */
int snapshot_attribute(CUdevice_attribute attribute, int value, bool apart);

/* kept.c: answers that depend on arguments, asked once. */
#define KEPT_KEY_BYTES 48
struct kept_key {
    uint32_t call;
    uint32_t size;
    unsigned char bytes[KEPT_KEY_BYTES];
};
struct kept_key kept_key(enum remote_number call);
/* Appends an argument. */
void kept_with(struct kept_key *key, const void *argument, size_t size);
bool kept_find(const struct kept_key *key, uint64_t *value);
void kept_note(const struct kept_key *key, uint64_t value);

#endif
