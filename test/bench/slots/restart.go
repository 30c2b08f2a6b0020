package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	restartTime = "slots.restart_s"
	// filledPods are bound by then, on restartNodes.
	filledPods, restartNodes = 20000, 1000
	// afterRestart are pods that are made when the extender is gone.
	afterRestart = 20
)

// measureRestart kills the extender of a cluster with many bound pods, starts it at once, and waits until it answers and until
// the first of some pods is bound.
func measureRestart(ctx context.Context, o options) (rows []measurement.Row, err error) {
	fleet, err := fleetOf(o.NodesOr(restartNodes))
	if err != nil {
		return nil, err
	}
	c, err := open(ctx, o, fleet)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	kinds, err := bothKinds()
	if err != nil {
		return nil, err
	}
	held := kinds[0]
	if err := c.fill(ctx, held, c.Few(filledPods)); err != nil {
		return nil, err
	}
	if err := c.startBoth(ctx); err != nil {
		return nil, err
	}
	if _, err := c.placed(ctx, held, afterRestart); err != nil {
		return nil, err
	}
	var ready, first []float64
	for range c.Rounds() {
		back, bound, err := c.restartExtender(ctx, held)
		if err != nil {
			return nil, err
		}
		c.Say("the extender answers after %.2f s, and the first pod is bound after %.2f s", back.Seconds(), bound.Seconds())
		ready, first = append(ready, back.Seconds()), append(first, bound.Seconds())
	}
	on := fmt.Sprintf("%d nodes, %d pods bound", len(fleet), c.Few(filledPods))
	return []measurement.Row{
		target.Less(restartTime, on, "s", 5, ready, "from kill -9 and a start at once until it says that it answers; it has no lease to wait for"),
		target.Less(restartTime, on+", until a pod is bound", "s", -1, first, "the scheduler tries pods again whose question was not answered after a second or more"),
	}, nil
}

// restartExtender kills the extender and starts it where it was. It returns when it answered, and when the first of some pods
// that were made meanwhile was bound.
func (c *cluster) restartExtender(ctx context.Context, k kind) (ready, bound time.Duration, err error) {
	c.Process(extenderProgram).Kill()
	begun := time.Now()
	started := make(chan error, 1)
	go func() {
		err := c.Restart(ctx, extenderProgram)
		ready = time.Since(begun)
		started <- err
	}()
	o, err := c.round(ctx, false, afterRestart, k.one)
	if err = errors.Join(err, <-started); err != nil {
		return 0, 0, err
	}
	return ready, o.first.Sub(begun), c.clear(ctx)
}
