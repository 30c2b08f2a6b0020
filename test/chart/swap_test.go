package chart_test

import (
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/test/chart/render"
)

// How much of a node's memory is for what leaves GPUs, and how much of them is for turns, is what the agent reads of the chart's
// values; left out, nothing leaves a GPU, and half is for turns.
func TestSwapMemory(t *testing.T) {
	for values, want := range map[string]struct {
		swap uint64
		turn v1alpha1.Memory
	}{
		"":                          {0, v1alpha1.Percent(50)},
		"agent: {swapMemory: 64Gi}": {64 << 30, v1alpha1.Percent(50)},
		"agent: {swapMemory: 1.5Ti, turnMemory: 60%}":   {3 << 39, v1alpha1.Percent(60)},
		"agent: {swapMemory: 64Gi, turnMemory: 10Gi}":   {64 << 30, v1alpha1.Bytes(10 << 30)},
		`agent: {swapMemory: "64Gi", turnMemory: ""}`:   {64 << 30, v1alpha1.Percent(50)},
		`agent: {swapMemory: "68719476736", nics: off}`: {64 << 30, v1alpha1.Percent(50)},
	} {
		text := configured(t, rendered(t, newest, values), "agent.yaml")
		config, err := agentconfig.Parse("agent.yaml", []byte(text), nil)
		if err != nil || config.SwapMemory() != want.swap || config.TurnMemory() != want.turn {
			t.Errorf("%q: %d, %s, %v\n%s", values, config.SwapMemory(), config.TurnMemory(), err, text)
		}
	}
	for _, values := range []string{
		"agent: {swapMemory: 50%}", "agent: {swapMemory: all}", "agent: {swapMemory: 64}", "agent: {swapMemory: -1Gi}", "agent: {turnMemory: 100%}", "agent: {turnMemory: half}", "agent: {swap: 64Gi}",
	} {
		if _, err := render.Chart(dir, render.Options{Namespace: namespace, Kubernetes: newest, Values: values}); err == nil {
			t.Errorf("%q is taken", values)
		}
	}
}
