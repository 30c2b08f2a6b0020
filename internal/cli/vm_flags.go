package cli

import (
	"context"
	"fmt"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// machineMemory is a flag that takes the memory of a virtual machine: an amount, and no part of a GPU's.
type machineMemory struct{ memory *v1alpha1.Memory }

// Set implements pflag.Value.
func (m *machineMemory) Set(text string) error {
	parsed, err := v1alpha1.ParseMemory(text)
	_, isPart := parsed.Part()
	if err != nil || isPart || parsed.InBytes() < leastOfMachine {
		hint := "give an amount of memory such as 64Gi or 512Mi"
		if meant := meantMemory(text); meant != "" {
			hint += fmt.Sprintf(": did you mean %s?", meant)
		}
		return fmt.Errorf("%q: %s", text, hint)
	}
	*m.memory = parsed
	return nil
}

// leastOfMachine is less memory than any virtual machine has, in bytes.
const leastOfMachine = 1 << 20

// Type implements pflag.Value.
func (m *machineMemory) Type() string { return "AMOUNT" }

func (m *machineMemory) String() string { return (&memoryFlag{m.memory}).String() }

// until calls f and does not wait for it once ctx is done: to open a named pipe, or to read from one, may last for ever, and no
// signal ends that.
func until[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	ended := make(chan outcome, 1)
	go func() {
		value, err := f()
		ended <- outcome{value, err}
	}()
	select {
	case o := <-ended:
		return o.value, o.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}
