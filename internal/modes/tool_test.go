package modes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/nvml"
)

// toolOf is a tool that is a script.
func toolOf(t *testing.T, script string) Tool {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ToolProgram), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return Tool{Folders: []string{"/no-such-folder", dir}}
}

// table is what the tool lists.
const table = `cat <<END
+-------------------------------------+
| GPU compute policies:               |
| GPU     Name           Value        |
|=====================================|
|   3   Timeslice       Medium        |
+-------------------------------------+
END
`

func TestToolIsAskedAsNVIDIADoes(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	tool := toolOf(t, `echo "$LC_ALL $EXTRA $HOME: $@" >> `+log+"\n"+table)
	tool.Environment = []string{"EXTRA=1"}
	t.Setenv("HOME", "/not-for-the-tool")
	if got, err := tool.slice(t.Context(), "GPU-a"); err != nil || got != "medium" {
		t.Errorf("it tells %q, %v", got, err)
	}
	must(t, tool.setSlice(t.Context(), "GPU-a", "long"))
	text, err := os.ReadFile(log)
	must(t, err)
	if want := "C 1 : compute-policy -i GPU-a --list\nC 1 : compute-policy -i GPU-a --set-timeslice=3\n"; string(text) != want {
		t.Errorf("it was asked\n%s, want\n%s", text, want)
	}
}

// A tool that does not do what it is asked is told as it is, in bounded time.
func TestToolsThatFail(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"another version": {"echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18", "is of another version than the driver (Failed to initialize NVML: Driver/library version mismatch)"},
		"an older one":    {"echo 'ERROR: Option compute-policy is not recognized.'; exit 1", "Option compute-policy is not recognized"},
		"no permission":   {"echo 'Failed to set timeslice : Insufficient Permissions'; exit 4", "Insufficient Permissions"},
		"silent":          {"exit 1", "it says nothing"},
		"hanging":         {"exec sleep 1000", "did not end within 200ms"},
	} {
		tool := toolOf(t, c.script)
		if name == "hanging" {
			tool.Longest = 200 * time.Millisecond
		}
		if err := tool.setSlice(t.Context(), "GPU-a", "short"); !errors.Is(err, ErrTool) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if err := (Tool{Folders: []string{"/no-such-folder"}}).setSlice(t.Context(), "GPU-a", "short"); !errors.Is(err, ErrTool) || !strings.Contains(err.Error(), "there is none in /no-such-folder") {
		t.Errorf("missing: %v", err)
	}
	if err := toolOf(t, "exit 0").setSlice(t.Context(), "GPU-a", "brief"); err == nil {
		t.Error("a length that there is not was set")
	}
}

// What the tool lists in another way than is known is not taken for a length.
func TestListsThatAreNotKnown(t *testing.T) {
	for _, text := range []string{"", "nonsense", "|   0   Timeslice       Eternal       |", "|   0   Timeslice       Short         |\n|   1   Timeslice       Long          |"} {
		if got, err := toolOf(t, "cat <<END\n"+text+"\nEND\n").slice(t.Context(), "GPU-a"); !errors.Is(err, ErrUnknown) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

func TestFoldersOfTheTool(t *testing.T) {
	folders := ToolFolders("/host", "/opt/nvidia/lib64")
	if folders[0] != "/opt/nvidia/lib64" || folders[1] != "/opt/nvidia/bin" || !slices.Contains(folders, "/host/usr/bin") || slices.Contains(folders, "/usr/bin") {
		t.Errorf("it is looked for in %v", folders)
	}
}

// driver is a driver's library.
type driver struct {
	mode    string
	refused error
	holding nvml.Holding
}

func (d *driver) Holdings([]int) []nvml.Holding                 { return []nvml.Holding{d.holding} }
func (d *driver) ComputeMode(int) (string, error)               { return d.mode, d.refused }
func (d *driver) SetComputeMode(_ int, mode string) (err error) { d.mode = mode; return d.refused }

func TestMachine(t *testing.T) {
	d := &driver{mode: "default"}
	m := &Machine{NVML: d, Tool: toolOf(t, table), Index: func(uuid string) int { return strings.Index("ab", uuid) }}
	ctx := context.Background()
	must(t, m.SetMode(ctx, "b", ComputeMode, "prohibited"))
	if got, err := m.Mode(ctx, "b", ComputeMode); err != nil || got != "prohibited" {
		t.Errorf("compute mode %q, %v", got, err)
	}
	if got, err := m.Mode(ctx, "b", TimeSlice); err != nil || got != "medium" {
		t.Errorf("time slice %q, %v", got, err)
	}
	d.refused = nvml.ErrNotSupported
	if _, err := m.Mode(ctx, "b", ComputeMode); !errors.Is(err, ErrUnknown) {
		t.Errorf("a mode that the driver does not have: %v", err)
	}
	d.holding.Processes = []nvml.Process{{PID: os.Getpid()}, {PID: 1}}
	users, err := m.Users(ctx, "b")
	if err != nil || len(users) != 2 || users[0].PID != 1 || users[1].Name == "" || users[1].Owner == "" {
		t.Errorf("users %v, %v", users, err)
	}
	d.holding.Unlisted = nvml.ErrDriver
	if _, err := m.Users(ctx, "b"); !errors.Is(err, nvml.ErrDriver) {
		t.Errorf("users that are not told: %v", err)
	}
	if _, err := m.Users(ctx, "z"); err == nil {
		t.Error("a GPU that is not there has users")
	}
}
