/* What the generated exercises are made of: a driver that answers by what it was asked, and drawn parameters. The same
 * draw gives the same parameters to a direct call and to one through client and worker, but for the handles. */
#ifndef DIVVY_REMOTE_TEST_EXERCISE_H
#define DIVVY_REMOTE_TEST_EXERCISE_H

#include "remote/image.h"
#include "remote/test/loopback.h"

struct mock {
    uint64_t state;
};

struct exercise {
    bool remote;
    bool per_thread; /* the call takes NULL for the stream of the thread */
    bool failed;     /* memory that is only read was changed */
    int32_t result;
    uint64_t state;  /* of the draw */
    uint64_t digest; /* of the result and of what was written */
    unsigned char *memory;
    size_t used;
    struct {
        const void *at;
        size_t size;
        uint64_t digest;
    } kept[16];
    unsigned kept_count;
    struct {
        const unsigned char *at;
        size_t size;
    } guards[32]; /* memory that nobody may write */
    unsigned guard_count;
};

struct exercise_entry {
    const char *name;
    void (*run)(struct exercise *e);
};

extern const struct remote_cuda_driver cuda_mock;
extern const struct remote_nvml_driver nvml_mock;
extern const struct exercise_entry cuda_exercises[];
extern const struct exercise_entry nvml_exercises[];

/* What the exercises draw from, if it is not the driver of the tests: its handles, and values that mean something. */
struct exercise_world {
    uint64_t (*handle)(enum remote_kind kind, uint64_t drawn);
    uint64_t (*value)(uint64_t drawn);
    uint64_t (*address)(uint64_t drawn);
    uint64_t (*shape)(enum remote_kind kind, uint64_t handle); /* what two handles have in common */
    const char *(*text)(uint64_t drawn);                       /* NULL for any */
    /* Gives a structure of this name a form that the driver takes; false if none is known. */
    bool (*form)(const char *name, void *structure);
    const char *image; /* ended by NUL */
};
extern const struct exercise_world *exercise_world;

/* How often the driver was called since the start. */
extern unsigned long mock_calls;

struct mock mock_begin(enum remote_number number);
void mock_value(struct mock *m, uint64_t value);
void mock_float(struct mock *m, float value);
void mock_text(struct mock *m, const char *text);
void mock_bytes(struct mock *m, const void *at, uint64_t size);
/* The size that a structure says of itself. */
uint32_t mock_version(const void *structure);
uint64_t mock_next(struct mock *m);
int32_t mock_result(struct mock *m);
void mock_write(struct mock *m, void *to, uint64_t size);
void mock_write_text(struct mock *m, char *to, uint64_t room);
void mock_write_handles(struct mock *m, enum remote_kind kind, void *to, uint64_t count);
void mock_write_nothing(void *structure, size_t at);
void mock_write_tag(struct mock *m, void *structure, size_t at);

uint64_t exercise_next(struct exercise *e);
uint64_t exercise_value(struct exercise *e);
uint64_t exercise_address(struct exercise *e);
bool exercise_chance(struct exercise *e); /* one in eight */
uint64_t exercise_length(struct exercise *e);
uint64_t exercise_handle(struct exercise *e, enum remote_kind kind);
void *exercise_array(struct exercise *e, uint64_t count, size_t size);
void *exercise_handles(struct exercise *e, enum remote_kind kind, uint64_t count);
void *exercise_room(struct exercise *e, uint64_t count, size_t size);
void *exercise_text(struct exercise *e);
void *exercise_image(struct exercise *e);
void *exercise_versioned(struct exercise *e, size_t most);
/* Gives structures of a name a form that the driver takes, mostly. */
void exercise_form(struct exercise *e, const char *name, void *at, uint64_t count, size_t size);
void exercise_put_nothing(struct exercise *e, void *structure, size_t at);
void exercise_put_handle(struct exercise *e, void *structure, size_t at, enum remote_kind kind);
void exercise_put_tag(struct exercise *e, void *structure, size_t at);
/* Memory that must not change until the exercise ends. */
void exercise_keep(struct exercise *e, const void *at, uint64_t size);
void exercise_result(struct exercise *e, int32_t result);
void exercise_see(struct exercise *e, const void *at, uint64_t size);
/* Addresses of memory, which two allocations need not have in common. */
void exercise_see_addresses(struct exercise *e, const void *at, uint64_t size);
void exercise_see_handles(struct exercise *e, enum remote_kind kind, const void *at,
                          uint64_t count);
void exercise_see_field(struct exercise *e, enum remote_kind kind, void *structure, size_t at);
void exercise_forget_field(void *structure, size_t at);
void exercise_end(struct exercise *e);

/* Runs one exercise with one draw, directly or through client and worker. */
struct exercise exercise_run(const struct exercise_entry *entry, uint64_t seed, bool remote);

#endif
