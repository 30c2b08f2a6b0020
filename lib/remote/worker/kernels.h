/* Parameters of kernels in records: what launches and graphs' kernel nodes have in common. For the executor alone. */
#ifndef DIVVY_REMOTE_KERNELS_H
#define DIVVY_REMOTE_KERNELS_H

#include "remote/layout.h"
#include "remote/worker/session.h"

/* The layout of the function, or kernel, with this number, asked of the driver the first time. NULL where the driver cannot
 * tell it: `result` is its answer then. Valid until the next call of these functions. */
const struct remote_layout *remote_worker_layout(struct remote_decoder *d, uint64_t number,
                                                 CUresult *result);

/* What a driver's function is given: either may be NULL. Valid until the next call of these functions. */
struct remote_given_params {
    void **params;
    void **extra;
};

/* Reads the next piece of a record, of so many bytes, as the parameters of this function. It is packed by the layout if
 * `params` is in the record's `given`, or by the program if `extra` is. False, with the decoder's own answer or the end of
 * the link, if it cannot be that. */
bool remote_in_params(struct remote_decoder *d, uint64_t number, uint64_t size, unsigned params,
                      unsigned extra, struct remote_given_params *to);

/* An answer of the worker's own in place of the driver's; the first counts. */
void remote_refuse(struct remote_decoder *d, CUresult result);

#endif
