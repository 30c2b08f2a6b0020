// Package drivers holds our libraries against NVIDIA's user-space drivers, which answer much on a
// machine without a GPU: in a share every answer must be the driver's own. hack/drivers.sh unpacks
// the drivers; `make test-drivers` does both, and `make bench-drivers` counts the differences.
package drivers
