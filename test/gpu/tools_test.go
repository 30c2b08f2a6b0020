package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Stand-ins for NVIDIA's tools: each runs the program that it is given, and says afterwards what the tool would. In a
// share, where CUDA_VISIBLE_DEVICES is 0 and no UUID, one that is to find a fault does so.
const (
	fakeSanitizer = `#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift 2; done
"$@" || exit
found=0; if [ -n "$FAULT" ] && [ "$CUDA_VISIBLE_DEVICES" = 0 ]; then found=3; fi
echo "========= ERROR SUMMARY: $found errors"
`
	fakeNsys = `#!/bin/sh
if [ "$1" = stats ]; then
	shift 7
	echo "Time (%),Total Time (ns),Instances,Name"
	read -r kernels <"$1"
	echo "100.0,5000000,$kernels,divvy_busy_ns"
	exit
fi
shift
while [ "${1#-}" != "$1" ]; do
	if [ "$1" = --output ]; then out=$2; fi
	shift 2
done
"$@" || exit
kernels=50; if [ -n "$FAULT" ] && [ "$CUDA_VISIBLE_DEVICES" = 0 ]; then kernels=51; fi
echo $kernels >"$out.nsys-rep"
`
	fakeGdb = `#!/bin/sh
while [ "$1" != --args ]; do shift; done
shift
"$@"
if [ -n "$FAULT" ] && [ "$CUDA_VISIBLE_DEVICES" = 0 ]; then echo "received signal SIGSEGV"; else echo "[Inferior 1 (process 7) exited normally]"; fi
`
	fakeSMI = `#!/bin/sh
said=$("${0%/*}/../bin/gpubench" nvml) || exit
total=${said#*\"total_bytes\":}; total=${total%%,*}
if [ -n "$FAULT" ]; then total=1048576; fi
echo "$((total / 1048576)), 1"
`
	// A daemon that notes what it is told.
	fakeMPS = `#!/bin/sh
if [ "$1" = -d ]; then echo "started ${CUDA_MPS_PIPE_DIRECTORY##*/}" >>"$0.log"; exit; fi
read -r told
echo "$told ${CUDA_MPS_PIPE_DIRECTORY##*/}" >>"$0.log"
`
	// PyTorch has what gpubench has.
	fakePython = `#!/bin/sh
bench=${0%/*}/../bin/gpubench
case $3 in
'') exit ;;
train) exec "$bench" load --loops 1 --sync 8 --seconds 100 ;;
serve) exec "$bench" serve --rate 25 --kernels 5 --loops 1 --seconds 2 ;;
esac
if [ -n "$FAULT" ]; then echo "Traceback: wrong" >&2; exit 1; fi
echo '{"reserved": 99, "usable": 100}'
`
)

// The cases of programs that only some machines have run where they are, and tell a share in which one finds a fault.
func TestBundleWithTools(t *testing.T) {
	t.Parallel()
	folder := unpacked(t)
	tools := filepath.Join(folder, "nothing") // all that is in $PATH
	if err := os.Mkdir(tools, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(tools, 0o777); err != nil { // for the notes of fakeMPS
		t.Fatal(err)
	}
	for name, text := range map[string]string{"compute-sanitizer": fakeSanitizer, "nsys": fakeNsys, "cuda-gdb": fakeGdb,
		"nvidia-smi": fakeSMI, "nvidia-cuda-mps-control": fakeMPS, "python3": fakePython} {
		if err := os.WriteFile(filepath.Join(tools, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for fault, want := range map[string]map[string]string{
		"": {"sanitizer": passed, "nsys": passed, "gdb": passed, "nvidia_smi": passed, "mps": passed, "torch_matmul": passed, "torch_graphs": passed},
		"1": {"sanitizer": "another answer: in a share: 3 errors", "nsys": "another answer: natively \"50 divvy_busy_ns\", in a share \"51",
			"gdb": "another answer: in a share: exit status 0", "nvidia_smi": "another answer: it shows \"1, 1\", want \"4096, 1\"",
			"torch_matmul": "another answer: run python3"},
	} {
		r, said := withTools(t, folder, fault, want)
		for name, o := range r.outcomes() {
			if line := o.line(); !strings.HasPrefix(line, want[name]) || want[name] == "" {
				t.Errorf("%s: %s, want %s\n%s", name, line, want[name], said)
			}
		}
		if len(r.Cases) != len(want) {
			t.Errorf("%d cases ran: %s", len(r.Cases), said)
		}
	}
	notes, err := os.ReadFile(filepath.Join(tools, "nvidia-cuda-mps-control.log"))
	if want := "started mps\nquit mps\n"; string(notes) != want {
		t.Errorf("the daemon of MPS was told %q, want %q; %v", notes, want, err)
	}
}

// withTools runs the cases that are wanted, beside the tools or with them finding a fault.
func withTools(t *testing.T, folder, fault string, want map[string]string) (report, string) {
	t.Helper()
	var names []string
	for name := range want {
		names = append(names, name)
	}
	out := filepath.Join(folder, "tools"+fault+".md")
	cmd := bundled(t, folder, "-simgpu", "a100-80g", "-only", "^("+strings.Join(names, "|")+")$", "-out", out)
	cmd.Env = append(cmd.Env, "FAULT="+fault)
	said, err := cmd.CombinedOutput()
	if ended := (*exec.ExitError)(nil); err != nil && !errors.As(err, &ended) {
		t.Fatal(fmt.Errorf("run with tools: %w", err))
	}
	_, r := reported(t, out)
	return r, string(said)
}

// PyTorch's training and inference are told apart, and both are measured.
func TestBundleWithPyTorch(t *testing.T) {
	t.Parallel()
	folder := unpacked(t)
	python := filepath.Join(folder, "nothing", "python3")
	if err := errors.Join(os.Mkdir(filepath.Dir(python), 0o755), os.WriteFile(python, []byte(fakePython), 0o755)); err != nil {
		t.Fatal(err)
	}
	r, said := withTools(t, folder, "", map[string]string{"torch_online": ""})
	if o := r.outcomes()["torch_online"]; o.Outcome != passed && o.Outcome != differed || len(o.Rows) != 2 {
		t.Errorf("torch_online: %+v: %s", o, said)
	}
}
