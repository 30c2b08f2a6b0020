package integration

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// layers are the ways in which `divvy run` puts our libraries before the
// driver's.
var layers = []string{"namespace", "env"}

// shell starts `divvy simgpu` machines and runs programs in shares of them, as a
// user does, with a run directory that ends with the test.
type shell struct {
	rundir  string
	machine string
}

func startShell(t *testing.T, machine string) *shell {
	t.Helper()
	// Not t.TempDir(): the agent's socket must have a short path (unix(7)).
	rundir, err := os.MkdirTemp("", "divvy-it-")
	must(t, err)
	s := &shell{rundir: rundir, machine: machine}
	t.Cleanup(func() {
		s.divvy(t, "simgpu", "stop", "--force", machine)
		must(t, os.RemoveAll(rundir))
	})
	s.divvy(t, "simgpu", "start", machine)
	return s
}

// divvy runs one of Divvy's own commands.
func (s *shell) divvy(t *testing.T, args ...string) {
	t.Helper()
	cmd := s.command(t, args)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("divvy %s: %v: %s", strings.Join(args, " "), err, said)
	}
}

func (s *shell) command(t *testing.T, args []string) *exec.Cmd {
	cmd := command(t, filepath.Join(prefix(t), "bin", "divvy"), args...)
	cmd.Env = append(cmd.Env, "DIVVY_RUNDIR="+s.rundir)
	return cmd
}

// outside is the place that `divvy simgpu exec` makes.
func (s *shell) outside() place {
	return func(t *testing.T, name string, args ...string) *exec.Cmd {
		t.Helper()
		return s.command(t, slices.Concat([]string{"simgpu", "exec", s.machine, "--", name}, args))
	}
}

// run is the place inside a new share, in the way of the layer.
func (s *shell) run(layer string, flags ...string) place {
	return func(t *testing.T, name string, args ...string) *exec.Cmd {
		t.Helper()
		return s.command(t, slices.Concat([]string{"run", "--simgpu", s.machine, "--layer", layer}, flags,
			[]string{"--", name}, args))
	}
}

// eachLayer runs a test in every way that this machine allows.
func eachLayer(t *testing.T, test func(t *testing.T, layer string)) {
	for _, layer := range layers {
		t.Run(layer, func(t *testing.T) {
			if layer == "namespace" {
				said, err := command(t, filepath.Join(prefix(t), "libexec", "divvy", "divvy-enter"), "--probe").CombinedOutput()
				if err != nil {
					missing(t, "userns", "make a mount namespace: %v: %s", err, said)
				}
			}
			test(t, layer)
		})
	}
}

// beside makes a program that starts gpubench holding 1 GiB, waits until it
// holds it, and then runs a command beside it, in one share.
func beside(where place) place {
	return func(t *testing.T, name string, args ...string) *exec.Cmd {
		t.Helper()
		script := `"$0" hold --bytes 1Gi | { read -r line; "$@"; kill $(echo "$line" | sed 's/.*"pid":\([0-9]*\).*/\1/'); }`
		cmd := where(t, "sh", slices.Concat([]string{"-c", script, filepath.Join(prefix(t), "bin", "gpubench"), name}, args)...)
		// The holder ends when its input does.
		input, stays, err := os.Pipe()
		must(t, err)
		t.Cleanup(func() {
			must(t, errors.Join(input.Close(), stays.Close()))
		})
		cmd.Stdin = input
		return cmd
	}
}

func TestRunShowsTheShare(t *testing.T) {
	python(t)
	eachLayer(t, func(t *testing.T, layer string) {
		s := startShell(t, "h100x8")
		whole := lookAround(t, s.outside(), nil)
		stranger := hold(t, s.outside(), "2", "3Gi")
		found := lookAround(t, beside(s.run(layer, "--memory", "4Gi", "--gpu", "2")), nil)
		if len(whole.Devices) != 8 || len(found.Devices) != 1 {
			t.Fatalf("%d GPUs outside and %d inside, want 8 and 1", len(whole.Devices), len(found.Devices))
		}
		shown := found.Devices[0]
		if shown.UUID != whole.Devices[2].UUID || shown.Memory.Total != 4<<30 {
			t.Errorf("the share shows %+v, want 4 GiB of GPU 2, %s", shown, whole.Devices[2].UUID)
		}
		if len(shown.Compute) != 1 || shown.Compute[0].PID == stranger.PID || shown.Compute[0].Memory != shown.Memory.Used {
			t.Errorf("the share's processes are %+v with %d bytes in use, want one of its own with all of it",
				shown.Compute, shown.Memory.Used)
		}
		if shown.Memory.Used < 1<<30 || shown.Memory.Used+shown.Memory.Free != 4<<30 {
			t.Errorf("the share's memory is %+v, want 1 GiB or more in use and the rest free", shown.Memory)
		}
	})
}

func TestRunVideo(t *testing.T) {
	program(t, "ffmpeg")
	eachLayer(t, func(t *testing.T, layer string) {
		s := startShell(t, "a100-80g")
		want, err := frames(t, s.outside(), "1280x720", nil, onCPU)
		must(t, err)
		got, err := frames(t, s.run(layer, "--memory", "2Gi"), "1280x720", throughGPU, onGPU)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("frames in a share differ from the CPU's, or: %v", err)
		}
		// A frame of this size has 199 MB; less is left beside a context.
		_, err = frames(t, s.run(layer, "--memory", "520Mi"), "15360x8640", throughGPU, onGPU)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || !exit.Exited() || exit.ExitCode() == 125 ||
			!strings.Contains(err.Error(), "CUDA_ERROR_OUT_OF_MEMORY") {
			t.Errorf("under a limit too small ffmpeg ended with %v, want out of memory and an exit status", err)
		}
	})
}
