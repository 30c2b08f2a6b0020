/* A libcuda that answers as ANSWER, and that nothing tells from a driver until it is asked. */
int open(const char *, int, ...);

int cuInit(unsigned flags) {
    return flags == 0 ? ANSWER : open("/dev/nvidiactl", 2);
}
int cuDeviceGetCount(int *count) {
    return *count = 0, ANSWER;
}
int cuDeviceGetUuid(void *uuid, int device) {
    return (void)uuid, (void)device, ANSWER;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
    return (void)context, (void)device, ANSWER;
}
