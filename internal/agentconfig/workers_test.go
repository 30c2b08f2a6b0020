package agentconfig

import (
	"strings"
	"testing"
)

func TestWorkers(t *testing.T) {
	for text, want := range map[string]Workers{
		"":                                      {60706, 478},
		"workers: {firstUID: 70000, count: 10}": {70000, 10},
		"workers: {firstUID: 1000, count: 1}":   {1000, 1},
		"workers: {firstUID: 2147483646, count: 1}": {2147483646, 1},
	} {
		if c := parse(t, text); c.Workers() != want {
			t.Errorf("%q: %+v", text, c.Workers())
		}
	}
	if got := (*Config)(nil).Workers(); got.Count != 478 {
		t.Errorf("without a configuration: %+v", got)
	}
	for text, want := range map[string]string{
		"workers: {firstUID: 999, count: 1}":        "workers.firstUID: users below 1000 are the system's",
		"workers: {firstUID: 0, count: 1}":          "workers.firstUID:",
		"workers: {firstUID: -1, count: 1}":         "workers.firstUID:",
		"workers: {firstUID: 2147483647, count: 1}": "workers.firstUID:",
		"workers: {firstUID: 2147483646, count: 2}": "workers: users 2147483646 to 2147483647: the last one can be 2147483646",
		"workers: {firstUID: 65000, count: 535}":    "workers: users 65000 to 65534: user 65534 is the one who stands for nobody",
		"workers: {firstUID: 70000}":                "workers.count: missing",
		"workers: {count: 4}":                       "workers.firstUID: missing",
		"workers: {firstUID: 70000, count: 65537}":  "workers.count:",
		"workers: {firstUID: 70000, count: many}":   "workers.count:",
		"workers: {firstUID: 70000, last: 7}":       "workers.last: unknown field; known here: count, firstUID",
		"workers: 70000":                            "workers: must be a mapping",
	} {
		if _, err := Parse("agent.yaml", []byte(head+text), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
