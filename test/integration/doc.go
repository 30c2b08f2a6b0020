// Package integration drives programs that others wrote against Divvy: NVIDIA's
// own NVML bindings and a monitor built on them, and ffmpeg as a client of the
// CUDA driver. They run on simulated machines, outside a share, where they have
// to see the whole machine, and inside one, where they have to see what the
// share allows. The simulated driver's own record says what is true.
package integration
