#include "cuda/memory/reservation.h"

#include "cuda/attach.h"
#include "cuda/device.h"
#include "cuda/memory/measure.h"
#include "share/time.h"

static const uint32_t always = DV_PAGE_BUDGET_TURNS;
const uint32_t *reservation_flags = &always;

static void reservation_attached(const dv_share *share) {
    const uint32_t *flags = dv_share_swap(share) ? &always : dv_time_flags_word(share, 0);
    __atomic_store_n(&reservation_flags, flags, __ATOMIC_RELEASE);
}
ON(attached, reservation_attached);

void reservation_wanted(void) {
    if (reservation_turns()) {
        TELL(memory_wanted, ());
    }
}

static bool gives_back(unsigned device) {
    bool less = false;
    TELL(memory_short, (device, &less));
    return less;
}

static CUresult reserve(const struct reservation *reservation) {
    dv_share *share = attached_share();
    measure_refresh(reservation->home.device);
    dv_status status = dv_reserve(share, reservation->account, reservation->bytes);
    if (status == DV_NO_MEMORY && gives_back(reservation->home.device)) {
        status = dv_reserve(share, reservation->account, reservation->bytes);
    }
    switch (status) {
    case DV_OK:
        return CUDA_SUCCESS;
    case DV_NO_SHARE:
    case DV_CORRUPT:
    case DV_OLD_PAGE:
        return CUDA_ERROR_SYSTEM_NOT_READY;
    default:
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
}

/* The same, and counts an answer for want of memory. */
static CUresult reserve_counted(const struct reservation *reservation) {
    CUresult result = reserve(reservation);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        dv_refused(attached_share(), reservation->account, reservation->bytes, false);
    }
    return result;
}

static CUresult open_number(struct reservation *reservation, unsigned number, uint64_t worst,
                            CUresult (*ask)(const struct reservation *)) {
    const dv_share *share = attached_share();
    if (share == NULL) {
        return CUDA_ERROR_SYSTEM_NOT_READY;
    }
    reservation_wanted();
    reservation->home = (struct home){.device = number};
    reservation->account = dv_share_kept(share, number);
    reservation->bytes = worst;
    return ask(reservation);
}

CUresult reservation_open_number(struct reservation *reservation, unsigned number, uint64_t worst) {
    return open_number(reservation, number, worst, reserve_counted);
}

CUresult reservation_try_number(struct reservation *reservation, unsigned number, uint64_t worst) {
    return open_number(reservation, number, worst, reserve);
}

CUresult reservation_open_account(struct reservation *reservation, unsigned account,
                                  uint64_t worst) {
    const dv_share *share = attached_share();
    if (share == NULL) {
        return CUDA_ERROR_SYSTEM_NOT_READY;
    }
    reservation->home = (struct home){.device = account % dv_share_device_count(share)};
    reservation->account = account;
    reservation->bytes = worst;
    return reserve_counted(reservation);
}

CUresult reservation_why_unknown(void) {
    int count;
    CUresult result = DV_CALL(cuDeviceGetCount, &count);
    return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_DEVICE;
}

CUresult reservation_open_on(struct reservation *reservation, CUdevice device, uint64_t worst) {
    if (attach_share() != CUDA_SUCCESS) {
        return CUDA_ERROR_SYSTEM_NOT_READY;
    }
    int number = device_number(device);
    return number < 0 ? reservation_why_unknown()
                      : reservation_open_number(reservation, (unsigned)number, worst);
}

static CUresult attach_wanting(void) {
    if (attached_share() == NULL && attach_share() != CUDA_SUCCESS) {
        return CUDA_ERROR_SYSTEM_NOT_READY;
    }
    reservation_wanted();
    return CUDA_SUCCESS;
}

/* The device of the current context. */
static inline CUresult find_home(struct reservation *reservation, uint64_t worst) {
    CUresult result = context_current(&reservation->home);
    reservation->account = reservation->home.device;
    reservation->bytes = worst;
    return result;
}

CUresult reservation_open_now(struct reservation *reservation, uint64_t worst) {
    CUresult result = find_home(reservation, worst);
    return result == CUDA_SUCCESS ? reserve_counted(reservation) : result;
}

CUresult reservation_open(struct reservation *reservation, uint64_t worst) {
    CUresult result = attach_wanting();
    return result == CUDA_SUCCESS ? reservation_open_now(reservation, worst) : result;
}

CUresult reservation_open_kept(struct reservation *reservation, uint64_t worst) {
    CUresult result = attach_wanting();
    if (result == CUDA_SUCCESS) {
        result = find_home(reservation, worst);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    reservation->account = dv_share_kept(attached_share(), reservation->home.device);
    return reserve_counted(reservation);
}

void reservation_settle(struct reservation *reservation, uint64_t charged) {
    dv_settle(attached_share(), reservation->account, reservation->bytes, charged);
}

void reservation_fail(struct reservation *reservation, CUresult result) {
    reservation_settle(reservation, 0);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && reservation->bytes > 0) {
        dv_refused(attached_share(), reservation->account, reservation->bytes, true);
    }
}

void reservation_refused(unsigned device, uint64_t bytes) {
    dv_refused(attached_share(), dv_share_kept(attached_share(), device), bytes, false);
}

void reservation_charge(unsigned device, uint64_t bytes) {
    dv_settle(attached_share(), dv_share_kept(attached_share(), device), 0, bytes);
}

void reservation_release(unsigned device, uint64_t bytes) {
    if (bytes > 0) {
        dv_release(attached_share(), dv_share_kept(attached_share(), device), bytes);
    }
}

void reservation_release_account(unsigned account, uint64_t bytes) {
    if (bytes > 0) {
        dv_release(attached_share(), account, bytes);
    }
}
