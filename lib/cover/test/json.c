/* Finding strings in what a runtime writes, and in what it should not. */
#include "cover/json.h"
#include "test/check.h"

#include <string.h>

static void found(const char *text, const char *name, const char *want) {
    char value[16];
    CHECK(json_string(json_member(text, name), value, sizeof value));
    if (strcmp(value, want) != 0) {
        fprintf(stderr, "%s: %s\n", text, value);
        exit(1);
    }
}

static void missing(const char *text, const char *name) {
    char value[16];
    if (json_string(json_member(text, name), value, sizeof value)) {
        fprintf(stderr, "%s: %s\n", text, value);
        exit(1);
    }
}

/* Any beginning of a text is read to its end and no further; a sanitizer sees more. */
static void cut(const char *text) {
    for (size_t length = 0; length <= strlen(text); length++) {
        char value[16], *part = malloc(length + 1);
        CHECK(part != NULL);
        memcpy(part, text, length);
        part[length] = '\0';
        (void)json_string(json_member(json_member(part, "root"), "path"), value, sizeof value);
        free(part);
    }
}

int main(void) {
    const char *config = "{\"process\": {\"args\": [\"root\", {\"root\": {\"path\": \"no\"}}], "
                         "\"env\": [\"a=\\\"root\\\":{\"], \"n\": -1.5e3, \"t\": true},\n"
                         " \"root\" : { \"readonly\": false, \"path\" : \"rootfs\" }, \"z\": null}";
    const char *root = json_member(config, "root");
    CHECK(root != NULL);
    found(root, "path", "rootfs");
    missing(root, "readonly");
    missing(root, "pat");
    missing(root, "paths");
    found("{\"a\":\"1\",\"a\":\"2\"}", "a", "1");
    found("{\"b\":[],\"c\":{},\"a\":\"\\/x\\\\\\\"\"}", "a", "/x\\\"");
    found("{\"annotations\":{\"bundle\":\"evil\"},\"bundle\":\"good\"}", "bundle", "good");
    missing("{\"annotations\":{\"bundle\":\"evil\"}}", "bundle");
    missing("[\"bundle\",\"x\"]", "bundle");
    missing("", "a");
    missing("{}", "a");
    missing("{\"a\"}", "a");
    missing("{\"a\":1}", "a");
    missing("{\"a\":\"\\u0041\"}", "a");
    missing("{\"a\":\"0123456789abcdef\"}", "a");
    missing("{\"b\":[[[\"a\":\"x\"", "a");
    cut(config);
    char deep[4096];
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    memcpy(deep, "{\"x\":", 5);
    missing(deep, "a");
    return 0;
}
