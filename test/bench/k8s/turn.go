package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// turn is one pod that had the node and one that waited for it. Its moments are in s since the machine's start.
type turn struct {
	owner, waiter string
	// ended is the last moment of the owner's container, and began the first of the waiter's, as these wrote.
	ended, began float64
	// told is when the API had the owner's end, bound when the waiter had a node, and running when it ran.
	told, bound, running float64
}

// play makes a turn happen. pause is between the waiter's being found to have no room and the owner's end.
func (b *bench) play(ctx context.Context, dir string, t *turn, pause time.Duration) error {
	end := filepath.Join(dir, t.owner+".end")
	if err := unix.Mkfifo(end, 0o600); err != nil {
		return fmt.Errorf("make %s: %w", end, err)
	}
	// The pipe is opened by the one, then by the other: nothing polls.
	script := "cat /bench/" + t.owner + ".end; cat /proc/uptime > /bench/" + t.owner
	if err := b.create(ctx, pod(t.owner, "node", benchDir, "sh", "-c", script)); err != nil {
		return err
	}
	if _, err := b.cluster.WaitRunning(ctx, namespace, t.owner); err != nil {
		return err
	}
	if err := b.create(ctx, pod(t.waiter, "share", benchDir, "sh", "-c", "cat /proc/uptime > /bench/"+t.waiter+"; sleep infinity")); err != nil {
		return err
	}
	if _, err := b.cluster.WaitPod(ctx, namespace, t.waiter, "it waits", unschedulable); err != nil {
		return err
	}
	select {
	case <-time.After(pause):
	case <-ctx.Done():
		return ctx.Err()
	}
	told := b.when(ctx, t.owner, "it has ended", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	bound := b.when(ctx, t.waiter, "it is bound", func(p *corev1.Pod) bool { return p.Spec.NodeName != "" })
	running := b.when(ctx, t.waiter, "it runs", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		return fmt.Errorf("end pod %s: %w", t.owner, err)
	}
	var faults [5]error
	t.told, faults[0] = told()
	t.bound, faults[1] = bound()
	t.running, faults[2] = running()
	t.ended, faults[3] = readUptime(ctx, filepath.Join(dir, t.owner))
	t.began, faults[4] = readUptime(ctx, filepath.Join(dir, t.waiter))
	return errors.Join(faults[:]...)
}

// when begins to watch a pod; what it returns waits for the moment at which something holds.
func (b *bench) when(ctx context.Context, name, what string, holds func(*corev1.Pod) bool) func() (float64, error) {
	var at float64
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err = b.cluster.WaitPod(ctx, namespace, name, what, func(p *corev1.Pod) (bool, error) { return holds(p), nil })
		if err == nil {
			at, err = uptime()
		}
	}()
	return func() (float64, error) {
		<-done
		return at, err
	}
}

// ownTimes reads from the agent's log how long it took in each turn to let go of the owner's claim and to prepare the
// waiter's, in s.
func (b *bench) ownTimes(ctx context.Context, turns []turn) ([]float64, error) {
	text, err := b.cluster.PodLogs(ctx, cluster.Namespace, b.agent.pod, "")
	if err != nil {
		return nil, err
	}
	var all []float64
	for _, t := range turns {
		var sum time.Duration
		for what, pod := range map[string]string{"released": t.owner, "prepared": t.waiter} {
			match := regexp.MustCompile(`msg=` + what + ` claim=` + namespace + `/` + pod + `-.* took=(\S+)`).FindStringSubmatch(text)
			if match == nil {
				return nil, fmt.Errorf("the agent's log does not tell how long it took until the claim of %s was %s", pod, what)
			}
			took, err := time.ParseDuration(match[1])
			if err != nil {
				return nil, fmt.Errorf("read the agent's log: %w", err)
			}
			sum += took
		}
		all = append(all, sum.Seconds())
	}
	return all, nil
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
