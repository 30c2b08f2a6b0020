/* SHA-256, as FIPS 180-4 describes it. */
#ifndef DIVVY_REMOTE_SHA256_H
#define DIVVY_REMOTE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define REMOTE_DIGEST_BYTES 32u

void remote_sha256(const void *bytes, size_t size, unsigned char digest[REMOTE_DIGEST_BYTES]);

#endif
