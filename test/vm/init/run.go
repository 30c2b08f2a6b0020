//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/test/vm/task"
	"github.com/divvy-gpu/divvy/test/vm/wire"
)

// leftovers is how long output is read after the task has ended: what it started may hold its output for ever.
const leftovers = time.Second

// run starts the task, sends its output, and returns its exit status: 128 and the signal's number where one killed it.
func run(t task.Task, line io.Writer) (int, error) {
	var readers sync.WaitGroup
	var ends []*os.File
	files := []*os.File{nil}
	for _, kind := range []wire.Kind{wire.Output, wire.Faults} {
		read, write, err := os.Pipe()
		if err != nil {
			return 0, fmt.Errorf("make a pipe: %w", err)
		}
		files, ends = append(files, write), append(ends, read)
		readers.Go(func() { _, _ = io.Copy(wire.Stream{To: line, Kind: kind}, read) })
	}
	process, err := os.StartProcess(t.Arguments[0], t.Arguments, &os.ProcAttr{Dir: t.Dir, Env: t.Environment, Files: files})
	if err != nil {
		return 0, fmt.Errorf("start the tests: %w", err)
	}
	for _, file := range files[1:] {
		_ = file.Close()
	}
	status, err := reap(process.Pid)
	for _, end := range ends {
		_ = end.SetReadDeadline(time.Now().Add(leftovers))
	}
	readers.Wait()
	return status, err
}

// reap waits for a process, and meanwhile for every orphan: this is the first program of the machine.
func reap(pid int) (int, error) {
	for {
		var status unix.WaitStatus
		ended, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR) || err == nil && ended != pid:
			continue
		case err != nil:
			return 0, fmt.Errorf("wait for the tests: %w", err)
		case status.Signaled():
			return 128 + int(status.Signal()), nil
		}
		return status.ExitStatus(), nil
	}
}
