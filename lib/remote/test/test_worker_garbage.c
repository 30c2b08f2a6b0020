/* Clients that speak the protocol themselves, badly: drawn records to the program with the simulated driver. Each ends in its
 * own worker: another client is served all the while, and of what they made nothing is left. FRAMES=n says how many records,
 * SEED=n repeats a run, SOCKET=path takes a listener that is there, such as a share's. */
#include "remote/generated/numbers/numbers.h"
#include "remote/link.h"
#include "remote/test/program.h"
#include "remote/test/seeds.h"
#include "simgpu/machine/test/setting.h"

#include <string.h>

static _Alignas(8) unsigned char frame[REMOTE_RECORD_BYTES], taken[REMOTE_RECORD_BYTES];
/* A number that no drawn record has, but for a chance. */
#define LAST UINT64_C(0x5ca1ab1e5ca1ab1e)
#define OUT_OF_MEMORY 2

static unsigned long ended, answered;
static uint64_t state;

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static struct remote_link *join(void) {
    char why[REMOTE_WHY_BYTES] = "";
    struct remote_link *link = remote_link_connect(program_path, why);

    if (!link) {
        fprintf(stderr, "no link: %s\n", why);
        exit(1);
    }
    return link;
}

static bool put(struct remote_link *link, const void *record, uint32_t size) {
    struct remote_head head;

    memcpy(&head, record, sizeof head);
    head.size = size;
    struct remote_piece rest = {(const unsigned char *)record + sizeof head, size - sizeof head};
    if (!remote_link_put(link, &head, sizeof head, &rest, 1)) {
        return false;
    }
    remote_link_flush(link);
    return true;
}

static int32_t ask(struct remote_link *link, uint16_t call, uint64_t context, uint32_t given,
                   const uint64_t *words, uint32_t count) {
    static uint64_t sequence;
    struct {
        struct remote_head head;
        uint64_t words[3];
    } record = {
        .head = {
            .call = call, .sequence = ++sequence, .context = context, .thread = 1, .given = given}};
    struct remote_answer answer;
    size_t size;

    memcpy(record.words, words, 8 * (size_t)count);
    CHECK(put(link, &record, (uint32_t)sizeof record.head + 8 * count));
    CHECK_EQUAL(remote_link_take(link, taken, &size, -1), REMOTE_TAKEN);
    memcpy(&answer, taken, sizeof answer);
    CHECK_EQUAL(answer.sequence, sequence);
    return answer.result;
}

static const uint64_t context_words[3] = {0x1000, 0, 0};

/* Where there is a limit, the memory of the worker before this one is free a moment after its link has ended. */
static bool make_context(struct remote_link *link) {
    int32_t result = ask(link, REMOTE_cuCtxCreate_v2, 0, 1, context_words, 3);

    CHECK(result == 0 || result == OUT_OF_MEMORY);
    return result == 0;
}

/* A client whose first calls are good ones, so that others find a context. */
static struct remote_link *begin(void) {
    struct remote_link *link = join();

    CHECK_EQUAL(ask(link, REMOTE_cuInit, 0, 0, context_words + 1, 1), 0);
    EVENTUALLY(make_context(link));
    return link;
}

static uint64_t free_memory(struct remote_link *link) {
    uint64_t free;

    CHECK_EQUAL(ask(link, REMOTE_cuMemGetInfo_v2, 0x1000, 3, context_words, 0), 0);
    memcpy(&free, taken + sizeof(struct remote_answer), sizeof free);
    return free;
}

/* Sends one drawn record, and another that has an answer: when that is there, the first was executed. False if the worker
 * has ended. */
static bool send_drawn(struct remote_link *link) {
    const struct remote_head version = {
        .call = REMOTE_cuDriverGetVersion, .sequence = LAST, .thread = 1, .given = 1};
    size_t size = seeds_frame(frame, next);
    uint64_t context = next() % 4 ? 0x1000 : 0x1000 + next() % 16;
    struct remote_answer answer = {0};

    if (size < sizeof(struct remote_head)) {
        return true;
    }
    memcpy(frame + offsetof(struct remote_head, context), &context, sizeof context);
    if (!put(link, frame, (uint32_t)size) || !put(link, &version, sizeof version)) {
        return false;
    }
    while (answer.sequence != LAST) {
        if (remote_link_take(link, taken, &size, -1) != REMOTE_TAKEN) {
            return false;
        }
        memcpy(&answer, taken, sizeof answer);
        answered += answer.sequence != LAST;
    }
    return true;
}

/* Drawn records on one link after the other. */
static void send_all(uint64_t count, struct remote_link *other) {
    struct remote_link *link = begin();

    for (uint64_t i = 0; i < count; i++) {
        if (!send_drawn(link)) {
            remote_link_free(link);
            link = begin();
            ended++;
        }
        if (other && i % 1024 == 0) {
            free_memory(other);
        }
    }
    remote_link_free(link);
}

/* Beside another client, whose share of the GPU is as it was afterwards. */
static void check_program(uint64_t count) {
    sim_machine machine;

    setting_describe(&machine);
    setting_make(&machine);
    program_place();
    PROGRAM();
    struct remote_link *other = begin();
    uint64_t before = free_memory(other);
    send_all(count, other);
    EVENTUALLY(free_memory(other) == before);
    EVENTUALLY(program_workers(NULL) == 1);
    remote_link_free(other);
    program_stop();
}

int main(void) {
    const char *frames = getenv("FRAMES"), *seed = getenv("SEED"), *there = getenv("SOCKET");
    uint64_t count = frames ? strtoull(frames, NULL, 10) : 3000;

    state = seed ? strtoull(seed, NULL, 10) : 1;
    CHECK(state);
    seeds_read();
    if (there) {
        snprintf(program_path, sizeof program_path, "%s", there);
        send_all(count, NULL);
    } else {
        check_program(count);
    }
    printf("%lu answers, %lu links ended\n", answered, ended);
    CHECK(answered > 0 && ended > 0);
    return 0;
}
