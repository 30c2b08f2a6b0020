//go:build programs

// Package programs names the program of CRI-O that the tests run, so that this
// module knows its dependencies.
package programs

import (
	_ "github.com/cri-o/cri-o/cmd/crio"
)
