package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// target is a share that a command is about.
type target struct {
	endpoint control.Endpoint
	// share is its id, which is no other share's, or what the user calls it where that may
	// mean several.
	share string
}

// What is said where an agent ended before it answered.
var (
	// errUnknown is returned where no other agent can be asked.
	errUnknown = errors.New("the agent ended before it answered")
	// errMeanwhile is returned where the next agent has no such share.
	errMeanwhile = errors.New("the share has ended, as has the agent that was asked")
)

// lost reports whether an agent ended, or handed its shares over, before it answered.
func lost(err error) bool {
	return errors.Is(err, control.ErrGone) || control.CodeOf(err) == control.CodeMoved
}

// insist asks the agent of a share with f and, if it ends before it answers, the next one,
// for which it waits as `divvy run` does. What f asks for may be done already, so it must be
// right to ask for it twice.
func (a *app) insist(ctx context.Context, endpoint control.Endpoint, f func(*control.Client) error) error {
	err := ask(ctx, endpoint, f)
	if !lost(err) {
		return err
	}
	for range mostLost {
		a.tell("the agent ended before it answered: asking the next one")
		select {
		case <-time.After(againPause):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errUnknown, ctx.Err())
		}
		if err = a.askNext(ctx, endpoint, f); !lost(err) {
			break
		}
	}
	var away *control.AwayError
	switch {
	case control.CodeOf(err) == control.CodeNotFound || errors.Is(err, control.ErrNoAgent):
		// An agent ends by itself when it has no shares.
		return fmt.Errorf("%w: %w", errMeanwhile, err)
	case lost(err) || errors.As(err, &away):
		return fmt.Errorf("%w: %w", errUnknown, err)
	}
	return err
}

// askNext calls f with a connection to the agent that follows one that has ended, also if a
// system agent has to start first.
func (a *app) askNext(ctx context.Context, endpoint control.Endpoint, f func(*control.Client) error) error {
	starter := control.Starter{Hidden: hidden, Say: a.tell, AwayTime: a.awayTime}
	client, err := control.Reach(ctx, endpoint, starter)
	var away *control.AwayError
	if errors.As(err, &away) {
		client, err = control.Ensure(ctx, endpoint, starter)
	}
	if err != nil {
		return err
	}
	err = f(client)
	return errors.Join(err, client.Close())
}
