package simulated

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Sample is what each process had truly used of the GPU up to a moment: CLOCK_MONOTONIC and GPU time, in ns.
type Sample struct {
	At   uint64         `json:"t"`
	Busy uint64         `json:"busy"` // of all processes, also of those that have ended
	Own  map[int]uint64 `json:"pids"`
}

// Segment is a stretch in which the GPU executed work of one process.
type Segment struct {
	Begin  uint64 `json:"wall"`
	Length uint64 `json:"length"`
}

// Oracle is the simulated driver's own record, read all the time. The machine has one GPU.
type Oracle struct {
	program, instance string
	command           *exec.Cmd
	ended             chan struct{}

	mutex   sync.Mutex
	samples []Sample
	err     error
}

// fine is the time between two samples; windows begin and end with one.
const fine = "5ms"

func watch(program, instance string) (*Oracle, error) {
	o := &Oracle{program: program, instance: instance, ended: make(chan struct{})}
	o.command = exec.Command(program, "oracle", instance, "--watch", fine)
	o.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := o.command.StdoutPipe()
	if err == nil {
		err = o.command.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("watch the simulated driver's record: %w", err)
	}
	go func() {
		defer close(o.ended)
		scanner := bufio.NewScanner(out)
		for scanner.Scan() {
			o.take(scanner.Bytes())
		}
	}()
	return o, nil
}

func (o *Oracle) take(text []byte) {
	var s Sample
	err := json.Unmarshal(text, &s)
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.err = errors.Join(o.err, err)
	o.samples = append(o.samples, s)
}

func (o *Oracle) close() {
	_ = o.command.Process.Kill()
	<-o.ended
	_ = o.command.Wait()
}

// Between are the first samples at or after two moments; it waits for the later one.
func (o *Oracle) Between(ctx context.Context, from, to uint64) (first, last Sample, err error) {
	for {
		o.mutex.Lock()
		samples, err := o.samples, o.err
		o.mutex.Unlock()
		if err != nil {
			return Sample{}, Sample{}, fmt.Errorf("read the simulated driver's record: %w", err)
		}
		if len(samples) > 0 && samples[len(samples)-1].At >= to {
			return samples[at(samples, from)], samples[at(samples, to)], nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-o.ended:
			return Sample{}, Sample{}, errors.New("read the simulated driver's record: it ended")
		case <-ctx.Done():
			return Sample{}, Sample{}, ctx.Err()
		}
	}
}

// Now is the record at this moment.
func (o *Oracle) Now(ctx context.Context) (Sample, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return Sample{}, fmt.Errorf("read the clock: %w", err)
	}
	moment := uint64(now.Nano())
	_, last, err := o.Between(ctx, moment, moment)
	return last, err
}

func at(samples []Sample, moment uint64) int {
	place, _ := slices.BinarySearchFunc(samples, moment, func(s Sample, moment uint64) int {
		if s.At < moment {
			return -1
		}
		return 1
	})
	return place
}

// Sum is what some processes used together.
func (s Sample) Sum(pids []int) (total uint64) {
	for _, pid := range pids {
		total += s.Own[pid]
	}
	return total
}

// Percent is the part of the GPU's time that processes had between two moments, each put off to the next sample.
func (m *Machine) Percent(pids []int, from, to uint64) (float64, error) {
	first, last, err := m.Oracle.Between(m.ctx, from, to)
	if err != nil {
		return 0, err
	}
	return 100 * float64(last.Sum(pids)-first.Sum(pids)) / float64(last.At-first.At), nil
}

// Segments are the latest stretches of a process, oldest first; the driver keeps the last few thousand.
func (o *Oracle) Segments(pid int) ([]Segment, error) {
	text, err := exec.Command(o.program, "segments", o.instance, fmt.Sprint(pid)).Output()
	if err != nil {
		return nil, fmt.Errorf("read when process %d had the GPU: %w", pid, err)
	}
	var all []Segment
	for line := range bytes.Lines(text) {
		var s Segment
		if err := json.Unmarshal(line, &s); err != nil {
			return nil, fmt.Errorf("read when process %d had the GPU: %w", pid, err)
		}
		all = append(all, s)
	}
	return all, nil
}
