// Package escape tries what a program in a share of MPS can do to get more than its share.
package escape

import (
	_ "embed" // client.c
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/divvy-gpu/divvy/internal/simgpu"
)

//go:embed testdata/client.c
var source string

// Client compiles the program that tries it into a folder, with flags of the compiler, and returns its path. Its source says
// what it does.
func Client(folder string, flags ...string) (program string, err error) {
	program = filepath.Join(folder, "client"+strings.Join(flags, ""))
	cc := exec.Command("cc", slices.Concat([]string{"-o", program, "-x", "c", "-"}, flags, []string{"-ldl", "-lpthread"})...)
	cc.Stdin = strings.NewReader(source)
	if out, err := cc.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile the client: %w: %s", err, out)
	}
	return program, nil
}

// Said is what a client says of itself: what cuInit answered, how many GPUs there are, how many MiB it got, and its process.
type Said struct{ Init, Devices, MiB, PID int }

// Read reads a client's line.
func Read(line string) (s Said, err error) {
	if _, err := fmt.Sscanf(line, "%d %d %d %d", &s.Init, &s.Devices, &s.MiB, &s.PID); err != nil {
		return s, fmt.Errorf("read what a client says: %w: %q", err, line)
	}
	return s, nil
}

// Honest is the way of a program that changes nothing.
const Honest = "as it is"

// Refusable are the ways whose programs may get nothing.
var Refusable = []string{"set meanwhile", "the other GPU"}

// Ways are what a program in a share of GPU 0 can make of its variables, and when, by names. Client and static are paths of
// clients, the other one without dynamic libraries; pipe is the directory of another GPU's daemon.
func Ways(client, static, pipe string) map[string][]string {
	const percentage, memory, directory = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "CUDA_MPS_PIPE_DIRECTORY"
	return map[string][]string{
		Honest:              {client, "plain"},
		"no environment":    {"env", "-i", client, "plain"},
		"cleared":           {"env", "-u", percentage, "-u", memory, "-u", directory, client, "plain"},
		"emptied":           {"env", percentage + "=", memory + "=", directory + "=", client, "plain"},
		"raised":            {"env", percentage + "=100", memory + "=0=60G", client, "plain"},
		"nonsense":          {"env", percentage + "=-1", memory + "=7=1G,x", client, "plain"},
		"raised inside":     {client, "raise"},
		"left inside":       {client, "leave"},
		"set after start":   {client, "after"},
		"set meanwhile":     {client, "thread"},
		"another daemon":    {"env", directory + "=" + pipe, client, "plain"},
		"nobody's daemon":   {"env", directory + "=/nowhere", client, "plain"},
		"both GPUs":         {"env", "CUDA_VISIBLE_DEVICES=0,1", memory + "=0=60G,1=60G", client, "plain"},
		"the other GPU":     {"env", "CUDA_VISIBLE_DEVICES=1", client, "plain"},
		"fork":              {client, "fork"},
		"exec":              {client, "exec", "libcuda.so.1"},
		"a static program":  {static, "raise"},
		"through its shell": {"sh", "-c", "export " + percentage + "=100; exec env -i " + client + " raise"},
	}
}

// Daemon is the control daemon's process of a pipe directory.
func Daemon(pipe string) (pid int, err error) {
	text, err := os.ReadFile(filepath.Join(pipe, "nvidia-cuda-mps-control.pid"))
	if err == nil {
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	if err != nil {
		return 0, fmt.Errorf("find the control daemon: %w", err)
	}
	return pid, nil
}

// Spoils are what can become of a share's daemon, a process with a pipe directory, beside that of another GPU, by names.
func Spoils() map[string]func(pid int, own, other string) error {
	aside := func(own string) error { return os.Rename(own, own+".kept") }
	return map[string]func(pid int, own, other string) error{
		"stopped":        func(pid int, _, _ string) error { return syscall.Kill(pid, syscall.SIGSTOP) },
		"killed":         func(pid int, _, _ string) error { return syscall.Kill(pid, syscall.SIGKILL) },
		"directory away": func(_ int, own, _ string) error { return aside(own) },
		"a link to the other GPU's": func(_ int, own, other string) error {
			return errors.Join(aside(own), os.Symlink(other, own))
		},
		"an empty directory": func(_ int, own, _ string) error { return errors.Join(aside(own), os.Mkdir(own, 0o755)) },
	}
}

// Grant is what a share has: GPU is its index, Memory in bytes.
type Grant struct {
	GPU, Multiprocessors int
	Memory               uint64
}

// Judge says by the simulated driver's report whether a process has a context, and what it has that its share has not,
// which is empty for an honest one.
func (g Grant) Judge(report simgpu.Report, pid int) (served bool, more string) {
	for _, p := range report.Processes {
		if p.PID != pid {
			continue
		}
		for _, has := range p.GPUs {
			if has.Contexts == 0 && has.Used == 0 {
				continue
			}
			served = true
			limited := has.MemoryLimit != 0 && has.MemoryLimit <= g.Memory
			if has.Index != g.GPU || p.MPSServer == 0 || has.Multiprocessors > g.Multiprocessors || !limited || has.Used > g.Memory {
				more += fmt.Sprintf("as a client of server %d it has %+v; ", p.MPSServer, has)
			}
		}
	}
	return served, more
}
