/* What decoders ask for by its number. */
#include "remote/worker/bulk.h"

const void *remote_worker_bulk(struct remote_worker *worker, uint64_t number, uint64_t size) {
    (void)worker;
    return remote_bulk_get(number, size);
}
