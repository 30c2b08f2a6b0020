package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/test/multiuser"
)

// customer is a user of a server who starts, waits for, changes and stops shares at
// random, and tries to have an agent of their own.
type customer struct {
	server *server
	user   string
	random *rand.Rand
	shares []*heldShare
	names  int
	// done counts commands that succeeded, tried those that ended.
	done, tried atomic.Int64
}

// heldShare is a program that holds memory in a share until its input ends.
type heldShare struct {
	name  string
	cmd   *exec.Cmd
	input io.Closer
}

// mostShares is how many shares one user has at once.
const mostShares = 3

func newCustomer(s *server, n int) *customer {
	return &customer{server: s, user: "u" + strconv.Itoa(n), random: rand.New(rand.NewPCG(1, uint64(n)))}
}

// live does one thing after another until ctx is done, and leaves nothing.
func (c *customer) live(ctx context.Context) {
	for ctx.Err() == nil {
		switch what := c.random.IntN(10); {
		case what < 5 && len(c.shares) < mostShares:
			c.start(ctx, what == 0)
		case what < 7 && len(c.shares) > 0:
			c.run(ctx, "set", c.some().name, "--memory", strconv.Itoa(1+c.random.IntN(20))+"Gi")
		case what == 7 && len(c.shares) > 0:
			c.run(ctx, "stop", c.some().name, "--grace", "0s")
			c.sweep()
		case what == 8:
			c.run(ctx, "agent", "--ephemeral")
		case len(c.shares) == mostShares:
			c.shares[c.random.IntN(len(c.shares))].end()
			c.sweep()
		}
		c.tried.Add(1)
		pause(ctx, time.Duration(c.random.IntN(50))*time.Millisecond)
	}
	for _, s := range c.shares {
		s.end()
	}
}

func (c *customer) some() *heldShare { return c.shares[c.random.IntN(len(c.shares))] }

// commandTime bounds one command: the agent may be away, or the queue long.
const commandTime = 2 * time.Second

// run runs one command of divvy to its end; that it is refused is no fault.
func (c *customer) run(ctx context.Context, args ...string) {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	if c.server.Command(ctx, c.user, append([]string{"divvy"}, args...)...).Run() == nil {
		c.done.Add(1)
	}
}

// start starts a share and waits until its program holds memory or is refused.
func (c *customer) start(ctx context.Context, wait bool) {
	c.names++
	name := fmt.Sprintf("%s-%d", c.user, c.names)
	args := []string{"divvy", "run", "--name", name, "--memory", strconv.Itoa(2+c.random.IntN(18)) + "Gi", "--gpu", strconv.Itoa(c.random.IntN(8))}
	if wait {
		args = append(args, "--wait")
	}
	cmd := c.server.Command(context.WithoutCancel(ctx), c.user, append(args, "--", "gpubench", "hold", "--bytes", "256Mi")...)
	input, err := cmd.StdinPipe()
	if err != nil {
		return
	}
	output, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		return
	}
	s := &heldShare{name, cmd, input}
	started := make(chan error, 1)
	go func() {
		_, err := bufio.NewReader(output).ReadString('\n')
		started <- err
	}()
	select {
	case err := <-started:
		if err == nil {
			c.shares = append(c.shares, s)
			c.done.Add(1)
			return
		}
	case <-time.After(commandTime):
	case <-ctx.Done():
	}
	s.end()
}

// end ends the program, also one that waits for its share.
func (s *heldShare) end() {
	_ = s.input.Close()
	_ = multiuser.Signal(s.cmd, syscall.SIGTERM) // it may have ended
	_ = s.cmd.Wait()
}

// sweep forgets the shares whose programs have ended.
func (c *customer) sweep() {
	var left []*heldShare
	for _, s := range c.shares {
		if _, err := multiuser.Child(s.cmd); err == nil && s.cmd.ProcessState == nil {
			left = append(left, s)
		} else if s.cmd.ProcessState == nil {
			_ = s.cmd.Wait()
		}
	}
	c.shares = left
}

func inode(path string) (uint64, error) {
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil {
		return 0, fmt.Errorf("look at %s: %w", path, err)
	}
	return stat.Ino, nil
}
