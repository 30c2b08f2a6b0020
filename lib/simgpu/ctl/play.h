/* What the parts of simgpuctl play share. */
#ifndef SIMGPU_CTL_PLAY_H
#define SIMGPU_CTL_PLAY_H

#include "simgpu/ctl/ctl.h"

#define PLAY_STREAMS 64u
#define PLAY_STAMPS 4096u /* of one client that are not reached yet */
#define PLAY_AREAS 64u

/* A client of the game. */
struct player {
    char name[SG_TAG_BYTES];
    struct sg_instance in;
    uint64_t tails[PLAY_STREAMS];
    uint64_t stamps[PLAY_STAMPS]; /* positions, in order of being given */
    uint64_t stamps_given, stamps_told;
    struct {
        uint32_t first, chunks; /* 0 chunks: none */
    } areas[PLAY_AREAS];
    uint32_t *ordinary; /* blocks */
    uint32_t ordinary_count;
};

struct play_option {
    const char *name;
    uint64_t *value; /* keeps what it is when the line does not have the option */
};

/* play_lines.c */
/* Answers that the line is wrong; false. */
__attribute__((format(printf, 1, 2))) bool play_wrong(const char *format, ...);
/* Reads the pairs of a name and a number that end a line. */
bool play_options(char **words, const struct play_option *known, unsigned count);
/* Gives work to a stream, whose tail it moves. */
void play_give(struct player *player, uint64_t stream, struct sg_work *work);

/* play_pages.c: lines about managed memory. */
/* Whether it is one that names a client; words[0] is known to be there. */
bool play_is_of_pages(const char *word);
bool play_pages(struct player *player, uint32_t multiprocessors, char **words);
/* Gives back what a client that ends keeps in this process. */
void play_pages_end(struct player *player);
/* A client's part of the answer to `pages`. */
void play_tell_pages(const struct player *player);

#endif
