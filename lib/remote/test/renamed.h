/* Gives the client's exported functions other names, so that the driver's are there beside them. */
#define REMOTE_STUB(name) stub_##name
#define REMOTE_STUBS_RENAMED
