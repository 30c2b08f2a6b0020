package docs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/test/docs/session"
)

const (
	// usualMachine is the simulated machine of pages for which the book names none.
	usualMachine = "a100-80g"
	// longest bounds each command, on a busy machine.
	longest = 3 * time.Minute
	// settles is how long a command that may be repeated has to print what the page says.
	settles = 3 * time.Minute
)

// shell is the shell of a user on a machine of their own. It ends with all that its commands started.
type shell struct {
	cmd    *exec.Cmd
	input  io.WriteCloser
	output *bufio.Reader
	said   bytes.Buffer
	// settle is how long a command may take to print what its page says.
	settle time.Duration
}

// open starts a machine with a shell of a user: ada or root.
func open(t *testing.T, machine, user string) *shell {
	t.Helper()
	if err := exec.Command("unshare", "--user", "--map-root-user", "--mount", "--pid", "--net", "--fork", "true").Run(); err != nil {
		installtest.Missing(t, "userns", fmt.Errorf("make namespaces: %w", err))
	}
	source := installtest.Root(t)
	s := &shell{cmd: exec.Command(filepath.Join(source, "test/docs/sandbox.sh"), source, string(installtest.Tree(t)), machine, user), settle: settles}
	if *update {
		s.settle = time.Second
	}
	s.cmd.Stderr = &s.said
	var err error
	if s.input, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	output, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.output = bufio.NewReader(output)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.input.Close()
		_ = s.cmd.Process.Kill() // takes all of the machine's processes with it
		_ = s.cmd.Wait()         // how it ended says nothing
	})
	if _, _, err := s.run(t.Context(), "exec 2>&1; set -o pipefail"); err != nil {
		t.Fatalf("make a machine: %v: %s", err, s.said.String())
	}
	return s
}

// waits is what a command says of an agent that has had no processor for two seconds. No page shows that.
var waits = regexp.MustCompile(`^divvy: the agent does not answer.*: waiting for it\n$`)

// end is what follows each command's output in a line, with the exit status.
const end = "\x01ended "

// run runs a command, and returns what it prints and its exit status.
func (s *shell) run(ctx context.Context, command string) (output string, status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = s.cmd.Process.Kill() })
	defer stop()
	into := ""
	if strings.HasSuffix(command, "&") {
		into = " >>$HOME/background.log 2>&1" // it prints when it likes
	}
	quoted := "'" + strings.ReplaceAll(command, "'", `'\''`) + "'"
	if _, err := fmt.Fprintf(s.input, "eval %s </dev/null%s; printf '\\n\\001ended %%d\\n' $?\n", quoted, into); err != nil {
		return "", 0, fmt.Errorf("give a command to the shell: %w", err)
	}
	for {
		line, err := s.output.ReadString('\n')
		if last, ended := strings.CutPrefix(line, end); ended {
			status, err := strconv.Atoi(strings.TrimSpace(last))
			return strings.TrimSuffix(output, "\n"), status, err
		}
		if !waits.MatchString(line) {
			output += line
		}
		if err != nil {
			return output, 0, fmt.Errorf("read what a command prints: %w", errors.Join(ctx.Err(), err))
		}
	}
}

// background begins a command that goes on, and waits until what it starts is seen, as a person does: a share, or an agent.
// What it prints comes when it likes, and is kept in a file.
func (s *shell) background(ctx context.Context, command string) error {
	const count = `divvy ls -o json 2>/dev/null | grep -c -e '"created"' -e '"protocol"'`
	before, _, err := s.run(ctx, count)
	if err != nil {
		return err
	}
	if _, _, err := s.run(ctx, "{ "+command+" } >>$HOME/background.log 2>&1"); err != nil {
		return err
	}
	for last := time.Now().Add(s.settle); ; {
		now, _, err := s.run(ctx, count)
		if err != nil || now != before {
			return err
		}
		if time.Now().After(last) {
			said, _, err := s.run(ctx, "cat $HOME/background.log")
			return errors.Join(fmt.Errorf("%s: started neither a share nor an agent: %s", command, said), err)
		}
	}
}

// try runs a page's command, and returns what it printed and how that differs from the page. One that may be repeated, or
// fails, is tried until it agrees: what runs in the background may not have come so far.
func (s *shell) try(ctx context.Context, c session.Command, book *session.Book) (string, error) {
	if strings.HasSuffix(c.Text, "&") {
		return "", s.background(ctx, c.Text)
	}
	for last := time.Now().Add(s.settle); ; {
		output, status, err := s.run(ctx, c.Text)
		switch {
		case err != nil:
			return "", fmt.Errorf("%v: %w: it printed\n%s", c, err, output)
		case book.Prints(c, output) && (status == 0 || c.Output != ""):
			return output, nil
		case status == 0 && !book.Repeats(c) || time.Now().After(last):
			return output, fmt.Errorf("%v\nprints, with exit status %d,\n%s\nand the page has\n%s", c, status, output, c.Output)
		}
	}
}
