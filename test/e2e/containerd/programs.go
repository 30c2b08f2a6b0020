//go:build programs

// Package programs names the programs of containerd that clusters of the tests
// run, so that this module knows their dependencies.
package programs

import (
	_ "github.com/containerd/containerd/v2/cmd/containerd"
	_ "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"
	_ "github.com/containerd/containerd/v2/cmd/ctr"
)
