// Package guest is what tests inside the guest have in common: its PCI functions, a VM within it, namespaces.
package guest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/test/vm/machine"
)

// Require skips a test anywhere but in the guest: what it does would break another machine. It fails the test instead
// where DIVVY_REQUIRE names vm.
func Require(t testing.TB) {
	t.Helper()
	words, err := os.ReadFile("/proc/cmdline")
	if err == nil && !slices.Contains(strings.Fields(string(words)), machine.Token) {
		err = fmt.Errorf("the kernel was not started by the kit: run make test-vm")
	}
	if err != nil {
		installtest.Missing(t, "vm", err)
	}
}
