/* simgpuctl play: the schedule itself, driven by lines.
 *
 * Every client is an opening of the instance by this process, with the locks and the table entries
 * of a real one. Time is the instance's virtual clock, so the same lines always have the same
 * answers. */
#define _GNU_SOURCE
#include "simgpu/ctl/play.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLIENTS 64u
#define WORDS 16u
/* So short that no channel's segments are overwritten before its stamps are looked up. */
#define STEP_NS 1000000u

typedef unsigned long long ull;

static struct {
    struct sg_instance in; /* sees without being a client */
    uint64_t event_ns;
    uint32_t multiprocessors;
    struct player *clients[CLIENTS]; /* in order of arrival */
    unsigned count;
} game;

static struct player *find(const char *name) {
    for (unsigned i = 0; i < game.count; i++) {
        if (strcmp(game.clients[i]->name, name) == 0) {
            return game.clients[i];
        }
    }
    return NULL;
}

static struct sg_channel *channel(const struct player *client) {
    return sg_channel(&client->in, client->in.id, 0);
}

/* ---- time ---- */

/* Prints the stamps of a client that were reached, of every stream. */
static void tell_stamps(struct player *client) {
    for (uint64_t i = client->stamps_told; i < client->stamps_given; i++) {
        uint64_t *position = &client->stamps[i % PLAY_STAMPS], left;
        uint64_t moment =
            *position ? sg_reached(&client->in, 0, sg_time(&game.in), *position, &left) : 0;
        if (moment) {
            printf("stamp %s %llu %llu\n", client->name, (ull)i + 1, (ull)moment);
            *position = 0;
        }
    }
    while (client->stamps_told < client->stamps_given &&
           client->stamps[client->stamps_told % PLAY_STAMPS] == 0) {
        client->stamps_told++;
    }
}

static void advance(uint64_t ns) {
    while (ns > 0) {
        uint64_t step = ns < STEP_NS ? ns : STEP_NS;
        sg_clock_move(&game.in, step);
        sg_advance(&game.in, 0, sg_time(&game.in));
        for (unsigned i = 0; i < game.count; i++) {
            tell_stamps(game.clients[i]);
        }
        ns -= step;
    }
}

/* No client is done before it has had the GPU for as long as its work takes. */
static uint64_t until_idle(void) {
    uint64_t most = 0;

    for (unsigned i = 0; i < game.count; i++) {
        uint64_t left = channel(game.clients[i])->submitted - channel(game.clients[i])->executed;
        most = left > most ? left : most;
    }
    return most;
}

static void advance_until_idle(void) {
    for (uint64_t ns; (ns = until_idle()) > 0;) {
        advance(ns);
    }
}

/* Multiprocessors occupied, times for how long. */
static void tell_occupied(void) {
    fputs("occupied", stdout);
    for (unsigned i = 0; i < game.count; i++) {
        printf(" %s %llu", game.clients[i]->name, (ull)channel(game.clients[i])->sm_ns);
    }
    putchar('\n');
}

static void tell_pages(void) {
    fputs("pages", stdout);
    for (unsigned i = 0; i < game.count; i++) {
        play_tell_pages(game.clients[i]);
    }
    putchar('\n');
}

static void tell_time(void) {
    printf("time %llu", (ull)sg_time(&game.in));
    for (unsigned i = 0; i < game.count; i++) {
        printf(" %s %llu", game.clients[i]->name, (ull)channel(game.clients[i])->executed);
    }
    putchar('\n');
}

/* ---- commands ---- */

/* Takes a pair of names off the front of the options; false when it names no client. */
static bool read_server(char ***words, struct player **server) {
    *server = NULL;
    if ((*words)[0] && strcmp((*words)[0], "server") == 0) {
        if (!(*words)[1] || !(*server = find((*words)[1]))) {
            return play_wrong("no server %s", (*words)[1] ? (*words)[1] : "");
        }
        *words += 2;
    }
    return true;
}

/* A member of a server's group occupies that many percent of the multiprocessors at most, rounded up. */
static void join(struct player *client, const struct player *server, uint64_t percent) {
    uint32_t usable = (uint32_t)((game.multiprocessors * percent + 99) / 100);

    sg_channel_start(&client->in, 0, game.multiprocessors, usable);
    if (server) {
        sg_group_join(&game.in, 0, server->in.id, server->in.id);
        sg_group_join(&game.in, 0, client->in.id, server->in.id);
    }
}

static bool add_client(char **words) {
    struct player *client, *server;
    uint64_t slice_ns = 0, percent = 100;
    const struct play_option known[] = {{"slice", &slice_ns}, {"percent", &percent}};
    char **options = words + 2;

    if (find(words[1]) || game.count == CLIENTS || strlen(words[1]) >= SG_TAG_BYTES) {
        return play_wrong("cannot add client %s", words[1]);
    }
    if (!read_server(&options, &server) || !play_options(options, known, 2)) {
        return false;
    }
    if (percent == 0 || percent > 100) {
        return play_wrong("percent is 1 to 100");
    }
    if (!(client = calloc(1, sizeof *client))) {
        return play_wrong("no memory");
    }
    int result = sg_open(&client->in, game.in.dir, words[1], true);
    if (result != 0) {
        free(client);
        return play_wrong("%s", strerror(-result));
    }
    snprintf(client->name, sizeof client->name, "%s", words[1]);
    join(client, server, percent);
    channel(client)->slice_ns = slice_ns;
    game.clients[game.count++] = client;
    return true;
}

static bool end_client(struct player *client) {
    unsigned i = 0;

    sg_close(&client->in);
    play_pages_end(client);
    while (game.clients[i] != client) {
        i++;
    }
    memmove(&game.clients[i], &game.clients[i + 1], (game.count - i - 1) * sizeof game.clients[0]);
    game.count--;
    free(client);
    return true;
}

