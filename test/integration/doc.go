// Package integration tests Divvy with programs of other projects: NVIDIA's NVML
// bindings, a monitor built on them, and ffmpeg as a client of the CUDA driver.
// They run on simulated machines. Outside a share they must see the whole machine,
// inside one only what the share allows. The simulated driver's own record judges.
package integration
