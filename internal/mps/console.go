package mps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// console is the program that gives a daemon commands, kept running. A daemon lets one program at a time give commands and
// refuses others (tried with 535 to 555), so while it runs nobody else does, and a question takes no start of a program. Its
// output is a terminal: to a pipe it would write when it ends.
type console struct {
	cmd   *exec.Cmd
	input io.WriteCloser
	out   *os.File
	// said are the lines that were read and belong to no answer yet.
	said bytes.Buffer
}

// consoles are those that are kept open, by pipe directory. Who has the turn of a directory uses its console.
var consoles sync.Map

// errTerminal says that there are no pseudoterminals here.
var errTerminal = errors.New("open a terminal")

// openConsole starts the program.
func (d Daemon) openConsole(ctx context.Context) (c *console, err error) {
	out, terminal, err := openTerminal()
	if err != nil {
		return nil, err
	}
	defer func() { _ = terminal.Close() }()
	cmd := d.command(context.WithoutCancel(ctx)) // it outlives the question
	cmd.Stdout, cmd.Stderr = terminal, terminal
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ask the MPS control daemon: %w", err), out.Close())
	}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("ask the MPS control daemon: %w", err), out.Close())
	}
	asking.Store(cmd.Process.Pid, true)
	return &console{cmd: cmd, input: input, out: out}, nil
}

// openTerminal makes a pair of pseudoterminals, of which the second is for a program.
func openTerminal() (ours, theirs *os.File, err error) {
	ours, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errTerminal, err)
	}
	conn, err := ours.SyscallConn()
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%w: %w", errTerminal, err), ours.Close())
	}
	controlErr := conn.Control(func(fd uintptr) {
		var number int
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err != nil {
			return
		}
		if number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN); err == nil {
			theirs, err = os.OpenFile(filepath.Join("/dev/pts", strconv.Itoa(number)), os.O_RDWR|unix.O_NOCTTY, 0)
		}
	})
	if err = errors.Join(err, controlErr); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%w: %w", errTerminal, err), ours.Close())
	}
	return ours, theirs, nil
}

// close ends the program.
func (c *console) close() {
	_ = c.input.Close()
	_ = c.cmd.Cancel()
	_ = c.cmd.Wait()
	asking.Delete(c.cmd.Process.Pid)
	_ = c.out.Close()
}

// converse gives the daemon commands, and returns the lines of its answers up to the last mark. An error says that the console
// is of no use any more.
func (c *console) converse(ctx context.Context, commands []string) ([]string, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.out.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	text := strings.Join(commands, "\n"+next+"\n") + "\n" + next + "\n"
	if _, err := io.WriteString(c.input, text); err != nil {
		return nil, fmt.Errorf("ask %q: %w: %w", commands, errUnsent, err)
	}
	var said []string
	for marks, length := 0, 0; ; {
		line, err := c.line(ctx)
		if err != nil {
			return nil, fmt.Errorf("ask %q: %w", commands, err)
		}
		switch {
		case strings.Contains(line, unsent):
			return nil, fmt.Errorf("ask %q: %w", commands, errUnsent)
		case strings.Contains(line, absent):
			return nil, fmt.Errorf("ask %q: %w", commands, ErrAbsent)
		case isMark(line):
			if marks++; marks == len(commands) {
				return said, nil
			}
		}
		if length += len(line) + 1; length > longestAnswer {
			return nil, fmt.Errorf("ask %q: %w: it is longer than %d bytes", commands, ErrAnswer, longestAnswer)
		}
		said = append(said, line)
	}
}

// line reads one.
func (c *console) line(ctx context.Context) (string, error) {
	var part [4096]byte
	for {
		if at := bytes.IndexByte(c.said.Bytes(), '\n'); at >= 0 {
			return strings.TrimSpace(string(c.said.Next(at + 1))), nil
		}
		if c.said.Len() > longestAnswer {
			return "", fmt.Errorf("%w: a line is longer than %d bytes", ErrAnswer, longestAnswer)
		}
		n, err := c.out.Read(part[:])
		c.said.Write(part[:n])
		switch {
		case n > 0:
		case ctx.Err() != nil:
			return "", errors.Join(ErrSilent, context.Cause(ctx))
		case err != nil: // the program has ended, as when it was refused
			return "", fmt.Errorf("%w: %w", errUnsent, err)
		}
	}
}

// askConsole asks by the console of the daemon, which is opened where there is none. The daemon's turn is held.
func (d Daemon) askConsole(ctx context.Context, commands []string) ([]reply, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	kept, known := consoles.Load(d.Dirs.Pipe)
	c, _ := kept.(*console)
	if !known {
		var err error
		if c, err = d.openConsole(ctx); err != nil {
			return nil, err
		}
		consoles.Store(d.Dirs.Pipe, c)
	}
	relieved := d.relieve(ctx)
	said, err := c.converse(ctx, commands)
	relieved()
	if err != nil {
		d.closeConsole()
		return nil, err
	}
	return answers(commands, lines(strings.Join(said, "\n")))
}

// release lets others give the daemon commands.
func (d Daemon) release(ctx context.Context) error {
	done, err := d.takeTurn(ctx)
	if err != nil {
		return err
	}
	defer done()
	d.closeConsole()
	return nil
}

// closeConsole ends the console, if there is one. The daemon's turn is held.
func (d Daemon) closeConsole() {
	if kept, known := consoles.LoadAndDelete(d.Dirs.Pipe); known {
		if c, ok := kept.(*console); ok {
			c.close()
		}
	}
}
