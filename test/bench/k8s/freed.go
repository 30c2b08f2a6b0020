package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	freedGoal = 2 // s
	// benchDir is of the node; pods of the bench have it at /bench.
	benchDir = "/var/lib/divvy-bench"
)

// freed measures how soon a pod that waits for a GPU runs once the pod that has all of them has ended: from the last
// moment of the one's container, written by itself, to the first of the other's, and to the moment at which the API
// calls the pod running. Both are times since the machine's start.
func (b *bench) freed(ctx context.Context) ([]measurement.Row, error) {
	dir := b.cluster.Nodes[0].Path(benchDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make a folder of the node: %w", err)
	}
	var started, running []float64
	for turn := range b.plan.turns {
		b.say("free the node for a pod that waits, %d of %d", turn+1, b.plan.turns)
		s, r, err := b.turn(ctx, dir, turn)
		if err != nil {
			return nil, err
		}
		started, running = append(started, s), append(running, r)
		if err := b.removePods(ctx); err != nil {
			return nil, err
		}
	}
	if f, err := b.agent.read(ctx); err == nil {
		buckets, count := f.histogram("divvy_agent_release_duration_seconds", map[string]string{"result": "done"})
		b.say("the agent released %d claims, half of them in at most %v s and all in %v s", count, bound(buckets, count, 0.5), bound(buckets, count, 1))
	}
	api := measurement.Of("k8s.freed_to_running_s", "s", freedGoal, measurement.Lower, command, running...)
	api.Case, api.Note = "pod is Running", "from the last container's exit; as a watch of the API sees it"
	process := measurement.Of("k8s.freed_to_running_s", "s", freedGoal, measurement.Lower, command, started...)
	process.Case, process.Note = "container has started", "from the last container's exit to the other's first instruction, by the machine's clock of 10 ms"
	return []measurement.Row{api, process}, nil
}

// turn lets one pod end and another begin, in s.
func (b *bench) turn(ctx context.Context, dir string, turn int) (started, running float64, err error) {
	owner, waiter := fmt.Sprintf("owner-%d", turn), fmt.Sprintf("waiter-%d", turn)
	end := filepath.Join(dir, owner+".end")
	if err := unix.Mkfifo(end, 0o600); err != nil {
		return 0, 0, fmt.Errorf("make %s: %w", end, err)
	}
	// The pipe is opened by the one, then by the other: nothing polls.
	script := "cat /bench/" + owner + ".end; cat /proc/uptime > /bench/" + owner
	if err := b.create(ctx, pod(owner, "node", benchDir, "sh", "-c", script)); err != nil {
		return 0, 0, err
	}
	if _, err := b.cluster.WaitRunning(ctx, namespace, owner); err != nil {
		return 0, 0, err
	}
	if err := b.create(ctx, pod(waiter, "share", benchDir, "sh", "-c", "cat /proc/uptime > /bench/"+waiter+"; sleep infinity")); err != nil {
		return 0, 0, err
	}
	if _, err := b.cluster.WaitPod(ctx, namespace, waiter, "it waits", unschedulable); err != nil {
		return 0, 0, err
	}
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		return 0, 0, fmt.Errorf("end pod %s: %w", owner, err)
	}
	_, err = b.cluster.WaitPod(ctx, namespace, waiter, "it runs", func(p *corev1.Pod) (bool, error) {
		return p.Status.Phase == corev1.PodRunning, nil
	})
	now, clockErr := uptime()
	if err := errors.Join(err, clockErr); err != nil {
		return 0, 0, err
	}
	ended, err := readUptime(ctx, filepath.Join(dir, owner))
	if err != nil {
		return 0, 0, err
	}
	began, err := readUptime(ctx, filepath.Join(dir, waiter))
	return began - ended, now - ended, err
}

// unschedulable reports whether the scheduler has said that there is no room.
func unschedulable(p *corev1.Pod) (bool, error) {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable {
			return true, nil
		}
	}
	if p.Status.Phase != corev1.PodPending {
		return false, fmt.Errorf("it is %s where nothing is free", p.Status.Phase)
	}
	return false, nil
}

// uptime is now, in s since the machine's start.
func uptime() (float64, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return float64(t.Sec) + float64(t.Nsec)/1e9, nil
}

// readUptime reads what a container wrote of /proc/uptime, once it is there.
func readUptime(ctx context.Context, path string) (float64, error) {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		text, err := os.ReadFile(path)
		if first, _, complete := strings.Cut(string(text), " "); complete && strings.HasSuffix(string(text), "\n") {
			return strconv.ParseFloat(first, 64)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, fmt.Errorf("read when a container began or ended: %w", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
