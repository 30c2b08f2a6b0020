#include "storm.h"

#include <stdlib.h>

#define BLOCK (1ull << STORM_BLOCK_SHIFT)

uint64_t storm_need(uint64_t bytes) {
    return (bytes + BLOCK - 1) / BLOCK * BLOCK;
}

void storm_log_add(struct storm_log *log, uint64_t ns, enum storm_kind kind, uint64_t bytes) {
    if (log->count == STORM_LOG_MOST) {
        abort();
    }
    log->events[log->count++] = (struct storm_event){.ns = ns, .bytes = bytes, .kind = kind};
}

static uint32_t slot_of(const struct storm_blocks *table, uint64_t key) {
    uint32_t i = (uint32_t)((key * 0x9e3779b97f4a7c15u) >> 40) % STORM_TABLE;
    while (table->key[i] != 0 && table->key[i] != key) {
        i = (i + 1) % STORM_TABLE;
    }
    return i;
}

/* Drops the keys of empty blocks: allocations may get ever new addresses, and the keys of old ones
 * would fill the table. */
static void drop_empty(struct storm_blocks *table) {
    struct storm_blocks *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) {
        abort();
    }
    for (uint32_t i = 0; i < STORM_TABLE; i++) {
        if (table->users[i] == 0) {
            continue;
        }
        uint32_t to = slot_of(fresh, table->key[i]);
        fresh->key[to] = table->key[i];
        fresh->users[to] = table->users[i];
        fresh->used++;
    }
    fresh->blocks = table->blocks;
    fresh->bytes = table->bytes;
    *table = *fresh;
    free(fresh);
}

uint64_t storm_blocks_add(struct storm_blocks *table, uint64_t pointer, uint64_t bytes) {
    uint64_t fresh = 0, last = (pointer + bytes - 1) >> STORM_BLOCK_SHIFT;
    for (uint64_t key = pointer >> STORM_BLOCK_SHIFT; key <= last; key++) {
        if (table->used > STORM_TABLE / 2) {
            drop_empty(table);
        }
        uint32_t i = slot_of(table, key);
        table->used += table->key[i] == 0;
        table->key[i] = key;
        fresh += table->users[i]++ == 0;
    }
    table->blocks += fresh;
    table->bytes += bytes;
    return fresh * BLOCK;
}

uint64_t storm_blocks_remove(struct storm_blocks *table, uint64_t pointer, uint64_t bytes) {
    uint64_t gone = 0, last = (pointer + bytes - 1) >> STORM_BLOCK_SHIFT;
    for (uint64_t key = pointer >> STORM_BLOCK_SHIFT; key <= last; key++) {
        gone += --table->users[slot_of(table, key)] == 0;
    }
    table->blocks -= gone;
    table->bytes -= bytes;
    return gone * BLOCK;
}

uint64_t storm_blocks_room(const struct storm_blocks *table) {
    return table->blocks * BLOCK - table->bytes;
}

/*
 * The earliest event not yet judged. Of several at the same time, those that may raise the usage
 * come first and ends of refusals last, so that a refusal never looks false by their order.
 */
static struct storm_log *earliest(struct storm *storm, const uint64_t *next) {
    struct storm_log *best = NULL;
    uint64_t best_next = 0;
    for (unsigned i = 0; i < storm->processes; i++) {
        struct storm_log *log = &storm->logs[i];
        if (next[i] == log->count) {
            continue;
        }
        const struct storm_event *event = &log->events[next[i]];
        const struct storm_event *other = best != NULL ? &best->events[best_next] : NULL;
        if (other == NULL || event->ns < other->ns ||
            (event->ns == other->ns && event->kind < other->kind)) {
            best = log;
            best_next = next[i];
        }
    }
    return best;
}

void storm_judge(struct storm *storm, struct storm_verdict *verdict) {
    uint64_t *next = calloc(storm->processes, sizeof *next);
    uint64_t *most = calloc(storm->processes, sizeof *most);
    if (next == NULL || most == NULL) {
        abort();
    }
    for (struct storm_log *log; (log = earliest(storm, next)) != NULL;) {
        unsigned who = (unsigned)(log - storm->logs);
        const struct storm_event *event = &log->events[next[who]++];
        switch (event->kind) {
        case STORM_ALLOCATED:
            verdict->granted++;
            verdict->usage += event->bytes;
            if (verdict->usage > verdict->peak) {
                verdict->peak = verdict->usage;
            }
            for (unsigned i = 0; i < storm->processes; i++) {
                if (verdict->usage > most[i]) {
                    most[i] = verdict->usage;
                }
            }
            break;
        case STORM_FREED:
            verdict->usage -= event->bytes;
            break;
        case STORM_REFUSAL_BEGINS:
            most[who] = verdict->usage;
            break;
        default:
            verdict->refused++;
            verdict->false_refusals += most[who] + event->bytes <= storm->limit;
        }
    }
    for (unsigned i = 0; i < storm->processes; i++) {
        storm->logs[i].count = 0;
    }
    free(next);
    free(most);
}
