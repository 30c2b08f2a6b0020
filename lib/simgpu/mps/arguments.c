/* Arguments of commands, who may give them, and the answers that several commands have. */
#define _GNU_SOURCE
#include "simgpu/mps/commands.h"

#include <stdlib.h>
#include <unistd.h>

int command_number(const char *word) {
    return word ? (int)strtol(word, NULL, 10) : 0;
}

bool command_is_number(const char *word) {
    char *end = NULL;

    return word && (strtol(word, &end, 10), end != word);
}

bool command_privileged(const struct mps_ui *ui) {
    return ui->user == 0 || ui->user == geteuid();
}

/* Before 550 the default settings are everybody's to change. The wording, "deamon" too, is the driver's. */
bool command_may_set(struct mps_ui *ui) {
    if (ui->daemon->driver < MPS_STATUS_SINCE || command_privileged(ui)) {
        return true;
    }
    mps_say(ui,
            "Insufficient privileges for UID %u. Control deamon settings can only be modified by "
            "the user started it or by the root user.",
            ui->user);
    return false;
}

double command_percentage(struct mps_ui *ui, const char *word) {
    double value = word ? strtod(word, NULL) : 0;

    if (value > 0 && value <= 100) {
        return value;
    }
    mps_note(ui->daemon, "Invalid percentage, expected between (0.0, 100.0]");
    return 0;
}

void command_say_limit(struct mps_ui *ui, uint64_t limit) {
    if (limit == 0) {
        mps_note(ui->daemon, "No default pinned memory limit set for the device!");
    } else if (limit >> 30) {
        mps_say(ui, "%lluG", (unsigned long long)(limit >> 30));
    } else {
        mps_say(ui, "%lluM", (unsigned long long)(limit >> 20));
    }
}

/* Without a unit they are MiB, and so are those with any unit but G. */
uint64_t command_bytes(const char *text) {
    char *unit;
    uint64_t bytes = strtoull(text, &unit, 10);

    return bytes << (*unit == 'G' || *unit == 'g' ? 30 : 20);
}
