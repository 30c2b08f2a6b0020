package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// player is the simulated driver's schedule on a virtual clock, told by its own program.
type player struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	end     func() error

	now      uint64            // ns
	executed map[string]uint64 // ns of GPU time
	reached  map[string]int    // stamps
	pages    map[string]pages
}

// pages are what the driver's record has of a client's managed memory.
type pages struct{ resident, in, out, faults, stalled uint64 }

// errPlayed tells what the player found wrong with a line.
var errPlayed = errors.New("the player refused")

// play starts a machine whose time moves on command alone.
func play(ctx context.Context, o options, machine string) (p *player, err error) {
	dir, err := os.MkdirTemp("/dev/shm", "divvy-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a run directory: %w", err)
	}
	divvy := func(args ...string) error {
		cmd := exec.Command(filepath.Join(o.build, "bin", "divvy"), append([]string{"simgpu"}, args...)...)
		cmd.Env = append(os.Environ(), "DIVVY_RUNDIR="+dir)
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("divvy simgpu %s: %w: %s", strings.Join(args, " "), err, text)
		}
		return nil
	}
	p = &player{executed: map[string]uint64{}, reached: map[string]int{}, pages: map[string]pages{}}
	p.end = func() error { return errors.Join(divvy("stop", "played", "--force"), os.RemoveAll(dir)) }
	if err := divvy("start", machine, "--name", "played", "--set", "clock=virtual"); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	p.command = exec.CommandContext(ctx, filepath.Join(o.build, "libexec", "divvy", "simgpuctl"), "play", filepath.Join(dir, "simgpu", "played"))
	p.in, err = p.command.StdinPipe()
	if err != nil {
		return nil, errors.Join(err, p.end())
	}
	out, err := p.command.StdoutPipe()
	if err == nil {
		err = p.command.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the player: %w", err), p.end())
	}
	p.out = bufio.NewReader(out)
	return p, nil
}

func (p *player) close() error {
	_ = p.in.Close() // at the end of its input it ends
	return errors.Join(p.command.Wait(), p.end())
}

// say tells the player a line and takes its answer.
func (p *player) say(format string, args ...any) error {
	line := fmt.Sprintf(format, args...)
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		return fmt.Errorf("tell the player: %w", err)
	}
	for {
		answer, err := p.out.ReadString('\n')
		if err != nil {
			return fmt.Errorf("hear the player: %w", err)
		}
		last, err := p.take(strings.Fields(answer))
		if err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
		if last {
			return nil
		}
	}
}

// take reads a line of an answer, and reports whether it is the last one.
func (p *player) take(words []string) (last bool, err error) {
	if len(words) == 0 {
		return false, fmt.Errorf("%w: it says nothing", errPlayed)
	}
	switch words[0] {
	case "stamp":
		p.reached[words[1]]++
		return false, nil
	case "time":
		numbers, err := figuresOf(words[1:2])
		if err != nil {
			return true, err
		}
		p.now = numbers[0]
		for i := 2; i+1 < len(words); i += 2 {
			numbers, err := figuresOf(words[i+1 : i+2])
			if err != nil {
				return true, err
			}
			p.executed[words[i]] = numbers[0]
		}
		return true, nil
	case "pages":
		for i := 1; i+5 < len(words); i += 6 {
			n, err := figuresOf(words[i+1 : i+6])
			if err != nil {
				return true, err
			}
			p.pages[words[i]] = pages{n[0], n[1], n[2], n[3], n[4]}
		}
		return true, nil
	}
	return true, fmt.Errorf("%w: %s", errPlayed, strings.Join(words, " "))
}

func figuresOf(words []string) (list []uint64, err error) {
	for _, word := range words {
		n, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read the player's figures: %w", err)
		}
		list = append(list, n)
	}
	return list, nil
}
