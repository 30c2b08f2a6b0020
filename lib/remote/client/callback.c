/* The program's functions that the driver calls. The worker has numbers of them; a thread of the client calls them in the
 * order in which their streams came to them. */
#include "remote/client/callback.h"

#include "remote/due.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* What a number stands for: a place in the table, and how often the place was used before. */
struct function {
    struct remote_callback is;
    bool shared; /* all that have this function and data use it */
    uint32_t round;
    uint32_t uses; /* 0 for a free place */
    uint32_t next; /* free place, or shared one in the same chain */
};

#define CHAINS 1024u
#define NONE UINT32_MAX

static struct function *functions;
static uint32_t room, count, free_place = NONE;
static uint32_t chains[CHAINS]; /* of shared ones: a place plus one */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static uint64_t number_of(uint32_t place) {
    return (uint64_t)functions[place].round << 32 | (place + 1);
}

/* The lock. NULL for a number that stands for nothing. */
static struct function *find(uint64_t number) {
    uint32_t place = (uint32_t)number - 1;

    return number && place < count && functions[place].uses &&
                   functions[place].round == number >> 32
               ? &functions[place]
               : NULL;
}

static bool make_room(void) {
    if (count < room) {
        return true;
    }
    uint32_t more = room ? 2 * room : 64;
    struct function *grown = realloc(functions, more * sizeof *grown);
    if (!grown) {
        return false;
    }
    memset(grown + room, 0, (more - room) * sizeof *grown);
    functions = grown;
    room = more;
    return true;
}

/* A place for a function; NONE if there is no memory. */
static uint32_t take_place(const struct function *function) {
    uint32_t place = free_place;

    if (place != NONE) {
        free_place = functions[place].next;
    } else if (make_room()) {
        place = count++;
    } else {
        return NONE;
    }
    uint32_t round = functions[place].round + 1;
    functions[place] = *function;
    functions[place].round = round;
    functions[place].uses = 1;
    return place;
}

static void give_place(struct function *function) {
    function->uses = 0;
    function->next = free_place;
    free_place = (uint32_t)(function - functions);
}

static uint32_t *chain_of(CUhostFn function, const void *data) {
    uint64_t mixed = ((uint64_t)function ^ (uint64_t)data << 7) * UINT64_C(0x9e3779b97f4a7c15);

    return &chains[mixed >> 54];
}

/* Removes a shared function from its chain. */
static void unchain(const struct function *function) {
    uint32_t *chain = chain_of(function->is.plain, function->is.data);
    uint32_t place = (uint32_t)(function - functions), at = *chain - 1;

    if (at == place) {
        *chain = function->next == NONE ? 0 : function->next + 1;
        return;
    }
    while (functions[at].next != place) {
        at = functions[at].next;
    }
    functions[at].next = function->next;
}

/* The lock. Takes back one use. */
static void give_use(struct function *function) {
    if (--function->uses == 0) {
        if (function->shared) {
            unchain(function);
        }
        give_place(function);
    }
}

static void call(const struct remote_callback *callback, uint32_t status) {
    remote_callback_enters(true);
    if (callback->of_stream) {
        callback->of_stream(callback->stream, (CUresult)status, callback->data);
    } else {
        callback->plain(callback->data);
    }
    remote_callback_enters(false);
}

/* Tells the worker that a function has returned, so that its stream goes on. */
static void tell(uint64_t ticket) {
    struct remote_head head = {.size = sizeof head + sizeof ticket, .call = REMOTE_CALLBACK};
    const struct remote_piece piece = {&ticket, sizeof ticket};

    remote_send(&head, &piece, 1);
}

/* A worker that lies has no other functions called than those that were given to streams and nodes. */
static void hear(const struct remote_answer *head, const unsigned char *body, size_t size) {
    struct due_notice notice;
    struct remote_callback due;

    (void)head;
    if (size != sizeof notice) {
        remote_session_end("the worker's word of a function that is due is none");
        return;
    }
    memcpy(&notice, body, sizeof notice);
    pthread_mutex_lock(&lock);
    struct function *function = find(notice.function);
    bool there = function != NULL;
    if (there) {
        due = function->is;
        if (notice.last) {
            give_use(function);
        }
    }
    pthread_mutex_unlock(&lock);
    if (there && !notice.unused) {
        call(&due, notice.status);
    }
    if (notice.ticket) {
        tell(notice.ticket);
    }
}

/* What a function of the program sees, it sees without asking: no answer brings the bytes of copies before it. */
static void begin(void) {
    remote_landings_stop();
    remote_notice_register(REMOTE_CALLBACK, hear);
}

uint64_t remote_callback_keep(const struct remote_callback *callback) {
    pthread_once(&once, begin);
    pthread_mutex_lock(&lock);
    uint32_t place = take_place(&(struct function){.is = *callback});
    uint64_t number = place == NONE ? 0 : number_of(place);
    pthread_mutex_unlock(&lock);
    return number;
}

uint64_t remote_callback_share(CUhostFn function, void *data) {
    uint64_t number = 0;

    pthread_once(&once, begin);
    pthread_mutex_lock(&lock);
    uint32_t *chain = chain_of(function, data);
    uint32_t place = *chain ? *chain - 1 : NONE;
    while (place != NONE &&
           !(functions[place].is.plain == function && functions[place].is.data == data)) {
        place = functions[place].next;
    }
    if (place != NONE) {
        functions[place].uses++;
    } else {
        place =
            take_place(&(struct function){.is = {.plain = function, .data = data}, .shared = true});
        if (place != NONE) {
            functions[place].next = *chain ? *chain - 1 : NONE;
            *chain = place + 1;
        }
    }
    if (place != NONE) {
        number = number_of(place);
    }
    pthread_mutex_unlock(&lock);
    return number;
}

void remote_callback_unused(uint64_t number) {
    pthread_mutex_lock(&lock);
    struct function *function = find(number);
    if (function) {
        give_use(function);
    }
    pthread_mutex_unlock(&lock);
}

bool remote_callback_find(uint64_t number, CUhostFn *to, void **data) {
    pthread_mutex_lock(&lock);
    const struct function *function = find(number);
    bool there = function && function->is.plain;
    if (there) {
        *to = function->is.plain;
        *data = function->is.data;
    }
    pthread_mutex_unlock(&lock);
    return there;
}
