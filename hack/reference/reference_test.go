package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// The pages are what the code says.
func TestPagesAreCurrent(t *testing.T) {
	for name, write := range pages {
		want, err := write(root)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(root, folder, name))
		if err != nil || string(got) != want {
			t.Errorf("%s is not what the code says (%v): run make generate", name, err)
		}
	}
}

func TestPagesHaveWhatThereIs(t *testing.T) {
	for name, wants := range map[string][]string{
		"commands.md": {"\n## divvy run\n", "| `--memory ", "\n## divvy webhook\n", "\n## divvy gpu set\n"},
		"configuration.md": {
			"| `users.NAME` | limits |", "| `history.days` | whole number | `400` | 1 to 3660 |", "| `metrics.address` | address and port | `127.0.0.1:9410` |",
			"| `resources[].weight` | whole number | divides what is idle", "| `grace` | time |", "| `sharing.mps.resources[].replicas` | v0.15.0 | `4` | works |",
			"| `agent.defaultCores` | whole number | `0` | 0 to 100 |", "| `scheduler.enabled` | true or false | `false` |",
		},
		"metrics.md": {
			"| `divvy_webhook_reviews_total` | counter | `path`, `result` | Admission", "| `divvy_controller_reasons_total` | counter |",
			"| `divvy_scheduler_refusals_total` | counter | `cause` | Tries", "| `divvy_scheduler_ledger_differences` | gauge |  | GPUs", "| `divvy_share_memory_used_bytes` | gauge | `node`,", "| `divvy_agent_prepare_duration_seconds` | histogram |",
		},
		"events.md": {"| `granted` | a share that begins |", "| `out-of-memory` |"},
	} {
		text, err := pages[name](root)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s has no %q", name, want)
			}
		}
	}
}
