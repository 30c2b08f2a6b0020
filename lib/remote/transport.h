/* What a client library's generated calls stand on: three functions of a transport, and the numbers of handles. */
#ifndef DIVVY_REMOTE_TRANSPORT_H
#define DIVVY_REMOTE_TRANSPORT_H

#include "remote/generated/numbers/numbers.h"
#include "remote/record.h"

/* What every call answers at this moment before anything is sent: 0, that nobody has initialized, also in a child after
 * fork, or that the link has ended. */
int32_t remote_gate(enum remote_number number);

/* Appends a record to the process's one stream, and returns its sequence number, 0 when the link has ended. The head
 * lacks sequence, context and thread, which the transport fills in. Each piece is followed by zeros up to 8 bytes; the
 * pieces belong to the caller again when this returns. */
uint64_t remote_send(const struct remote_head *head, const struct remote_piece *pieces,
                     size_t count);

/* Sends bytes beside the stream, before the record that names them. Returns their number, 0 when the link has ended. */
uint64_t remote_send_bulk(const void *bytes, size_t size);

/* The same of code, which is not sent if the worker has it. */
uint64_t remote_send_code(const void *code, size_t size);
/* Notes code that the worker has because its linker has made it. */
void remote_code_made(const void *code, size_t size);

/* What came back for a record. The body is valid until the thread's next call. */
struct remote_reply {
    struct remote_answer head;
    const unsigned char *body;
    size_t size; /* of the body */
    size_t at;   /* how much of it has been read */
    bool garbled;
};

/* How many records a thread may have sent for whose answers it has not waited yet. */
#define REMOTE_MOST_UNANSWERED 8u

/* Waits until the record with this number has been answered. False when the link has ended. */
bool remote_wait(uint64_t sequence, struct remote_reply *reply);

/* What a call answers whose answer has this result and this late error. A late error is told in place of a success, once, or
 * kept for the next call in the context that may tell it. */
int32_t remote_late(uint16_t call, int32_t result, uint64_t late);

/* Whether a posted call has to wait now: always under DIVVY_REMOTE=strict, and where no context is current to the thread,
 * because then there is none that could keep its error. */
bool remote_strict(void);

/* Whether as many posted records may be on their way as the driver takes launches before a program waits. A posted call waits
 * then: the way to another host has room for tens of thousands, for which the program would have to wait at its end. */
bool remote_ahead(void);

/* Whether more than one thread of the program has called. Then a posted call that blocks waits: what the thread does next, and
 * what it tells others, comes after it, and the worker need hold up nobody else meanwhile. */
bool remote_several(void);

/* Whether a posted call with these words names memory of which the client cannot tell that the driver takes it. Then it waits,
 * so that what the driver says of the memory is its own result. */
bool remote_doubts(uint16_t call, const uint64_t *words);

/* The client's handles are numbers. One that the program makes is numbered here, 0 if there is no memory to note it; one
 * that the worker tells is learned. */
uint64_t remote_number_new(enum remote_kind kind);
void remote_number_learn(enum remote_kind kind, uint64_t number);
void remote_number_forget(enum remote_kind kind, uint64_t number);
bool remote_number_known(enum remote_kind kind, uint64_t number);

#endif
