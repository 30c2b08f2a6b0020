/* Judging the record of another process, which may be alive, dead, or never have been ours to
 * trust. */
#include "common/state.h"

#define READ_TRIES 16u

/* The tag is read before applied: whoever overwrote it had noted it in applied before. */
bool record_applied(const dv_page_gpu *gpu, unsigned slot) {
    const dv_page_record *record = &gpu->record[slot];
    uint64_t sequence = load64(&record->sequence) & SEQUENCE_MASK;
    if (load64(&gpu->tag) == pack_tag(slot, sequence)) {
        return true;
    }
    return load64(&gpu->applied[slot]) == sequence || load64(&record->done) == sequence;
}

/* Writes down what record_applied found, once what the operation leads to has been done. */
void record_settle(dv_page_gpu *gpu, unsigned slot, bool applied) {
    dv_page_record *record = &gpu->record[slot];
    uint64_t sequence = load64(&record->sequence);
    store64(&record->done, (applied ? sequence : sequence - 1) & SEQUENCE_MASK);
    store32(&record->waiters, 0);
    store32(&record->lock, 0);
}

/* Takes the dead slot's balance out of the totals, as one more operation in its own log: if the
 * reaper dies too, the next one recovers exactly as from the death of the slot's own process. */
ledger_result record_clear(dv_page_gpu *gpu, unsigned slot) {
    balance present = record_balance(&gpu->record[slot]);
    if (present.amounts == 0 && present.rest == 0) {
        return LEDGER_DONE;
    }
    uint64_t change = 0 - present.amounts - (uint32_t)present.rest;
    ledger_result result = ledger_commit(gpu, slot, (balance){0, 0}, change);
    if (result == LEDGER_DONE) {
        ledger_complete(gpu, slot);
        ledger_wake(gpu);
    }
    return result;
}

/* A process's figures while it works on. Figures of two moments, if it works too fast. */
balance record_read(const dv_page_gpu *gpu, unsigned slot) {
    const dv_page_record *record = &gpu->record[slot];
    balance present = record_balance(record);
    for (unsigned i = 0; i < READ_TRIES; i++) {
        uint64_t before = load64(&record->done);
        present = record_balance(record);
        load_fence();
        if (load64(&record->done) == before && load64(&record->sequence) - before <= 1) {
            break;
        }
    }
    return present;
}
