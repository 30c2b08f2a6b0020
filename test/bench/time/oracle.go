package main

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
)

// sample is what each process had truly used of the GPU up to a moment: CLOCK_MONOTONIC and GPU time, in ns.
type sample struct {
	At  uint64         `json:"t"`
	Own map[int]uint64 `json:"pids"`
}

// segment is a stretch in which the GPU executed work of one process.
type segment struct {
	Begin  uint64 `json:"wall"`
	Length uint64 `json:"length"`
}

// oracle is the simulated driver's own record, read all the time. The machine has one GPU.
type oracle struct {
	program, instance string
	command           *exec.Cmd
	ended             chan struct{}

	mutex   sync.Mutex
	samples []sample
	err     error
}

// fine is the time between two samples; windows begin and end with one.
const fine = "5ms"

func watch(program, instance string) (*oracle, error) {
	o := &oracle{program: program, instance: instance, ended: make(chan struct{})}
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

func (o *oracle) take(text []byte) {
	var s sample
	err := json.Unmarshal(text, &s)
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.err = errors.Join(o.err, err)
	o.samples = append(o.samples, s)
}

func (o *oracle) close() {
	_ = o.command.Process.Kill()
	<-o.ended
	_ = o.command.Wait()
}

// between are the first samples at or after two moments; it waits for the later one.
func (o *oracle) between(ctx context.Context, from, to uint64) (first, last sample, err error) {
	for {
		o.mutex.Lock()
		samples, err := o.samples, o.err
		o.mutex.Unlock()
		if err != nil {
			return sample{}, sample{}, fmt.Errorf("read the simulated driver's record: %w", err)
		}
		if len(samples) > 0 && samples[len(samples)-1].At >= to {
			return samples[at(samples, from)], samples[at(samples, to)], nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-o.ended:
			return sample{}, sample{}, errors.New("read the simulated driver's record: it ended")
		case <-ctx.Done():
			return sample{}, sample{}, ctx.Err()
		}
	}
}

func at(samples []sample, moment uint64) int {
	place, _ := slices.BinarySearchFunc(samples, moment, func(s sample, moment uint64) int {
		if s.At < moment {
			return -1
		}
		return 1
	})
	return place
}

func (s sample) sum(pids []int) (total uint64) {
	for _, pid := range pids {
		total += s.Own[pid]
	}
	return total
}

// percent is the part of the GPU's time that processes had between two moments, each put off to the next sample.
func (b *bench) percent(pids []int, from, to uint64) (float64, error) {
	first, last, err := b.oracle.between(b.ctx, from, to)
	if err != nil {
		return 0, err
	}
	return 100 * float64(last.sum(pids)-first.sum(pids)) / float64(last.At-first.At), nil
}

// segments are the latest stretches of a process, oldest first; the driver keeps the last few thousand.
func (o *oracle) segments(pid int) ([]segment, error) {
	text, err := exec.Command(o.program, "segments", o.instance, fmt.Sprint(pid)).Output()
	if err != nil {
		return nil, fmt.Errorf("read when process %d had the GPU: %w", pid, err)
	}
	var all []segment
	for line := range bytes.Lines(text) {
		var s segment
		if err := json.Unmarshal(line, &s); err != nil {
			return nil, fmt.Errorf("read when process %d had the GPU: %w", pid, err)
		}
		all = append(all, s)
	}
	return all, nil
}
