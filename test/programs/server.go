package programs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// server is a `divvy serve` that gives shares of a place's GPU, and what its one client has.
type server struct {
	cmd *exec.Cmd
	// said has what it says until its output ends.
	said chan string
	// address is where it listens.
	address string
	// bundles and rundir are the client's directories.
	bundles, rundir string
}

// serving is the line with which a server says where it listens.
var serving = regexp.MustCompile(`msg="serving other hosts" address=(\S+)`)

// serve starts a server, which the caller stops.
func (p *place) serve(ctx context.Context) (*server, error) {
	dir := filepath.Join(p.rundir, "serve")
	s := &server{said: make(chan string, 1), bundles: filepath.Join(p.rundir, "bundles"), rundir: filepath.Join(p.rundir, "client")}
	for _, folder := range []string{s.bundles, s.rundir} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			return nil, fmt.Errorf("make a client's folder: %w", err)
		}
	}
	admit := []string{"serve", "admit", "programs", "--dir", dir, "--out", filepath.Join(s.bundles, "server.pem")}
	if os.Getuid() == 0 {
		who, err := user.Current()
		if err != nil {
			return nil, fmt.Errorf("find the user whose the shares are: %w", err)
		}
		admit = append(admit, "--user", who.Username)
	}
	for _, args := range [][]string{{"serve", "init", "--dir", dir, "127.0.0.1"}, admit} {
		if said, err := p.divvy(ctx, args...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("prepare a server: %w: %s", err, said)
		}
	}
	// It ends when it is stopped, not with the context: what is left of the shares ends before it.
	s.cmd = p.divvy(context.WithoutCancel(ctx), "serve", "--dir", dir, "--listen", "127.0.0.1:0", "--simgpu", p.instance.Name, "--gpus", strconv.Itoa(p.gpu))
	log, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a server: %w", err)
	}
	return s, s.listen(log)
}

// listen waits until the server says where it listens, and reads on until its end.
func (s *server) listen(log io.Reader) error {
	lines := bufio.NewReader(log)
	var said strings.Builder
	for {
		line, err := lines.ReadString('\n')
		said.WriteString(line)
		if found := serving.FindStringSubmatch(line); found != nil {
			s.address = found[1]
			break
		}
		if err != nil {
			s.said <- said.String()
			return fmt.Errorf("the server does not serve: %s", said.String())
		}
	}
	go func() {
		_, _ = io.Copy(&said, lines) // to whatever end
		s.said <- said.String()
	}()
	return nil
}

// longestEnd bounds each wait for an end that takes milliseconds.
const longestEnd = 30 * time.Second

// stop ends the server, and with it the shares that are left.
func (s *server) stop(ctx context.Context) error {
	left := s.idle(ctx)
	err := s.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(longestEnd, func() { _ = s.cmd.Process.Kill() }) // its status tells it
	defer kill.Stop()
	said := <-s.said
	if err = errors.Join(err, s.cmd.Wait()); err != nil {
		err = fmt.Errorf("stop the server: %w: %s", err, said)
	}
	return errors.Join(left, err)
}

// idle waits until the client has no folder of a share: its relay removes it behind the end of the command.
func (s *server) idle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, longestEnd)
	defer cancel()
	for {
		left, err := os.ReadDir(filepath.Join(s.rundir, "remote"))
		if errors.Is(err, fs.ErrNotExist) || err == nil && len(left) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("the client's shares are not gone: %v", left), err, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}
