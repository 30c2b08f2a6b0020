package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/launch"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

// Main is the life of a relay. Its descriptors are those of [launch.Enter.Relay].
func Main(ctx context.Context) error {
	var stat unix.Stat_t
	if unix.Fstat(launch.RelayLock, &stat) != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return errors.New("this is for `divvy run --remote`")
	}
	if err := process.CloseInherited(launch.RelayLock); err != nil {
		return err
	}
	for fd := launch.RelayLife; fd <= launch.RelayLock; fd++ {
		unix.CloseOnExec(fd)
	}
	answers := os.NewFile(launch.RelayAnswers, "answers")
	spec, err := ReadSpec(os.NewFile(launch.RelaySpec, "what to do"))
	if err != nil {
		return err
	}
	// What is typed on a terminal is the command's. By SIGTERM somebody ends the share.
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGPIPE)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.NewFile(launch.RelayLife, "life")) // it ends when nobody has the other end
		cancel()
	}()
	said := json.NewEncoder(answers)
	r := New(spec, hostsOf(spec), func(text string) { _ = said.Encode(Answer{Tell: text}) }) // without who asked it ends too
	err = r.run(ctx, func(ready *Ready) error { return errors.Join(said.Encode(Answer{Ready: ready}), answers.Close()) })
	if err != nil {
		_ = said.Encode(Answer{Failed: failure(err)}) // as above
	}
	return r.Remove()
}

// failure is what a relay says of an error. Of a full file system it says who keeps it full, as `divvy run` does of its own: who
// started the relay gets the words alone.
func failure(err error) string {
	if full, ok := rundir.NoRoom(err); ok {
		return full.Text(os.Getuid())
	}
	return err.Error()
}

// run takes the share, listens, and keeps it until the context ends.
func (r *Relay) run(ctx context.Context, told func(*Ready) error) error {
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: r.spec.Socket, Net: "unix"})
	if err != nil {
		return fmt.Errorf("listen for the command: %w", err)
	}
	defer socket.Close()
	mode := os.FileMode(0o600)
	if r.spec.Everybody {
		mode = 0o666
	}
	if err := os.Chmod(r.spec.Socket, mode); err != nil {
		return fmt.Errorf("listen for the command: %w", err)
	}
	ready, err := r.Begin(ctx)
	if err != nil {
		return err
	}
	r.say = func(string) {}
	if err := told(ready); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	r.Serve(ctx, socket)
	return nil
}
