package cli

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/doctor"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update rewrites it); got:\n%s", path, got)
	}
}

// call runs the command line on a run directory of its own.
func call(t *testing.T, args ...string) (status int, out, errOut string) {
	t.Helper()
	t.Setenv(rundir.Variable, t.TempDir())
	var stdout, stderr bytes.Buffer
	status = Main(args, &stdout, &stderr)
	return status, stdout.String(), stderr.String()
}

// While a system agent is away nobody says that there are no shares.
func TestSystemAgentAway(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(rundir.Variable, dir)
	tenants := filepath.Join(dir, "tenants", "t7")
	if err := os.MkdirAll(tenants, 0o700); err != nil {
		t.Fatal(err)
	}
	gone := process.ID{PID: 1, Start: 1 << 60}
	if err := rundir.WriteMark(dir, rundir.Mark{Agent: gone, Tenants: filepath.Dir(tenants)}); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"ls"}, {"ls", "-o", "json"}, {"stop", "train"}, {"set", "train", "--memory", "1Gi"}, {"doctor"}} {
		var out, errOut bytes.Buffer
		status := Main(args, &out, &errOut)
		said := out.String() + errOut.String()
		if status != 1 || !strings.Contains(said, "system agent is away since") || strings.Contains(said, "No shares") || strings.Contains(said, "none runs;") {
			t.Errorf("%v: status %d, %s", args, status, said)
		}
	}
}

func TestChecksAsTable(t *testing.T) {
	var w strings.Builder
	doctor.Write(&w, []doctor.Check{
		{Name: "installation", Status: doctor.OK, Found: "/opt/divvy"},
		{Name: "namespaces", Status: doctor.Warn, Found: "not allowed", Next: "allow them"},
	})
	golden(t, "doctor.table", w.String())
}

// Help is part of the interface: every command says what it is for and how it
// is used.
func TestHelp(t *testing.T) {
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		// What is handed over has its help, and that test, in internal/cli/cluster.
		if c.Name() == "completion" || c.Name() == "help" || c.DisableFlagParsing {
			return
		}
		if !c.Hidden && (c.Example == "" || c.Short == "") {
			t.Errorf("%s has no example or no description", c.CommandPath())
		}
		name := strings.ReplaceAll(c.CommandPath(), " ", "-")
		t.Run(name, func(t *testing.T) {
			args := slices.Concat(strings.Fields(c.CommandPath())[1:], []string{"--help"})
			status, out, errOut := call(t, args...)
			if status != 0 || errOut != "" {
				t.Errorf("exit status %d, %s", status, errOut)
			}
			golden(t, filepath.Join("help", name), out)
			for line := range strings.Lines(out) {
				if len(line) > 101 {
					t.Errorf("%d columns: %s", len(line)-1, line)
				}
			}
		})
		for _, child := range c.Commands() {
			visit(child)
		}
	}
	visit(newRoot(&app{}))
}

