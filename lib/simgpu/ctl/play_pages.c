/* simgpuctl play: managed memory, and ordinary memory that displaces it. */
#include "simgpu/ctl/play.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

#define MIB (1ull << 20)

static const char *const lines[] = {"managed", "free",     "fill", "sweep",
                                    "scatter", "prefetch", "take"};

bool play_is_of_pages(const char *word) {
    for (unsigned i = 0; i < sizeof lines / sizeof *lines; i++) {
        if (strcmp(word, lines[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool number(const char *word, uint64_t most, uint64_t *value) {
    return word && ctl_duration(word, value) && *value <= most;
}

static uint32_t blocks_of(uint64_t mib) {
    return (uint32_t)((mib * MIB + SG_BLOCK_BYTES - 1) / SG_BLOCK_BYTES);
}

static bool refused(int result) {
    return result == 0 || play_wrong("%s", strerror(-result));
}

static bool take_managed(struct player *player, uint64_t area, uint64_t mib) {
    struct sg_instance *in = &player->in;

    if (player->areas[area].chunks || mib == 0) {
        return play_wrong("area %llu is there already, or has no size", (ull)area);
    }
    sg_state_lock(in);
    int result = sg_chunks_take(in, blocks_of(mib), &player->areas[area].first);
    sg_state_unlock(in);
    player->areas[area].chunks = result == 0 ? blocks_of(mib) : 0;
    return refused(result);
}

/* Ordinary memory of that size in place of what it had. */
static bool take_ordinary(struct player *player, uint64_t mib) {
    struct sg_instance *in = &player->in;
    uint32_t n = blocks_of(mib), *numbers = calloc(n ? n : 1, sizeof *numbers);

    if (!numbers) {
        return play_wrong("no memory");
    }
    sg_state_lock(in);
    sg_blocks_return(in, 0, player->ordinary_count, player->ordinary);
    int result =
        n > in->state->gpus[0].block_count ? -ENOMEM : sg_blocks_take(in, 0, SG_LINEAR, n, numbers);
    sg_state_unlock(in);
    free(player->ordinary);
    player->ordinary = numbers;
    player->ordinary_count = result == 0 ? n : 0;
    return refused(result);
}

static bool touch(struct player *player, uint32_t multiprocessors, uint64_t area, char **words) {
    uint64_t ns = 1, reads = 1, writes = 0, order = SG_FORWARD, seed = 0, stream = 0, host = 0;
    const struct play_option known[] = {{"reads", &reads}, {"writes", &writes}, {"order", &order},
                                        {"seed", &seed},   {"stream", &stream}, {"host", &host}};
    bool prefetch = strcmp(words[0], "prefetch") == 0, scatter = strcmp(words[0], "scatter") == 0;

    if (!prefetch && (!words[3] || !ctl_duration(words[3], &ns) || ns == 0)) {
        return play_wrong("%s needs a time", words[0]);
    }
    if (!play_options(words + (prefetch ? 3 : 4), known, sizeof known / sizeof *known)) {
        return false;
    }
    if (stream >= PLAY_STREAMS || order >= SG_TOUCH_ORDERS || reads > UINT32_MAX ||
        writes > UINT32_MAX) {
        return play_wrong("a number is too large");
    }
    struct sg_touch what = {.first = player->areas[area].first,
                            .chunks = player->areas[area].chunks,
                            .reads = (uint32_t)reads,
                            .writes = (uint32_t)writes,
                            .seed = (uint32_t)seed,
                            .kind = scatter ? SG_SCATTER : SG_SWEEP,
                            .order = (uint8_t)order};
    struct sg_work work = {.ns = ns,
                           .engine = prefetch ? SG_ON_NONE : SG_ON_MULTIPROCESSORS,
                           .multiprocessors = multiprocessors,
                           .touches = &what,
                           .touch_count = 1};
    if (prefetch) {
        what.kind = host ? SG_PREFETCH_HOST : SG_PREFETCH;
    }
    play_give(player, stream, &work);
    return true;
}

bool play_pages(struct player *player, uint32_t multiprocessors, char **words) {
    uint64_t area, mib;

    if (strcmp(words[0], "take") == 0) {
        return number(words[2], UINT32_MAX, &mib) ? take_ordinary(player, mib)
                                                  : play_wrong("take needs MiB");
    }
    if (!number(words[2], PLAY_AREAS - 1, &area)) {
        return play_wrong("areas are 0 to %u", PLAY_AREAS - 1);
    }
    if (strcmp(words[0], "managed") == 0) {
        return number(words[3], UINT32_MAX, &mib) ? take_managed(player, area, mib)
                                                  : play_wrong("managed needs MiB");
    }
    if (player->areas[area].chunks == 0) {
        return play_wrong("no area %llu", (ull)area);
    }
    if (strcmp(words[0], "free") == 0) {
        sg_chunks_return(&player->in, player->areas[area].first, player->areas[area].chunks);
        player->areas[area].chunks = 0;
        return true;
    }
    if (strcmp(words[0], "fill") == 0) {
        sg_chunks_host(&player->in, player->areas[area].first, player->areas[area].chunks, true);
        return true;
    }
    return touch(player, multiprocessors, area, words);
}

void play_pages_end(struct player *player) {
    free(player->ordinary);
    player->ordinary = NULL;
}

void play_tell_pages(const struct player *player) {
    static const struct sg_page_account none;
    const struct sg_instance *in = &player->in;
    const struct sg_page_account *account =
        in->state->clients[in->id].pages ? &sg_pager(in, in->id, 0)->account : &none;

    printf(" %s %llu %llu %llu %llu %llu", player->name, (ull)(account->resident * SG_BLOCK_BYTES),
           (ull)account->in, (ull)account->out, (ull)account->faults, (ull)account->stalled_ns);
}
