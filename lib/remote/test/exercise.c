#include "remote/test/exercise.h"

#include "test/check.h"

#include <string.h>

#define MEMORY (1u << 18)
#define UNWRITTEN 0xa5

unsigned long mock_calls;
const struct exercise_world *exercise_world;

static uint64_t mix(uint64_t state, uint64_t value) {
    state = (state ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return state ^ state >> 29;
}

static uint64_t draw(uint64_t *state) {
    *state = mix(*state + UINT64_C(0x2545f4914f6cdd1d), 1);
    return *state;
}

static uint64_t digest(uint64_t state, const void *at, uint64_t size) {
    const unsigned char *bytes = at;

    for (uint64_t i = 0; bytes && i < size; i++) {
        state = mix(state, bytes[i]);
    }
    return mix(state, at ? size : UINT64_MAX);
}

/* Handles of the driver: eight of each kind beside the fixed ones. */
static uint64_t driver_handle(enum remote_kind kind, uint64_t drawn) {
    uint64_t fixed = remote_kinds[kind].fixed;

    if (exercise_world) {
        return exercise_world->handle(kind, drawn);
    }
    drawn %= 9 + fixed;
    return drawn <= fixed ? drawn : UINT64_C(0x7e0000000000) | (uint64_t)kind << 16 | drawn << 4;
}

/* The driver. */
struct mock mock_begin(enum remote_number number) {
    mock_calls++;
    return (struct mock){.state = mix(1, number)};
}

void mock_value(struct mock *m, uint64_t value) {
    m->state = mix(m->state, value);
}

void mock_float(struct mock *m, float value) {
    m->state = digest(m->state, &value, sizeof value);
}

void mock_text(struct mock *m, const char *text) {
    mock_bytes(m, text, text ? strlen(text) : 0);
}

void mock_bytes(struct mock *m, const void *at, uint64_t size) {
    m->state = digest(m->state, at, size);
}

uint32_t mock_version(const void *structure) {
    uint32_t version;

    memcpy(&version, structure, sizeof version);
    return version & 0xffffffu;
}

uint64_t mock_next(struct mock *m) {
    return draw(&m->state);
}

int32_t mock_result(struct mock *m) {
    uint64_t drawn = mock_next(m);

    return drawn % 4 ? 0 : (int32_t)(drawn >> 8 & 511) + 1;
}

void mock_write(struct mock *m, void *to, uint64_t size) {
    for (uint64_t i = 0; i < size; i++) {
        ((unsigned char *)to)[i] = (unsigned char)mock_next(m);
    }
}

void mock_write_text(struct mock *m, char *to, uint64_t room) {
    if (!room) {
        return;
    }
    uint64_t length = mock_next(m) % room;
    for (uint64_t i = 0; i < length; i++) {
        to[i] = (char)('a' + mock_next(m) % 26);
    }
    to[length] = 0;
}

void mock_write_handles(struct mock *m, enum remote_kind kind, void *to, uint64_t count) {
    /* Of several a driver may write the first alone. */
    uint64_t written = count > 1 ? mock_next(m) % (count + 1) : count;

    for (uint64_t i = 0; i < written; i++) {
        uint64_t handle = driver_handle(kind, mock_next(m) >> 8);

        memcpy((unsigned char *)to + 8 * i, &handle, sizeof handle);
    }
}

void mock_write_nothing(void *structure, size_t at) {
    memset((unsigned char *)structure + at, 0, 8);
}

void mock_write_tag(struct mock *m, void *structure, size_t at) {
    uint32_t tag = (uint32_t)(mock_next(m) >> 8) % 4;

    memcpy((unsigned char *)structure + at, &tag, sizeof tag);
}

/* The program. */
uint64_t exercise_next(struct exercise *e) {
    return draw(&e->state);
}

uint64_t exercise_value(struct exercise *e) {
    uint64_t drawn = exercise_next(e);

    return exercise_world ? exercise_world->value(drawn >> 8) : drawn;
}

uint64_t exercise_address(struct exercise *e) {
    uint64_t drawn = exercise_next(e);

    return exercise_world ? exercise_world->address(drawn >> 8) : drawn;
}

bool exercise_chance(struct exercise *e) {
    return (exercise_next(e) >> 8) % 8 == 0;
}

uint64_t exercise_length(struct exercise *e) {
    uint64_t drawn = exercise_next(e) >> 8;

    /* A driver that is no mock wants more room for its texts. */
    return exercise_world && drawn % 4 == 0 ? 100 : drawn % 7;
}

static uint64_t shown(const struct exercise *e, enum remote_kind kind, uint64_t handle) {
    return e->remote ? loopback_number(kind, handle) : handle;
}

/* In a call for which NULL is the stream of the thread, a worker gives the driver a stream for it: 2, here. */
static uint64_t drawn_handle(struct exercise *e, enum remote_kind kind) {
    uint64_t handle = driver_handle(kind, exercise_next(e) >> 8);

    return kind == REMOTE_KIND_CUstream && handle == 0 && e->per_thread ? 2 : handle;
}

uint64_t exercise_handle(struct exercise *e, enum remote_kind kind) {
    return shown(e, kind, drawn_handle(e, kind));
}

static unsigned char *memory(struct exercise *e, uint64_t size) {
    size_t padded = (size + 255) & ~(size_t)127;
    unsigned char *at = e->memory + e->used;

    CHECK(padded <= MEMORY - e->used);
    e->used += padded;
    memset(at, UNWRITTEN, padded);
    CHECK(e->guard_count < 32);
    e->guards[e->guard_count].at = at + size;
    e->guards[e->guard_count++].size = padded - size;
    return at;
}

void *exercise_array(struct exercise *e, uint64_t count, size_t size) {
    if (exercise_chance(e)) {
        return NULL;
    }
    unsigned char *at = memory(e, count * size);
    for (uint64_t i = 0; i < count * size; i++) {
        at[i] = (unsigned char)exercise_next(e);
    }
    for (uint64_t i = 0; exercise_world && i + 4 <= count * size; i += 4) {
        uint32_t word = (uint32_t)exercise_value(e);

        memcpy(at + i, &word, sizeof word);
    }
    return at;
}

void *exercise_handles(struct exercise *e, enum remote_kind kind, uint64_t count) {
    unsigned char *at = exercise_array(e, count, 8);

    for (uint64_t i = 0; at && i < count; i++) {
        exercise_put_handle(e, at, 8 * i, kind);
    }
    exercise_keep(e, at, 8 * count);
    return at;
}

void *exercise_room(struct exercise *e, uint64_t count, size_t size) {
    return exercise_chance(e) ? NULL : memory(e, count * size);
}

/* A copy of text that ends with NUL, in memory that must not change. */
static void *copied(struct exercise *e, const char *text) {
    char *at = exercise_chance(e) ? NULL : (char *)memory(e, strlen(text) + 1);

    if (at) {
        memcpy(at, text, strlen(text) + 1);
    }
    exercise_keep(e, at, strlen(text) + 1);
    return at;
}

void *exercise_text(struct exercise *e) {
    const char *known = exercise_world ? exercise_world->text(exercise_next(e) >> 8) : NULL;

    if (known) {
        return copied(e, known);
    }
    uint64_t length = exercise_length(e);
    unsigned char *at = exercise_array(e, length + 1, 1);

    for (uint64_t i = 0; at && i <= length; i++) {
        at[i] = (unsigned char)(i == length ? 0 : 'a' + at[i] % 26);
    }
    exercise_keep(e, at, length + 1);
    return at;
}

/* Code as text, which may be longer than a record. */
void *exercise_image(struct exercise *e) {
    static char text[2000];

    if (exercise_world) {
        return copied(e, exercise_world->image);
    }
    size_t length = 1 + exercise_length(e) * 300;
    memset(text, 'a' + (int)length % 26, length);
    text[length] = 0;
    return copied(e, text);
}

void *exercise_versioned(struct exercise *e, size_t most) {
    uint64_t drawn = exercise_next(e) >> 8;
    uint32_t size = (uint32_t)(4 + drawn % (most - 3)), version = 1;
    unsigned char *at = exercise_array(e, most, 1);

    if (exercise_world && drawn % 4) {
        size = (uint32_t)most;
        version = (uint32_t)(drawn >> 4) % 3 + 1;
    }
    if (at) {
        size |= version << 24;
        memcpy(at, &size, sizeof size);
    }
    return at;
}

void exercise_form(struct exercise *e, const char *name, void *at, uint64_t count, size_t size) {
    for (uint64_t i = 0; exercise_world && at && i < count; i++) {
        if (!exercise_chance(e)) {
            exercise_world->form(name, (unsigned char *)at + i * size);
        }
    }
}

void exercise_put_nothing(struct exercise *e, void *structure, size_t at) {
    /* What the worker clears is already clear for the driver. */
    if (!e->remote) {
        memset((unsigned char *)structure + at, 0, 8);
    }
}

void exercise_put_handle(struct exercise *e, void *structure, size_t at, enum remote_kind kind) {
    uint64_t handle = exercise_handle(e, kind);

    memcpy((unsigned char *)structure + at, &handle, sizeof handle);
}

void exercise_put_tag(struct exercise *e, void *structure, size_t at) {
    uint32_t tag = (uint32_t)(exercise_next(e) >> 8) % 4;

    memcpy((unsigned char *)structure + at, &tag, sizeof tag);
}

void exercise_keep(struct exercise *e, const void *at, uint64_t size) {
    if (at) {
        CHECK(e->kept_count < 16);
        e->kept[e->kept_count].at = at;
        e->kept[e->kept_count].size = size;
        e->kept[e->kept_count++].digest = digest(0, at, size);
    }
}

void exercise_result(struct exercise *e, int32_t result) {
    e->result = result;
    e->digest = mix(e->digest, (uint32_t)result);
}

void exercise_see(struct exercise *e, const void *at, uint64_t size) {
    e->digest = digest(e->digest, at, size);
}

/* The driver's handle for what the program has; what was not written stays as it is. */
static uint64_t driven(const struct exercise *e, enum remote_kind kind, uint64_t handle) {
    uint64_t unwritten;

    memset(&unwritten, UNWRITTEN, sizeof unwritten);
    if (handle == unwritten) {
        return handle;
    }
    handle = e->remote ? loopback_handle(kind, handle) : handle;
    return exercise_world ? exercise_world->shape(kind, handle) : handle;
}

void exercise_see_addresses(struct exercise *e, const void *at, uint64_t size) {
    if (!exercise_world) {
        exercise_see(e, at, size);
        return;
    }
    for (uint64_t i = 0; at && i < size; i += 8) {
        uint64_t address;

        memcpy(&address, (const unsigned char *)at + i, sizeof address);
        e->digest = mix(e->digest, address ? 1 + (address & 255) : 0);
    }
}

void exercise_see_handles(struct exercise *e, enum remote_kind kind, const void *at,
                          uint64_t count) {
    for (uint64_t i = 0; at && i < count; i++) {
        uint64_t handle;

        memcpy(&handle, (const unsigned char *)at + 8 * i, sizeof handle);
        e->digest = mix(e->digest, driven(e, kind, handle));
    }
}

void exercise_see_field(struct exercise *e, enum remote_kind kind, void *structure, size_t at) {
    exercise_see_handles(e, kind, (unsigned char *)structure + at, 1);
    exercise_forget_field(structure, at);
}

void exercise_forget_field(void *structure, size_t at) {
    memset((unsigned char *)structure + at, 0, 8);
}

void exercise_end(struct exercise *e) {
    for (unsigned i = 0; i < e->kept_count; i++) {
        if (digest(0, e->kept[i].at, e->kept[i].size) != e->kept[i].digest) {
            e->failed = true;
        }
    }
    for (unsigned i = 0; i < e->guard_count; i++) {
        for (size_t j = 0; j < e->guards[i].size; j++) {
            e->failed = e->failed || e->guards[i].at[j] != UNWRITTEN;
        }
    }
}

struct exercise exercise_run(const struct exercise_entry *entry, uint64_t seed, bool remote) {
    static _Alignas(128) unsigned char space[MEMORY];
    struct exercise e = {.remote = remote, .state = mix(seed, 3), .memory = space};

    e.per_thread = strstr(entry->name, "_pts") || strstr(entry->name, "_ptd");
    loopback_forget();
    entry->run(&e);
    return e;
}
