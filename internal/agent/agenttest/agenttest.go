// Package agenttest has what tests of the agent and of its faces need alike.
package agenttest

import (
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/backend/registry"
)

// longest bounds every wait for something that takes milliseconds, on a busy machine.
const longest = 5 * time.Minute

// Eventually waits for a condition that something else makes true, and fails the test if it does not come.
func Eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(longest)
	for !condition() {
		select {
		case <-deadline:
			t.Fatalf("it did not happen that %s", what)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// Crash is what an agent panics with that dies at a step.
type Crash string

// CrashAt is a hook that hears the names of an agent's steps, and has the agent die at the nth time of one.
func CrashAt(step string, nth int) func(name string) {
	return func(name string) {
		if name == step {
			if nth--; nth == 0 {
				panic(Crash(step)) //nolint:forbidigo // nothing else ends an agent at once
			}
		}
	}
}

// Crashes runs an agent, and reports whether it died at the step.
func Crashes(step string, run func()) (crashed bool) {
	defer func() {
		fault := recover()
		crashed = fault == Crash(step)
		if fault != nil && !crashed {
			panic(fault) //nolint:forbidigo // it is none of ours
		}
	}()
	run()
	return false
}

// Backends has one backend for the shares whose memory a library limits.
func Backends(b backend.Backend) *registry.Registry {
	return registry.New(registry.Kind{Name: v1alpha1.BackendSlice, Backend: b}, registry.Kind{Name: v1alpha1.BackendTimeslice, Backend: b},
		registry.Kind{Name: v1alpha1.BackendRemote, Backend: b})
}
