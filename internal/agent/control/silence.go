package control

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/process"
)

// GreetTime is how long an agent may take to greet, which it does at once, and how long it may stay stopped while it is asked
// for something: nobody should wait longer for one that is stopped or stuck.
const GreetTime = 10 * time.Second

var greetTime = GreetTime

// silentTime is after how long a user is told that they wait for an agent that does not answer.
var silentTime = 2 * time.Second

// lookPause is between two looks at the process of an agent that has not answered.
var lookPause = time.Second

// warningKey is that of [Warning].
type warningKey struct{}

// Warning returns a context whose calls say that an agent does not answer, after two seconds. Other requests than the first
// one of a connection may take long: of them it is said where the agent's process is seen stopped.
func Warning(ctx context.Context, say func(text string)) context.Context {
	return context.WithValue(ctx, warningKey{}, say)
}

// silence watches an agent that owes an answer.
type silence struct {
	agent   *unix.Ucred
	greets  bool // it was asked to greet, which it does at once
	say     func(text string)
	asked   time.Time
	stopped time.Time // since when it has been seen stopped; zero while it is not
	said    bool
}

func (c *Client) silence(ctx context.Context, method Method) *silence {
	s := &silence{agent: c.peer(), greets: method == MethodHello, asked: time.Now()}
	s.say, _ = ctx.Value(warningKey{}).(func(string))
	return s
}

// look tells the user that the agent is silent, and returns an error when it has been so for too long.
func (s *silence) look(now time.Time) error {
	stops := s.agent != nil && s.agent.Pid > 0 && process.Stopped(int(s.agent.Pid))
	switch {
	case !stops:
		s.stopped = time.Time{}
	case s.stopped.IsZero():
		s.stopped = now
	}
	if !s.said && s.say != nil && (s.greets || stops) && now.Sub(s.asked) >= silentTime {
		s.say(waitText(s.agent, stops) + ": waiting for it")
		s.said = true
	}
	if s.greets && now.Sub(s.asked) >= greetTime || stops && now.Sub(s.stopped) >= greetTime {
		return stuck(s.agent, os.Getuid(), stops)
	}
	return nil
}

// waitText says that an agent does not answer, and what is seen of it.
func waitText(agent *unix.Ucred, stopped bool) string {
	switch {
	case agent == nil || agent.Pid == 0:
		return "the agent does not answer"
	case stopped:
		return fmt.Sprintf("the agent does not answer: process %d is stopped by a signal", agent.Pid)
	}
	return fmt.Sprintf("the agent does not answer: process %d runs", agent.Pid)
}

// StuckError is returned of an agent that does not answer and need not be waited for.
type StuckError struct {
	// Found says what is seen of it, and Next what its reader can do.
	Found, Next string
}

// Error implements error.
func (e *StuckError) Error() string { return e.Found + ": " + e.Next }

// stuck says that an agent does not answer, and what a user can do.
func stuck(agent *unix.Ucred, reader int, stopped bool) *StuckError {
	const found, halted = "it does not answer", "it does not answer, because it is stopped by a signal"
	switch {
	case agent == nil:
		return &StuckError{found, "end it, the next one finds its shares"}
	case agent.Pid == 0:
		return &StuckError{found + ", and runs in another pid namespace", "end it there, the next one finds its shares"}
	case stopped && (reader == 0 || reader == int(agent.Uid)):
		return &StuckError{halted, fmt.Sprintf("let it go on (`kill -CONT %d`)", agent.Pid)}
	case stopped:
		return &StuckError{halted, fmt.Sprintf("ask an administrator to let it go on (`kill -CONT %d`)", agent.Pid)}
	case reader == 0 || reader == int(agent.Uid):
		return &StuckError{found, fmt.Sprintf("end it (`kill -KILL %d`), the next one finds its shares", agent.Pid)}
	}
	return &StuckError{found, fmt.Sprintf("ask an administrator to end it (process %d) and start the next one, which finds its shares", agent.Pid)}
}
