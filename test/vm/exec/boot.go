package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/test/vm/kit"
	"github.com/divvy-gpu/divvy/test/vm/task"
	"github.com/divvy-gpu/divvy/test/vm/wire"
)

// source is where the guest has the source tree.
const source = "/source"

// errBooting says that a guest never came to its tests.
var errBooting = errors.New("the guest did not boot")

// boot runs the tests in a guest and returns their exit status. It returns an error where the guest ended without one.
func boot(ctx context.Context, k kit.Kit, p place, o options) (int, error) {
	return again(ctx, func() (int, error) { return once(ctx, k, p, o) })
}

// again boots a guest that does not come to its tests once more. Emulation by several threads now and then stands still, or
// ends, while the kernel starts, and no test has begun then.
func again(ctx context.Context, once func() (int, error)) (status int, err error) {
	for range boots {
		status, err = once()
		if !errors.Is(err, errBooting) || ctx.Err() != nil {
			break
		}
		_, _ = fmt.Fprintln(os.Stderr, "guest:", err)
	}
	return status, err
}

// once boots a guest and runs the tests in it.
func once(ctx context.Context, k kit.Kit, p place, o options) (int, error) {
	folder, err := os.MkdirTemp("", "divvy-vm-")
	if err != nil {
		return 0, fmt.Errorf("make a folder for the guest: %w", err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	// What the guest writes on the wire comes out of QEMU's standard output.
	files := kit.Files{Memory: filepath.Join(folder, "memory"), Disk: filepath.Join(folder, "disk"), Console: o.console, Wire: "/dev/stdout"}
	if files.Console == "" {
		files.Console = filepath.Join(folder, "console")
	}
	if err := errors.Join(write(files.Memory, k, p, o), os.WriteFile(files.Disk, kit.FileSystem(), 0o600)); err != nil {
		return 0, err
	}
	begun := time.Now()
	cmd := k.Emulator(o.shape, files)
	var faults bytes.Buffer
	cmd.Stderr = &faults
	line, err := cmd.StdoutPipe()
	if err != nil {
		return 0, fmt.Errorf("start QEMU: %w", err)
	}
	// QEMU ends with the thread that started it, also where this program is killed.
	runtime.LockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start QEMU: %w", err)
	}
	ended := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer ended()
	late := time.AfterFunc(booting, func() { _ = cmd.Process.Kill() })
	heard := follow(line, os.Stdout, os.Stderr, func() { late.Reset(o.limit) })
	over := !late.Stop()
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if heard.err == nil {
		fmt.Printf("guest: ready after %.1f s, tests %.1f s\n", heard.ready.Sub(begun).Seconds(), time.Since(heard.ready).Seconds())
		return heard.status, nil
	}
	switch took := time.Since(begun).Seconds(); {
	case ctx.Err() != nil:
		heard.err = fmt.Errorf("the guest is ended after %.0f s: %w", took, context.Cause(ctx))
	case heard.ready.IsZero():
		heard.err = fmt.Errorf("%w within %.0f s: %w", errBooting, took, heard.err)
	case over:
		heard.err = fmt.Errorf("the guest is ended after %.0f s: %w", took, context.DeadlineExceeded)
	}
	return 0, fmt.Errorf("%w\n%s%s", heard.err, faults.String(), tail(files.Console))
}

// heard is what came on the wire.
type heard struct {
	ready  time.Time
	status int
	err    error
}

var errSilent = errors.New("the guest ended without a result: its kernel panicked, or QEMU failed")

// follow copies what the tests write, until their result or the end of the wire. It calls ready before the tests begin.
func follow(line io.Reader, output, faults io.Writer, ready func()) heard {
	h := heard{err: errSilent}
	for in := bufio.NewReader(line); ; {
		kind, payload, err := wire.Read(in)
		if errors.Is(err, io.EOF) {
			return h
		}
		if err != nil {
			h.err = fmt.Errorf("%w: %w", errSilent, err)
			return h
		}
		switch kind {
		case wire.Ready:
			h.ready = time.Now()
			ready()
		case wire.Output:
			_, _ = output.Write(payload)
		case wire.Faults:
			_, _ = faults.Write(payload)
		case wire.Problem:
			_, _ = fmt.Fprintf(faults, "guest: %s\n", payload)
		case wire.Result:
			if len(payload) == 1 {
				h.status, h.err = int(payload[0]), nil
			}
			return h
		}
	}
}

// tail returns the end of what the kernel said.
func tail(console string) string {
	const most = 6 << 10
	text, err := os.ReadFile(console) //nolint:gosec // a file of this run
	if err != nil || len(text) == 0 {
		return "its kernel said nothing"
	}
	return "its kernel said at last:\n" + string(text[max(0, len(text)-most):])
}

// write writes the disk of one run: the root that all runs share, and behind it what this one has.
func write(to string, k kit.Kit, p place, o options) (err error) {
	root, err := cached(k, filepath.Join(p.root, "build/vm"))
	if err != nil {
		return err
	}
	file, err := os.Create(to) //nolint:gosec // in the folder of this run
	if err != nil {
		return fmt.Errorf("write the guest's disk: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	shared, err := os.Open(root) //nolint:gosec // what cached wrote
	if err != nil {
		return fmt.Errorf("read the guest's root: %w", err)
	}
	defer shared.Close()
	if _, err := io.Copy(file, shared); err != nil {
		return fmt.Errorf("write the guest's disk: %w", err)
	}
	own := kit.NewArchive(file)
	dir := path.Join(source, filepath.ToSlash(p.below))
	tests := path.Join(dir, filepath.Base(o.tests))
	if err := k.Program(own, tests, o.tests); err != nil {
		return err
	}
	for _, path := range append([]string{"go.mod"}, o.with...) {
		own.Tree(source+"/"+path, filepath.Join(p.root, path))
	}
	if data := filepath.Join(p.root, p.below, "testdata"); exists(data) {
		own.Tree(path.Join(dir, "testdata"), data)
	}
	t := task.Task{
		Dir: dir, Arguments: append([]string{tests}, o.arguments...),
		Environment: []string{"PATH=/bin", "HOME=/root", "TMPDIR=/tmp", "DIVVY_SHAPE=" + o.name},
	}
	for _, name := range []string{"DIVVY_REQUIRE", "DIVVY_LONG"} {
		t.Environment = append(t.Environment, name+"="+os.Getenv(name))
	}
	text, err := t.Encode()
	if err != nil {
		return err
	}
	own.File(kit.Task, 0o644, text)
	return own.Close()
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// cached returns the guest's root, written anew where any part of it has changed.
func cached(k kit.Kit, folder string) (string, error) {
	first := filepath.Join(folder, "init")
	modules := []string{filepath.Join(folder, "host_driver.ko"), filepath.Join(folder, "soft_card.ko")}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	sum := sha256.New()
	_, _ = io.WriteString(sum, k.Digests)
	for _, part := range append([]string{self, first}, modules...) {
		content, err := os.ReadFile(part) //nolint:gosec // what make built
		if err != nil {
			return "", fmt.Errorf("read a part of the guest: %w: run make vm-parts", err)
		}
		_, _ = sum.Write(content)
	}
	root := filepath.Join(folder, fmt.Sprintf("root-%x", sum.Sum(nil)[:8]))
	if exists(root) {
		return root, nil
	}
	old, _ := filepath.Glob(filepath.Join(folder, "root-*"))
	for _, path := range old {
		if path != root { // another guest that boots may have written it since
			_ = os.Remove(path)
		}
	}
	file, err := os.CreateTemp(folder, "new-root-")
	if err != nil {
		return "", fmt.Errorf("write the guest's root: %w", err)
	}
	defer func() { _ = os.Remove(file.Name()) }()
	err = errors.Join(k.WriteRoot(file, first, modules...), file.Close())
	if err != nil {
		return "", fmt.Errorf("write the guest's root: %w", err)
	}
	return root, os.Rename(file.Name(), root)
}
