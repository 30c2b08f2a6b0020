package suite

import (
	"fmt"
	"os"
	"testing"

	"github.com/divvy-gpu/divvy/test/vm/guest"
)

// unbinding names the function that a process of TestOpenNodeHoldsTheDriver unbinds, and nothing else.
const unbinding = "VM_UNBIND"

func TestMain(m *testing.M) {
	if gpu := os.Getenv(unbinding); gpu != "" {
		if err := guest.Function(gpu).Write("driver/unbind", gpu); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