func TestWrongUsage(t *testing.T) {
	tests := []struct {
		args   string
		status int
		want   string
	}{
		{"run", 125, "the command to run"},
		{"run --memory 4Gi", 125, "the command to run"},
		{"run --memory 0 -- true", 125, "greater than zero"},
		{"run --memory -1Gi -- true", 125, "greater than zero"},
		{"run --memory lots -- true", 125, "such as 50%"},
		{"run --memory 101% -- true", 125, "1 to 100"},
		{"run --memory 99999999Ti -- true", 125, "larger than any GPU"},
		{"run --cores 0 -- true", 125, "1 to 100"},
		{"run --cores 101 -- true", 125, "1 to 100"},
		{"run --weight 0 -- true", 125, "1 or more"},
		{"run --weight 1001 -- true", 125, "1 to 1000"},
		{"run --cores 30 --weight 2 -- true", 125, "needs policy weighted"},
		{"run --policy burst -- true", 125, "add --cores"},
		{"run --cores 30 --policy burst --max-cores 0 -- true", 125, "1 to 100"},
		{"run --cores 30 --policy burst --max-cores 101 -- true", 125, "1 to 100"},
		{"run --cores 30 --policy burst --max-cores 20 -- true", 125, "the share's cores, 30, to 100"},
		{"run --cores 30 --max-cores 60 -- true", 125, "need policy burst"},
		{"run --class offline --policy burst --cores 30 -- true", 125, "guarantees nothing"},
		{"set train --cores 0", 2, "1 to 100"},
		{"set train --cores 101", 2, "1 to 100"},
		{"set train --max-cores 101", 2, "1 to 100"},
		{"set train --weight 0", 2, "1 or more"},
		{"set train --class batch", 1, "divvy ls"},
		{"run --gpus 0 -- true", 125, "give a number from 1 to 64, or all"},
		{"run --remote host --gpus -3 -- true", 125, "give a number from 1 to 64, or all"},
		{"run --on host --gpus 99999999999999999999 -- true", 125, "give a number from 1 to 64, or all"},
		{"run --gpus 2 --gpu 1 -- true", 125, "only 1 named (1)"},
		{"run --gpus all --gpu 1 -- true", 125, "exclude each other"},
		{"run --gpus device=1 -- true", 125, "--gpu names GPUs"},
		{"run --gpus 0,1 -- true", 125, "--gpu names GPUs"},
		{"run --gpu all -- true", 125, "--gpus all asks for all GPUs"},
		{"run --gpu 1,1 -- true", 125, "GPU 1 is named twice"},
		{"run --gpu 1, -- true", 125, "neither an index nor a UUID"},
		{"run --gpu MIG-6e5f0d1c-3b5e-4a8e-9f7a-2d1c0b9a8f7e -- true", 125, "is a MIG instance"},
		{"run --gpu first -- true", 125, "neither an index nor a UUID"},
		{"run --gpu= -- true", 125, "leave the flag out"},
		{"run --policy best -- true", 125, "fixed, weighted or burst"},
		{"run --policy fixed -- true", 125, "add --cores"},
		{"run --class batch -- true", 125, "online or offline"},
		{"run --name Ünnamed -- true", 125, "lower-case"},
		{"run --layer none -- true", 125, "auto, namespace or env"},
		{"run --simgpu b200 -- true", 125, "a100-80g"},
		{"run --nonsense -- true", 125, "unknown flag"},
		{"ls extra", 2, "give no arguments"},
		{"ls -o xml", 2, "table, json, yaml or wide"},
		{"ls --sort size", 2, "age, gpu, limit, name, time, used or user"},
		{"ls --watch=1ms", 2, "100ms"},
		{"ls --simgpu none", 1, "simgpu start"},
		{"lss", 2, `unknown command "lss" for "divvy": did you mean ls?`},
		{"set", 2, "one share"},
		{"set a b", 2, "unexpected argument"},
		{"set train", 2, "--memory"},
		{"set train --memory 4Gi", 1, "divvy ls"},
		{"stop", 2, "or more shares"},
		{"stop train", 1, "divvy ls"},
		{"stop train --grace -1s", 2, "0 or more"},
		{"top --interval 1ms", 2, "100ms"},
		{"top --interval 5", 2, "give a time such as 5s"},
		{"top --count many", 2, "give a whole number"},
		{"top --once=maybe", 2, "give true or false"},
		{"top --once --count 3", 2, "either --once or --count"},
		{"run --mem 8Gi -- true", 125, "did you mean --memory?"},
		{"run --coers 8 -- true", 125, "did you mean --cores?"},
		{"run --memory 8192 -- true", 125, "did you mean 8192Mi?"},
		{"run --memory 8g -- true", 125, "did you mean 8Gi?"},
		{"run --memory 1.5GB -- true", 125, "did you mean 1.5G?"},
		{"set train --memory 16GiB", 2, "did you mean 16Gi?"},
	}
	for _, test := range tests {
		t.Run(test.args, func(t *testing.T) {
			status, out, errOut := call(t, strings.Fields(test.args)...)
			if status != test.status || out != "" || !strings.Contains(errOut, test.want) || !strings.HasPrefix(errOut, "divvy: ") {
				t.Errorf("exit status %d, output %q, error %q; want %d and %q", status, out, errOut, test.status, test.want)
			}
			if strings.Contains(errOut, "strconv") || strings.Contains(errOut, "time:") {
				t.Errorf("functions of Go in %q", errOut)
			}
			if test.status == 2 && !strings.Contains(errOut, "--help") {
				t.Errorf("no way to the right usage: %q", errOut)
			}
		})
	}
}

func TestNothingRunsYet(t *testing.T) {
	status, out, errOut := call(t, "ls", "-o", "json")
	if status != 0 || errOut != "" || strings.TrimSpace(out) != "{\n  \"agents\": []\n}" {
		t.Errorf("exit status %d, %s%s", status, out, errOut)
	}
}
