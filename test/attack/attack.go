// Package attack has the program that tries to hold more GPU memory than its share, and
// names the ways that it tries: on a server, in containers and on a cluster. Another
// program lies about who is in its share, a third uses more of a GPU's time, a fourth
// keeps a connection to the agent whose maker has ended, and a fifth forks without end.
package attack

import (
	"bytes"
	"context"
	_ "embed" // the program's source
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/divvy-gpu/divvy/internal/excess"
	"github.com/divvy-gpu/divvy/internal/page"
)

// Way is one past a share's memory limit.
type Way struct {
	Name string
	// Prevented is whether the library prevents it; the agent notices the others.
	Prevented bool
}

// Ways are all that are known.
var Ways = []Way{
	{Name: "name"},                     // loads the driver under its other name
	{Name: "zero"},                     // zeroes the ledger in its page
	{Name: "loop"},                     // does so without end
	{Name: "open", Prevented: true},    // a preloaded open returns another config page
	{Name: "mount", Prevented: true},   // another config page is mounted over the share's
	{Name: "longjmp", Prevented: true}, // leaves a waiting call of the driver
	{Name: "handler", Prevented: true}, // allocates in a signal handler meanwhile
	{Name: "dup", Prevented: true},     // releases memory whose descriptor was duplicated
	{Name: "pass", Prevented: true},    // passes the descriptor to a process without CUDA
	{Name: "stack", Prevented: true},   // makes the stacks of kernels large
	{Name: "code", Prevented: true},    // loads code with large variables
	{Name: "local", Prevented: true},   // launches kernels that need large stacks
}

const (
	// Limit is that of a share in which a way is tried.
	Limit = 2 << 30
	// Wanted is what a way tries to hold.
	Wanted = 8 << 30
	// Tolerance is what a share may hold beyond its limit before it is accused.
	Tolerance = excess.LateCode
)

// The files of the program.
const (
	Program = "bypass"
	Preload = Program + ".so"
)

//go:embed testdata/bypass.c
var source []byte

//go:embed testdata/liar.c
var liar []byte

//go:embed testdata/usher.c
var usher []byte

//go:embed testdata/bomb.c
var bomb []byte

// Build compiles the program's files into a directory.
func Build(ctx context.Context, dir string) error {
	for name, flags := range map[string][]string{Program: nil, Preload: {"-shared", "-fPIC", "-DPRELOAD"}} {
		if err := build(ctx, filepath.Join(dir, name), source, flags...); err != nil {
			return err
		}
	}
	return nil
}

// BuildLiar compiles the program that lies about who is in its share.
func BuildLiar(ctx context.Context, dir string) error {
	return build(ctx, filepath.Join(dir, "liar"), liar)
}

// BuildUsher compiles the program that keeps a connection whose maker has ended.
func BuildUsher(ctx context.Context, dir string) error {
	return build(ctx, filepath.Join(dir, "usher"), usher)
}

// BuildBomb compiles the program that forks without end.
func BuildBomb(ctx context.Context, dir string) error {
	return build(ctx, filepath.Join(dir, "bomb"), bomb)
}

// Bomb is what forks in a share, with the program that [BuildBomb] put into a directory, in
// one of its ways: "grow", that everybody stays, or "orphan", that each parent ends. There
// are never more than a number of processes of the user, and it ends after many forks.
func Bomb(dir, way string, processes int) []string {
	const forks = 400000
	return []string{"prlimit", "--nproc=" + strconv.Itoa(processes), filepath.Join(dir, "bomb"), way, strconv.Itoa(forks)}
}

func build(ctx context.Context, path string, source []byte, flags ...string) error {
	args := append([]string{"-o", path, "-x", "c", "-"}, flags...)
	cmd := exec.CommandContext(ctx, "cc", append(args, "-ldl", "-lpthread")...)
	cmd.Stdin = bytes.NewReader(source)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", filepath.Base(path), err, text)
	}
	return nil
}

// Lie is what takes memory in a share, with the program that [BuildLiar] put into a
// directory, and lies in one of its ways: "forge", that processes with the given pids
// are in it, or "vanish" and "damage", that nobody is, after it left its parent. It
// prints a line when it has the memory, and another when it has read a byte and lied.
func Lie(dir, way string, bytes uint64, pids ...int) []string {
	args := []string{filepath.Join(dir, "liar"), way, strconv.FormatUint(bytes, 10)}
	for _, n := range append([]int{
		page.OffsetOfStateSlotCount, page.OffsetOfStateSlot, page.SizeOfSlot, page.OffsetOfSlotPID, page.OffsetOfSlotHostPID, page.LockBase,
	}, pids...) {
		args = append(args, strconv.Itoa(n))
	}
	return args
}

// Command is what tries a way with the program that lies in a directory. It prints a
// line when it has tried, of the bytes that it believes to hold and of when it passed
// what a share may hold (ns of the wall clock, 0 if never), and ends with its input.
func Command(dir, way string) []string {
	return []string{
		filepath.Join(dir, Program), way, strconv.FormatUint(Limit+Tolerance, 10), strconv.FormatUint(Wanted, 10),
		strconv.Itoa(page.SizeOfState + page.OffsetOfGPUAmounts), strconv.Itoa(page.OffsetOfConfigDevice + page.OffsetOfDeviceLimit),
	}
}
