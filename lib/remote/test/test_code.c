/* Code that is not sent again: beside a driver that notes what it was given, and a worker that forgets. */
#include "remote/client/module.h"
#include "remote/code.h"
#include "remote/generated/cuda_decode.h"
#include "remote/link.h"
#include "remote/sha256.h"
#include "remote/test/exercise.h"
#include "remote/worker/session.h"

#include "test/check.h"

#include <string.h>

#define OK(call) CHECK_EQUAL(call, CUDA_SUCCESS)

CUresult remote_current_result(void) {
    return CUDA_SUCCESS;
}

/* Whether both sides share memory. */
static bool shared;

struct remote_link *remote_session_link(void) {
    return (struct remote_link *)&shared;
}

void *remote_link_area(struct remote_link *link, size_t *size) {
    *size = 4096;
    return shared ? link : NULL;
}

/* The driver keeps a digest of the code that it was given last. */
static unsigned char given[REMOTE_DIGEST_BYTES];
static uint64_t modules = 0x1000;

static CUresult load(CUmodule *module, const void *image) {
    remote_sha256(image, strlen(image) + 1, given);
    *module = (CUmodule)++modules;
    return CUDA_SUCCESS;
}

static CUresult load_with(CUmodule *module, const void *image, unsigned count,
                          CUjit_option *options, void **values) {
    (void)count;
    (void)options;
    (void)values;
    return load(module, image);
}

static const struct remote_cuda_driver driver = {.cuModuleLoadData = load,
                                                 .cuModuleLoadDataEx = load_with};

/* Text of so many bytes, with a number in its middle. */
static char *text_of(size_t size, unsigned number) {
    char *text = malloc(size), middle[16];

    CHECK(text);
    memset(text, ' ', size);
    text[size - 1] = '\0';
    snprintf(middle, sizeof middle, "%08u", number);
    memcpy(text + size / 2, middle, 8);
    return text;
}

/* Loads it. Returns whether it was sent. */
static bool sent(const char *text) {
    unsigned long before = loopback_bulk;
    unsigned char digest[REMOTE_DIGEST_BYTES];
    CUmodule module;

    OK(cuModuleLoadDataEx(&module, text, 0, NULL, NULL));
    remote_sha256(text, strlen(text) + 1, digest);
    CHECK(memcmp(digest, given, sizeof digest) == 0);
    return loopback_bulk != before;
}

static void check_again(void) {
    char *one = text_of(100000, 1), *other = text_of(100000, 2), *small = text_of(1000, 3);
    char *large = text_of(REMOTE_MOST_CODE + 1, 4);

    unsigned long records = loopback_sent;
    CHECK(sent(one));
    CHECK_EQUAL(loopback_sent, records + 1); /* nothing is asked of what is new */
    CHECK(!sent(one));
    CHECK(!sent(one));
    /* The same but for what lies in the middle: asked, and sent. */
    CHECK(sent(other));
    CHECK(!sent(other));
    CHECK(!sent(one));
    CHECK(sent(small) && sent(small));
    CHECK(sent(large) && sent(large));
    shared = true;
    records = loopback_sent;
    CHECK(sent(one));
    CHECK_EQUAL(loopback_sent, records + 1);
    shared = false;
    CHECK(!sent(one));
    free(one);
    free(other);
    free(small);
    free(large);
}

/* More than is kept: the least used is forgotten, and sent again. */
static void check_forgotten(void) {
    enum { SIZE = 4 << 20, COUNT = 2 * (REMOTE_ALL_CODE / SIZE) };
    char *first = text_of(SIZE, 1000);

    CHECK(sent(first));
    for (unsigned i = 1; i < COUNT; i++) {
        char *text = text_of(SIZE, 1000 + i);

        CHECK(sent(text));
        free(text);
    }
    CHECK(sent(first));
    CHECK(!sent(first));
    free(first);
}

static uint64_t *words(void) {
    return (uint64_t *)(void *)(loopback_record + sizeof(struct remote_head));
}

static enum remote_outcome decode(void) {
    enum remote_outcome outcome = remote_decode(&loopback, loopback_record, loopback_size);

    return outcome == REMOTE_BY_HAND ? remote_hand_decoder(loopback.head.call)(&loopback) : outcome;
}

/* Numbers that were never told, or with another size, are answered; the driver does not hear of them. */
static void check_numbers(void) {
    char *text = text_of(70000, 77);

    CHECK(sent(text) && !sent(text));
    uint64_t number = words()[1], before = modules;
    words()[0] = 0x700000;
    CHECK(number & REMOTE_KEPT_CODE);
    words()[2]--;
    CHECK_EQUAL(decode(), REMOTE_ANSWERED);
    CHECK_EQUAL(loopback.result, CUDA_ERROR_OUT_OF_MEMORY);
    words()[2]++;
    words()[1] = number + 1;
    CHECK_EQUAL(decode(), REMOTE_ANSWERED);
    CHECK_EQUAL(loopback.result, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(modules, before);
    words()[1] = number;
    CHECK_EQUAL(decode(), REMOTE_ANSWERED);
    CHECK_EQUAL(loopback.result, CUDA_SUCCESS);
    free(text);
}

/* A client that asks for everything and names nothing keeps nobody's code away for ever. */
static void check_awaited(void) {
    enum { COUNT = 3 * REMOTE_MOST_CODES };
    static char *texts[COUNT];

    for (unsigned i = 0; i < COUNT; i++) {
        texts[i] = text_of(REMOTE_LEAST_CODE + i * 8, i);
        CHECK(sent(texts[i]));
        /* It is asked for as a call that then fails would ask. */
        remote_send_code(texts[i], strlen(texts[i]) + 1);
    }
    char *last = text_of(90000, 5);
    for (unsigned i = 0; i < 2 * REMOTE_MOST_CODES; i++) {
        sent(last);
    }
    CHECK(!sent(last));
    for (unsigned i = 0; i < COUNT; i++) {
        free(texts[i]);
    }
    free(last);
}

int main(void) {
    loopback_start(&driver, &nvml_mock);
    check_again();
    check_forgotten();
    check_numbers();
    check_awaited();
    return 0;
}