/* submit NAME NS and stamp NAME; options begin at `options`. */
static bool give(struct player *client, uint64_t ns, bool stamp, char **options) {
    uint64_t stream = 0, blocks = game.multiprocessors;
    const struct play_option known[] = {{"stream", &stream}, {"blocks", &blocks}};
    struct sg_work work = {.ns = ns, .engine = stamp ? SG_ON_NONE : SG_ON_MULTIPROCESSORS};

    if (!play_options(options, known, 2)) {
        return false;
    }
    if (stream >= PLAY_STREAMS || blocks == 0) {
        return play_wrong("streams are 0 to %u, blocks at least 1", PLAY_STREAMS - 1);
    }
    if (stamp && client->stamps_given - client->stamps_told == PLAY_STAMPS) {
        return play_wrong("too many stamps wait");
    }
    work.multiprocessors = blocks < game.multiprocessors ? (uint32_t)blocks : game.multiprocessors;
    play_give(client, stream, &work);
    if (stamp) {
        client->stamps[client->stamps_given++ % PLAY_STAMPS] = client->tails[stream];
    }
    return true;
}

static bool of_client(char **words) {
    struct player *client = find(words[1]);
    uint64_t ns = 0;
    bool timed = strcmp(words[0], "submit") == 0 || strcmp(words[0], "slice") == 0;

    if (!client) {
        return play_wrong("no client %s", words[1]);
    }
    if (play_is_of_pages(words[0])) {
        return play_pages(client, game.multiprocessors, words);
    }
    if (timed && (!words[2] || !ctl_duration(words[2], &ns))) {
        return play_wrong("%s needs a time", words[0]);
    }
    if (strcmp(words[0], "submit") == 0) {
        return ns ? give(client, ns, false, words + 3) : play_wrong("nothing to do");
    }
    if (strcmp(words[0], "stamp") == 0) {
        return give(client, game.event_ns, true, words + 2);
    }
    if (strcmp(words[0], "end") == 0) {
        return end_client(client);
    }
    channel(client)->slice_ns = ns;
    return true;
}

static bool perform(char **words) {
    static const char *const of_clients[] = {"submit", "stamp", "slice", "end"};
    uint64_t ns;

    if (!words[1]) {
        return play_wrong("%s needs more", words[0]);
    }
    if (strcmp(words[0], "client") == 0) {
        return add_client(words);
    }
    for (unsigned i = 0; i < sizeof of_clients / sizeof *of_clients; i++) {
        if (strcmp(words[0], of_clients[i]) == 0) {
            return of_client(words);
        }
    }
    if (play_is_of_pages(words[0])) {
        return of_client(words);
    }
    if (strcmp(words[0], "advance") == 0 && ctl_duration(words[1], &ns)) {
        advance(ns);
    } else if (strcmp(words[0], "until") == 0 && strcmp(words[1], "idle") == 0) {
        advance_until_idle();
    } else {
        return play_wrong("unknown line %s %s", words[0], words[1]);
    }
    return true;
}

static void play(void) {
    char line[512], *words[WORDS + 2], *rest;

    while (fgets(line, sizeof line, stdin)) {
        unsigned n = 0;
        memset(words, 0, sizeof words);
        for (char *word = strtok_r(line, " \t\n", &rest); word && n < WORDS;
             word = strtok_r(NULL, " \t\n", &rest)) {
            words[n++] = word;
        }
        if (n == 1 && strcmp(words[0], "occupied") == 0) {
            tell_occupied();
        } else if (n == 1 && strcmp(words[0], "pages") == 0) {
            tell_pages();
        } else if (n > 0 && words[0][0] != '#' && perform(words)) {
            tell_time();
        }
        fflush(stdout);
    }
    while (game.count) {
        end_client(game.clients[game.count - 1]);
    }
}

/* ---- start ---- */

/* A machine of its own: one GPU, the defaults of the machine files. */
static bool own_machine(char dir[]) {
    struct sg_create spec = {.gpu_count = 1,
                             .gpus = {{.total_bytes = 64u << 20}},
                             .virtual_clock = true,
                             .pages = {.rate = 10u * SG_BLOCK_BYTES * 1000}};

    if (!mkdtemp(dir)) {
        return false;
    }
    game.event_ns = 500;
    game.multiprocessors = 100;
    return sg_state_create(dir, &spec) == 0 && ctl_open(&game.in, dir);
}

static void remove_machine(const char *dir) {
    static const char *const files[] = {"state", "exports", "memory-0"};
    char path[SG_PATH_BYTES];

    for (unsigned i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        unlink(path);
    }
    rmdir(dir);
}

static bool open_machine(const char *dir) {
    const sim_machine *machine;

    if (!ctl_open(&game.in, dir)) {
        return false;
    }
    if ((machine = ctl_machine(&game.in)) != NULL && game.in.state->is_virtual) {
        game.event_ns = machine->event_ns;
        game.multiprocessors = machine->gpus[0].multiprocessors;
        return true;
    }
    if (machine) {
        fprintf(stderr, "%s: its clock is the host's: start one with --set clock=virtual\n", dir);
    }
    sg_close(&game.in);
    return false;
}

int ctl_play(const char *dir) {
    char own[] = "/dev/shm/simgpuctl-XXXXXX";
    bool ready = dir ? open_machine(dir) : own_machine(own);

    if (ready) {
        play();
        sg_close(&game.in);
    } else if (!dir) {
        ctl_fail(own, -ENOSPC);
    }
    if (!dir) {
        remove_machine(own);
    }
    return ready ? 0 : 1;
}
