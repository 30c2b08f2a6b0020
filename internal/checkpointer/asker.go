package checkpointer

import (
	"bufio"
	"context"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/nvml/helper"
)

// mostLine bounds a line of an answer, in bytes.
const mostLine = 1024

// asker is a process that asks the driver. One question at a time is with it, and none after one that was not answered.
type asker struct {
	process helper.Process
	lines   chan string
}

func newAsker(p helper.Process) *asker {
	a := &asker{process: p, lines: make(chan string, 1)}
	go a.read()
	return a
}

// read passes lines on until the connection ends. There is room for each, because each question awaits its own.
func (a *asker) read() {
	defer close(a.lines)
	in := bufio.NewScanner(a.process)
	in.Buffer(nil, mostLine)
	for in.Scan() {
		select {
		case a.lines <- strings.TrimSpace(in.Text()):
		case <-a.process.Ended():
			return
		}
	}
}

// exchange asks, unless the question is empty, and waits for a line.
func (a *asker) exchange(ctx context.Context, question string, limit time.Duration) (string, error) {
	if question != "" {
		if _, err := a.process.Write([]byte(question)); err != nil {
			return "", ErrEnded
		}
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case line, ok := <-a.lines:
		if !ok {
			return "", ErrEnded
		}
		return line, nil
	case <-timer.C:
		return "", ErrSilent
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (a *asker) alive() bool {
	select {
	case <-a.process.Ended():
		return false
	default:
		return true
	}
}

// awaitEnd reports whether the process ends in time, or has ended.
func (a *asker) awaitEnd(limit time.Duration) bool {
	if !a.alive() {
		return true
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-a.process.Ended():
		return true
	case <-timer.C:
		return false
	}
}
