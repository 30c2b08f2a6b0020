/* Code that a worker keeps, so that it need not be sent again. Only where both sides share no memory: there it is sooner sent
 * than asked for. */
#ifndef DIVVY_REMOTE_CODE_H
#define DIVVY_REMOTE_CODE_H

/* Code of fewer bytes is sent, and of more is not kept. */
#define REMOTE_LEAST_CODE (64u << 10)
#define REMOTE_MOST_CODE (32u << 20)
/* What a worker keeps in all. */
#define REMOTE_ALL_CODE (64u << 20)
#define REMOTE_MOST_CODES 64u

/* Words of REMOTE_CODE: size and digest. The answer has the number under which a record may name the code, 0 for none. */
#define REMOTE_CODE_WORDS 5u
/* Set in such numbers, and in no other of bytes beside the stream. */
#define REMOTE_KEPT_CODE (UINT64_C(1) << 63)

#endif
