//go:build programs

// Package programs names the programs of containerd 1.7 that clusters of the tests
// run, so that this module knows their dependencies.
package programs

import (
	_ "github.com/containerd/containerd/cmd/containerd"
	_ "github.com/containerd/containerd/cmd/containerd-shim-runc-v2"
	_ "github.com/containerd/containerd/cmd/ctr"
)
