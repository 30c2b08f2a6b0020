/* A worker for tests of the client: a thread of the test that takes records and answers as a test says. */
#ifndef DIVVY_REMOTE_CLIENT_SETTING_H
#define DIVVY_REMOTE_CLIENT_SETTING_H

#include "remote/client/inside.h"
#include "remote/link_inside.h"
#include "test/check.h"

struct setting;

/* Called for each record; `words` are its first. */
typedef void setting_record(struct remote_link *link, const struct remote_head *head,
                            const uint64_t *words);

/* Called when no record came for a moment, if a test sets it. */
extern void (*setting_idle)(struct remote_link *link);

/* Listens where the client looks, and has each connection served by this function on a thread of its own. */
void setting_start(enum remote_link_kind kind, setting_record *record);
/* Does the test in a process of its own for each kind of link. The result of main. */
int setting_run(void (*test)(enum remote_link_kind kind));

/* How many connections were made, and how many records came. */
unsigned setting_connections(void);
unsigned long setting_records(void);
/* The latest connection. */
struct remote_link *setting_link(void);

/* Answers with what was written to parameter 0, 8 bytes, unless it failed. */
void setting_answer(struct remote_link *link, const struct remote_head *head, int32_t result,
                    uint64_t late, uint64_t value);
/* A frame of the worker's own. */
void setting_notify(struct remote_link *link, uint16_t call, uint64_t value);

/* A waiting call with one word and one output, which nothing but the worker answers. */
int32_t setting_ask(enum remote_number number, uint64_t word, uint64_t *value);

/* Waits until it is true. */
#define UNTIL(condition)                                                                           \
    do {                                                                                           \
        for (int left_ = 20000; !(condition); left_--) {                                           \
            CHECK(left_ > 0);                                                                      \
            setting_moment();                                                                      \
        }                                                                                          \
    } while (0)
void setting_moment(void);

#endif
